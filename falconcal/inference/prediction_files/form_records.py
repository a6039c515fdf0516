"""From the columns of a form to predictions: all classes, one of two, or the top alone."""

import numpy
import polars
import torch

from falconcal.inference.prediction_files.probability_checks import (
    RawPredictions,
    check_inside,
    check_stored_logits,
    probability_matrix,
)
from falconcal.inference.prediction_files.read_options import ReadOptions
from falconcal.inference.prediction_files.true_classes import (
    TrueClasses,
    as_texts,
    in_order,
)
from falconcal.metrics.predictions import PredictionRecord, Predictions, Scores

Classes = tuple[str, ...]


def make_record(
    table: RawPredictions, labels: TrueClasses, options: ReadOptions
) -> tuple[PredictionRecord, Classes]:
    """Return the predictions of a file, or scores of its top predictions, and the classes."""
    if table.layout.form == "top":
        return _top_record(table, labels)
    if table.layout.form == "positive":
        return _positive_record(table, labels, options)
    values = probability_matrix(table, logits=options.logits, normalise=options.normalise)
    classes = table.layout.classes
    truth = labels.class_numbers(classes, named=table.layout.named)
    return _predictions(values, truth, logits=options.logits), classes


def _predictions(values: numpy.ndarray, labels: numpy.ndarray, *, logits: bool) -> Predictions:
    make = Predictions.from_logits if logits else Predictions.from_probabilities
    return make(torch.from_numpy(values), torch.from_numpy(labels))


def _positive_record(
    table: RawPredictions, labels: TrueClasses, options: ReadOptions
) -> tuple[Predictions, Classes]:
    """Return predictions of two classes from the probability, or logit, of one of them."""
    given = table.numbers(table.values.to_series())[:, None]  # (N, 1)
    if options.logits:
        check_stored_logits(table, given)
        other = numpy.zeros_like(given)
    else:
        check_inside(table, given)
        given = given.clip(0, 1)
        other = 1 - given
    positive, classes = _two_classes(table, labels, options)
    pair = (given, other) if positive == classes[0] else (other, given)
    truth = (labels.texts() == classes[1]).cast(polars.Int64).to_numpy().copy()
    return _predictions(numpy.concatenate(pair, 1), truth, logits=options.logits), classes


def _two_classes(
    table: RawPredictions, labels: TrueClasses, options: ReadOptions
) -> tuple[str, Classes]:
    """Return the class that the probability is of, and both, it last unless it is 0."""
    seen = labels.seen()
    positive = options.positive or (*table.layout.classes, "1")[0]
    others = [name for name in seen if name != positive]
    if len(others) > 1 or (positive not in seen and others not in ([], ["0"], ["1"])):
        came = ", ".join(map(repr, seen[:5])) + (" and more" if len(seen) > 5 else "")
        raise labels.problem(
            f"expected labels of two classes, {positive!r} and another, for the probability in "
            f"{table.layout.words}, got {came}: name the class that it is of with --positive.",
            column=labels.column.name,
        )
    other = others[0] if others else {"1": "0", "0": "1"}.get(positive, f"not {positive}")
    return positive, (positive, other) if positive == "0" else (other, positive)


def _top_record(table: RawPredictions, labels: TrueClasses) -> tuple[Scores, Classes]:
    """Return scores of top predictions; the classes are those that occur."""
    assert table.predictions is not None
    table.check_filled(table.predictions)
    confidence = table.numbers(table.values.to_series())  # (N,)
    check_inside(table, confidence[:, None])
    chosen, truth = as_texts(table, table.predictions), labels.texts()
    classes = in_order(list({*chosen.unique().to_list(), *truth.unique().to_list()}))
    numbers = [
        text.replace_strict(classes, range(len(classes)), return_dtype=polars.Int64).to_numpy()
        for text in (truth, chosen)
    ]
    record = Scores.from_top_predictions(
        torch.from_numpy(numbers[0].copy()),
        torch.from_numpy(numbers[1].copy()),
        torch.from_numpy(confidence.clip(0, 1)),
    )
    return record, tuple(classes)
