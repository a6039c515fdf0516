"""Tables as people hold them: words, gaps, sparse matrices and weights for the estimator."""

from typing import Any

import numpy
import polars
import pytest
from scipy import sparse

from falconcal import FalconClassifier
from falconcal.errors import UserError
from falconcal.integrations.table_columns import TableColumns, class_factors

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
QUICK: dict[str, Any] = {"epochs": 3, "early_stopping": False, "random_state": 0}
RANDOM = numpy.random.default_rng(0)
ROWS = RANDOM.normal(size=(90, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)


def fitted(rows: Any = ROWS, labels: Any = LABELS, *args: Any, **settings: Any) -> FalconClassifier:
    return FalconClassifier(**{**QUICK, **settings}).fit(rows, labels, *args)


def test_a_sparse_matrix_is_its_dense_one() -> None:
    rows = numpy.where(numpy.abs(ROWS) < 0.5, 0.0, ROWS)
    dense, thin = fitted(rows), fitted(sparse.csr_matrix(rows))
    other: Any = sparse.csc_matrix(rows)
    numpy.testing.assert_array_equal(thin.predict_proba(other), dense.predict_proba(rows))


@pytest.fixture(params=["pandas", "polars"])
def frames(request: pytest.FixtureRequest) -> Any:
    """A library of data frames."""
    return pytest.importorskip(request.param)


def test_columns_of_words_are_columns_of_0_and_1(frames: Any) -> None:
    words = numpy.array(["a", "b", "c"])[RANDOM.integers(3, size=90)]
    columns = {"x": ROWS[:, 0], "y": ROWS[:, 1]}
    frame = frames.DataFrame({"word": words, **columns})
    by_hand = numpy.column_stack([words == "a", words == "b", words == "c", ROWS[:, :2]])
    expected = fitted(by_hand.astype(float)).predict_proba(by_hand.astype(float))
    model = fitted(frame)
    numpy.testing.assert_array_equal(model.predict_proba(frame), expected)
    assert list(model.feature_names_in_) == ["word", "x", "y"]
    unseen = frames.DataFrame({"word": ["z"] * 90, **columns})
    assert numpy.isfinite(model.predict_proba(unseen)).all()


def test_categories_of_pandas_are_words() -> None:
    pandas = pytest.importorskip("pandas")
    words = numpy.array(["a", "b", "c"])[RANDOM.integers(3, size=90)]
    frame = pandas.DataFrame({"word": words, "x": ROWS[:, 0]})
    kinds = frame.assign(word=frame["word"].astype("category"))
    expected = fitted(frame).predict_proba(frame)
    numpy.testing.assert_array_equal(fitted(kinds).predict_proba(kinds), expected)


def test_dates_are_no_categories() -> None:
    days = polars.date_range(polars.date(2026, 1, 1), polars.date(2026, 3, 31), eager=True)
    frame = polars.DataFrame({"day": days, "x": ROWS[:, 0]})
    with pytest.raises(UserError, match="got dates in 'day'"):
        fitted(frame)


def test_missing_values_are_refused_or_the_mean() -> None:
    rows = ROWS.copy()
    rows[::5, 1] = numpy.nan
    with pytest.raises(ValueError, match="NaN") as refused:
        fitted(rows)
    assert 'missing="mean"' in refused.value.__notes__[0]
    filled = numpy.where(numpy.isnan(rows), numpy.nanmean(rows, axis=0), rows)
    expected = fitted(filled).predict_proba(filled)
    found = fitted(rows, missing="mean").predict_proba(rows)
    numpy.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(UserError, match="'refuse' or 'mean'"):
        TableColumns("median")  # type: ignore[arg-type]


def test_weights_move_predictions() -> None:
    weights = numpy.where(LABELS == 1, 5.0, 0.2)
    plain = fitted().predict_proba(ROWS)[:, 1].mean()
    assert fitted(ROWS, LABELS, weights).predict_proba(ROWS)[:, 1].mean() > plain + 0.02
    by_class = fitted(class_weight={1: 5.0, 0: 0.2}).predict_proba(ROWS)[:, 1].mean()
    assert by_class > plain + 0.02
    ones = fitted(ROWS, LABELS, numpy.ones(90)).predict_proba(ROWS)
    numpy.testing.assert_allclose(ones, fitted().predict_proba(ROWS), rtol=1e-3)


def test_class_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    classes, codes = numpy.array(["a", "b"]), numpy.array([0, 0, 0, 1])
    expected = compute_class_weight("balanced", classes=classes, y=classes[codes])
    assert class_factors("balanced", classes, codes) == pytest.approx(list(expected))
    assert class_factors({"b": 3}, classes, codes) == [1.0, 3.0]
    assert class_factors(None, classes, codes) is None
    with pytest.raises(UserError, match="'z', which is no class"):
        class_factors({"z": 1}, classes, codes)
    with pytest.raises(UserError, match="'balanced' or a mapping"):
        class_factors("even", classes, codes)


def test_a_line_per_epoch_is_printed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    fitted()
    assert capsys.readouterr().out == ""
    fitted(verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"epoch {n} of 3" for n in (1, 2, 3)]


def test_there_is_no_partial_fit_and_the_docs_say_so() -> None:
    assert not hasattr(FalconClassifier(), "partial_fit")
    assert "partial_fit" in (FalconClassifier.__doc__ or "")
