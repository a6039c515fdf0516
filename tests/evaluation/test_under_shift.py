"""Evaluation: scores and rows against the metrics called by hand."""

import numpy
import polars
import pytest
import torch

from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.under_shift import evaluate, score_under_shift
from falconcal.metrics import POOLED, metrics_without
from falconcal.models.predict import predict
from falconcal.shifts import SHIFTS
from tests.helpers.small_data import small_network

CHOSEN = [SHIFTS["gaussian_noise"], SHIFTS["shear"]]


@pytest.mark.parametrize("shift", CHOSEN)
def test_rows_equal_the_metrics_called_by_hand(tiny: Dataset, shift: object) -> None:
    model, data = small_network(), tiny.test
    rows = evaluate(model, data, CHOSEN)
    shift = next(chosen for chosen in CHOSEN if chosen is shift)
    levels = [
        predict(model, data.repeated(shift.at(data.inputs, level))).scores()
        for level in shift.levels
    ]
    for level, scores in enumerate(levels):
        for name, metric in metrics_without("all_classes").items():
            value = rows.filter(shift=shift.name, level=level, metric=name)["value"].item()
            assert value == pytest.approx(metric(scores), abs=1e-6)
    pooled = rows.filter((polars.col("shift") == shift.name) & polars.col("level").is_null())
    values = dict(pooled.select("metric", "value").iter_rows())
    assert values == pytest.approx({name: figure(levels) for name, figure in POOLED.items()})
    assert set(pooled["examples"]) == {30 * len(levels)}


def test_clean_is_measured_once_and_stands_at_level_0_of_every_shift(tiny: Dataset) -> None:
    scores = score_under_shift(small_network(), tiny.test, CHOSEN)
    assert len(scores.filter(level=0)) == 30
    rows = scores_to_rows(scores)
    clean = rows.filter(shift="clean").select("metric", "value")
    for shift in CHOSEN:
        at_zero = rows.filter(shift=shift.name, level=0).select("metric", "value")
        assert at_zero.equals(clean)
    assert rows.filter(polars.col("metric").is_in(list(POOLED)), shift="clean").is_empty()


def test_scores_do_not_depend_on_the_batch_size(tiny: Dataset) -> None:
    model = small_network()
    whole, cut = (score_under_shift(model, tiny.test, CHOSEN, batch_size=size) for size in (500, 7))
    assert whole.drop("confidence", "nll", "entropy", "brier").equals(
        cut.drop("confidence", "nll", "entropy", "brier")
    )
    numpy.testing.assert_allclose(whole["confidence"], cut["confidence"], atol=1e-6)


def test_scores_take_some_tens_of_bytes_an_example(tiny: Dataset) -> None:
    scores = score_under_shift(small_network(), tiny.test, CHOSEN)
    assert scores.estimated_size() / len(scores) < 64


def test_scores_survive_parquet(tiny: Dataset, tmp_path: object) -> None:
    file = f"{tmp_path}/scores.parquet"
    scores = score_under_shift(small_network(), tiny.test, CHOSEN)
    scores.write_parquet(file)
    assert scores_to_rows(polars.read_parquet(file)).equals(scores_to_rows(scores))


def test_names_of_shifts_are_refused_with_advice(tiny: Dataset) -> None:
    with pytest.raises(UserError, match=r"falconcal\.SHIFTS"):
        evaluate(small_network(), tiny.test, ["shear"])  # type: ignore[list-item]


def test_the_model_keeps_its_mode(tiny: Dataset) -> None:
    model = small_network().train()
    evaluate(model, tiny.test, CHOSEN)
    assert model.training
    assert torch.is_grad_enabled()
