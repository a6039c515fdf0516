"""Data frames and series count as the arrays that they hold; their columns may name the classes."""

from typing import Any

import numpy
import polars
import pytest
import torch

import falconcal
from falconcal.errors import UserError
from falconcal.metrics import Scores, fit_conformal
from falconcal.models import predict

GENERATOR = numpy.random.default_rng(0)
PROBS = GENERATOR.dirichlet(numpy.ones(3), 60)
LABELS = numpy.array([GENERATOR.choice(3, p=row) for row in PROBS])
CLASSES = ("ant", "bee", "cow")


class Pandas:
    """The frames and series of pandas, with an index that does not count from 0."""

    def frame(self, columns: dict[str, Any]) -> Any:
        pandas = pytest.importorskip("pandas")
        rows = len(next(iter(columns.values())))
        return pandas.DataFrame(columns, index=range(100 + rows, 100, -1))

    def series(self, values: Any) -> Any:
        pandas = pytest.importorskip("pandas")
        return pandas.Series(values, index=range(7, 7 + len(values)))


class Polars:
    def frame(self, columns: dict[str, Any]) -> Any:
        return polars.DataFrame(columns)

    def series(self, values: Any) -> Any:
        return polars.Series("some", values)


@pytest.fixture(params=[Pandas, Polars])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()


def frame_of(library: Any, names: Any = CLASSES) -> Any:
    return library.frame({name: PROBS[:, place] for place, name in enumerate(names)})


def test_metrics_take_them_as_arrays(library: Any) -> None:
    rows, labels = frame_of(library), library.series(LABELS)
    for metric in (falconcal.accuracy, falconcal.expected_calibration_error, falconcal.brier_score):
        assert metric(rows, labels) == metric(PROBS, LABELS)


def test_so_do_assessments_intervals_calibration_and_sets(library: Any) -> None:
    pair, arrays = (frame_of(library), library.series(LABELS)), (PROBS, LABELS)
    assert falconcal.assess(pair).metrics == falconcal.assess(arrays).metrics
    assert falconcal.interval(pair, "ece") == falconcal.interval(arrays, "ece")
    assert falconcal.paired_difference(pair, pair, "nll").value == 0
    fitted = [falconcal.Temperature().fit_predictions(one) for one in (pair, arrays)]
    assert torch.equal(*(one.get_buffer("temperature") for one in fitted))
    sets = [fit_conformal(one) for one in (pair, arrays)]
    assert torch.equal(sets[0].scores, sets[1].scores)
    top = library.series(PROBS.max(1))
    chosen = library.series(PROBS.argmax(1))
    scores = Scores.from_top_predictions(library.series(LABELS), chosen, top)
    assert falconcal.accuracy(scores) == falconcal.accuracy(PROBS, LABELS)


def test_examples_and_pairs_of_them_are_data(library: Any) -> None:
    rows, labels = frame_of(library), library.series(LABELS)
    model = torch.nn.Linear(3, 3)
    examples = falconcal.Examples(rows, labels, weights=library.series(numpy.ones(60)))
    ours = predict(model, examples).log_probs
    wanted = model(torch.from_numpy(PROBS).float()).log_softmax(1).double()
    torch.testing.assert_close(ours.double(), wanted.detach(), atol=1e-5, rtol=0)
    given = [falconcal.evaluate(model, one, []) for one in ((rows, labels), (PROBS, LABELS))]
    assert given[0].equals(given[1])


def test_labels_that_are_words_are_the_columns_of_these_names(library: Any) -> None:
    words = library.series([CLASSES[label] for label in LABELS])
    assert falconcal.accuracy(frame_of(library), words) == falconcal.accuracy(PROBS, LABELS)
    turned = library.frame({name: PROBS[:, CLASSES.index(name)] for name in reversed(CLASSES)})
    assert falconcal.accuracy(turned, words) == falconcal.accuracy(PROBS, LABELS)


def test_columns_that_are_numbers_are_classes_by_number(library: Any) -> None:
    """As in DataFrame(model.predict_proba(x), columns=model.classes_) for classes 3, 5 and 7."""
    labels = library.series(numpy.array([3, 5, 7])[LABELS])
    assert falconcal.accuracy(frame_of(library, "357"), labels) == falconcal.accuracy(PROBS, LABELS)
    unknown = library.series(numpy.full(60, -1))
    read = falconcal.Predictions.from_probabilities(frame_of(library, "357"), unknown)
    assert read.labels.tolist() == [-1] * 60


def test_tables_that_come_out_become_pandas_as_the_docs_say() -> None:
    pandas = pytest.importorskip("pandas")
    table = falconcal.assess((PROBS, LABELS)).to_frame()
    out = pandas.DataFrame(table.to_dict(as_series=False))
    assert list(out.columns) == table.columns
    assert len(out) == len(table)


def test_what_cannot_be_read_is_named(library: Any) -> None:
    rows, labels = frame_of(library), library.series(LABELS)
    with pytest.raises(UserError, match=r"unknown label, .* 'bea'. Did you mean 'bee'"):
        falconcal.accuracy(rows, library.series(["bea"] * 60))
    with pytest.raises(UserError, match=r"unknown label, .* '2'"):
        falconcal.accuracy(frame_of(library, "357"), library.series(numpy.full(60, 2)))
    mixed = library.frame({"ant": PROBS[:, 0], "site": ["north"] * 60})
    with pytest.raises(UserError, match="as numbers, got String in the column 'site'"):
        falconcal.accuracy(mixed, labels)
    gaps = library.frame({"ant": [0.5, None], "bee": [0.5, 0.5]})
    with pytest.raises(UserError, match="without missing values, got 1 in the column 'ant'"):
        falconcal.accuracy(gaps, library.series([0, 1]))
    with pytest.raises(UserError, match="labels without missing values, got 2"):
        falconcal.accuracy(PROBS[:3], library.series([0, None, None]))
