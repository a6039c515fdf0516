"""The public API used wrongly: what makes sense works, everything else is said in our words."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from falconcal.errors import UserError
from tests.helpers.stripes import Columns


class Everything:
    """All public names, of the root and of packages, not typed: what they get is wrong."""

    packages = (
        "data", "shifts", "metrics", "models", "evidence", "training", "training.losses",
        "recalibration", "methods", "inference", "evaluation", "studies", "report", "integrations",
        "shifts.fgsm", "core.method",
    )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        homes = ["falconcal", *(f"falconcal.{package}" for package in self.packages)]
        found = (getattr(importlib.import_module(home), name, None) for home in homes)
        return next(thing for thing in found if callable(thing) or isinstance(thing, dict))


API = Everything()
PROBABILITIES = numpy.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
TRUTH = numpy.array([0, 1, 1, 0])
LOGITS = numpy.array([[3.0, 1.0], [0.0, 4.0], [1.0, 2.0], [5.0, 0.0]])
PREDICTIONS = API.Predictions.from_probabilities(PROBABILITIES, TRUTH)
INPUTS = numpy.linspace(0, 1, 48).reshape(12, 4)  # float64, as NumPy has it
LABELS = numpy.arange(12) % 2
EXAMPLES = API.Examples(
    torch.from_numpy(INPUTS).float(), torch.from_numpy(LABELS), API.Bounds(0, 1)
)
CONTRAST = API.SHIFTS["sensor_noise"]


def model(outputs: int = 2) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, outputs))


def fit(
    trained: Any, train: Any, validation: Any = None, method: Any = None, **options: Any
) -> object:
    method = method or API.Falcon(epochs=1, bounds=None)
    held = EXAMPLES.batches(6) if validation is None else validation
    return method.fit(trained, train, held, **options)


def inferred() -> torch.Tensor:
    with torch.inference_mode():
        return torch.from_numpy(INPUTS).float() * 1


class Frozen(nn.Module):
    """Features that no gradient comes through."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return 2 * inputs


class Pair(nn.Module):
    """A model whose output begins with no logits."""

    def forward(self, inputs: torch.Tensor) -> tuple[str, torch.Tensor]:
        return "logits", inputs


# by their functions, with what these take besides predictions
METRICS: dict[str, tuple[Any, ...]] = {
    **{record.function.__name__: () for record in API.METRICS.values()},
    "brier_decomposition": (),
    "reliability_curve": (),
    "risk_coverage_curve": (),
    "risk_table": (),
    "accuracy_at_coverage": (0.5,),
    "confidence_histogram": (),
    "confidence_by_class": (2,),
}
UNLABELLED = {
    "confidence_histogram", "confidence_by_class",
    *(one.function.__name__ for one in API.METRICS.values() if "labels" not in one.needs),
}  # fmt: skip


def metric(name: str) -> Callable[..., Any]:
    records = {record.function.__name__: record.function for record in API.METRICS.values()}
    found: Callable[..., Any] = records.get(name) or getattr(API, name)
    return found


def plain(value: Any) -> Any:
    """Return a result as numbers that can be compared."""
    if isinstance(value, float):
        return value
    if isinstance(value, torch.Tensor):
        return value.tolist()
    parts = getattr(value, "__dict__", {})
    return {name: plain(part) for name, part in parts.items()} if parts else value


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_takes_arrays_tensors_and_lists(name: str) -> None:
    function, more = metric(name), METRICS[name]
    expected = str(plain(function(PREDICTIONS, *more)))
    for kind in (numpy.array, torch.tensor, numpy.ndarray.tolist):
        probabilities, labels = kind(PROBABILITIES), kind(TRUTH)
        assert str(plain(function(probabilities, labels, *more))) == expected
        assert str(plain(function((probabilities, labels), *more))) == expected
        assert str(plain(function(probabilities, *more, labels=labels))) == expected


@pytest.mark.parametrize("name", METRICS)
def test_no_metric_guesses_that_numbers_are_logits(name: str) -> None:
    with pytest.raises(UserError, match=r"Predictions\.from_logits"):
        metric(name)(LOGITS, TRUTH, *METRICS[name])


@pytest.mark.parametrize("name", METRICS)
def test_probabilities_alone_are_enough_where_no_truth_is_asked_for(name: str) -> None:
    if name in UNLABELLED:
        expected = metric(name)(PREDICTIONS, *METRICS[name])
        assert str(metric(name)(PROBABILITIES, *METRICS[name])) == str(expected)
    else:
        with pytest.raises(UserError, match=r"needs a true class .*or none"):
            metric(name)(PROBABILITIES, *METRICS[name])


WRONG_DATA: dict[str, tuple[Any, str]] = {
    "None": (None, "got None"),
    "a path": ("predictions.csv", r"got the text 'predictions\.csv'.*read_predictions"),
    "a class": (API.Predictions, "got the class Predictions"),
    "a generator": ((row for row in PROBABILITIES), "got a generator"),
    "a number": (0.5, "got the number 0.5"),
    "a mapping": ({"probabilities": PROBABILITIES}, "got a dict"),
    "a model": (nn.Linear(2, 2), "got a Linear"),
    "one row": (torch.tensor([0.1, 0.9]), r"\(N, C\), got shape \(2,\)"),
    "nothing": (numpy.zeros((0, 2)), "at least one example"),
    "ragged rows": ([[0.1, 0.9], [1.0]], "numbers of one shape"),
    "text": (numpy.array([["a", "b"]]), "as numbers"),
    "objects": (numpy.array([[None, None]]), "as numbers"),
    "complex numbers": (PROBABILITIES + 0j, "real numbers, got complex128"),
}


@pytest.mark.parametrize("wrong", WRONG_DATA)
@pytest.mark.parametrize("name", ["accuracy", "mean_confidence", "confidence_histogram"])
def test_what_is_no_data_is_refused_by_metrics(name: str, wrong: str) -> None:
    data, words = WRONG_DATA[wrong]
    with pytest.raises(UserError, match=words):
        metric(name)(data)


# what is called -> the words of the answer; None if it works
MISUSES: dict[str, tuple[Callable[[Path], Any], str | None]] = {
    # metrics and what is made of them
    "labels too few": (lambda _: API.accuracy(PROBABILITIES, TRUTH[:2]), "one label"),
    "labels out of range": (lambda _: API.accuracy(PROBABILITIES, TRUTH + 1), "labels from"),
    "fractional labels": (lambda _: API.accuracy(PROBABILITIES, TRUTH / 2), "whole-number"),
    "labels of text": (lambda _: API.accuracy(PROBABILITIES, ["a"] * 4), "labels as numbers"),
    "labels twice": (lambda _: API.accuracy(PREDICTIONS, TRUTH), "have their labels"),
    "bins as text": (
        lambda _: API.expected_calibration_error(PREDICTIONS, bins="ten"), "at least 1 bin"
    ),
    "half a bin": (
        lambda _: API.expected_calibration_error(PREDICTIONS, 0.5), "at least 1 bin"
    ),
    "coverage as text": (
        lambda _: API.accuracy_at_coverage(PREDICTIONS, coverage="half"), "a coverage"
    ),
    "levels that are one level": (lambda _: API.micro_ece(PREDICTIONS), "a list with the"),
    "no levels": (lambda _: API.macro_ece(None), "a list with the"),
    "levels of arrays": (lambda _: API.micro_ece([(PROBABILITIES, TRUTH)] * 2), None),
    "outliers of arrays": (
        lambda _: API.outlier_detection(PROBABILITIES, PROBABILITIES), None
    ),
    "outliers None": (lambda _: API.outlier_detection(PREDICTIONS, None), "got None"),
    "an accumulator of arrays": (lambda _: API.Accumulator.of((PROBABILITIES, TRUTH)), None),
    "an accumulator of None": (lambda _: API.Accumulator.of(None), "got None"),
    "an accumulator over None": (lambda _: API.Accumulator.over(None), "batch by batch"),
    "an accumulator and a number": (
        lambda _: API.Accumulator.of(PREDICTIONS) + 3, "another accumulator"
    ),
    "cells as text": (
        lambda _: API.confidence_histogram(PREDICTIONS, bins="ten"), "at least 1 bin"
    ),
    "classes as text": (
        lambda _: API.confidence_by_class(PREDICTIONS, classes="two"), "number of classes"
    ),
    "pooled predictions": (
        lambda _: API.pooled_interval(PREDICTIONS, "micro_ece"), "a list of shifts"
    ),
    "pooled arrays": (lambda _: API.pooled_interval([[(PROBABILITIES, TRUTH)]], "micro_ece"), None),
    "a certainty below 0": (
        lambda _: API.risk_table(PREDICTIONS).threshold(0.1, certainty=-1),
        "certainty above 0 and below 1, got -1",
    ),
    "bounds of certainty 1": (
        lambda _: API.risk_table(PREDICTIONS).upper_bounds(1.0), "certainty above 0"
    ),
    "a risk as text": (lambda _: API.risk_table(PREDICTIONS).threshold("low"), "a risk"),
    "an assessment of arrays": (lambda _: API.assess((PROBABILITIES, TRUTH)), None),
    "an assessment of None": (lambda _: API.assess(None), "got None"),
    "an assessment of scores": (lambda _: API.assess(PREDICTIONS.scores()), None),
    "an assessment's metric": (lambda _: API.assess(PREDICTIONS, metric=3), "name of a"),
    "groups that are a number": (lambda _: API.assess(PREDICTIONS, groups=3), "one group"),
    "groups of an array": (
        lambda _: API.by_group((PROBABILITIES, TRUTH), numpy.array([0, 0, 1, 1]), "nll"), None
    ),
    "an interval of arrays": (lambda _: API.interval((PROBABILITIES, TRUTH), "ece"), None),
    "an interval of None": (lambda _: API.interval(None, "ece"), "got None"),
    "an interval of no metric": (lambda _: API.interval(PREDICTIONS, None), "name of a"),
    "clusters in a list": (
        lambda _: API.interval(PREDICTIONS, "ece", clusters=[0, 0, 1, 1]), None
    ),
    "clusters too few": (
        lambda _: API.interval(PREDICTIONS, "ece", clusters=[0]), "one cluster per example"
    ),
    "a difference of arrays": (
        lambda _: API.paired_difference(
            (PROBABILITIES, TRUTH), (PROBABILITIES[:, ::-1], TRUTH), "nll"
        ),
        None,
    ),
    "ranks of lists": (lambda _: API.rank_sum([1.0, 2.0], [3.0, 4.0]), None),
    "ranks of None": (lambda _: API.signed_rank(None, None), "got None"),
    "p-values of text": (lambda _: API.holm(["a"]), "p-values as numbers"),
    "a p-value": (lambda _: API.holm(0.5), "a list of p-values"),
    # data
    "arrays as examples": (lambda _: API.Examples(INPUTS, LABELS), None),
    "lists as examples": (lambda _: API.Examples([[1.0], [2.0]], [0, 1]), None),
    "None as examples": (lambda _: API.Examples(None, LABELS), "inputs as numbers"),
    "text as examples": (lambda _: API.Examples(["a"], [0]), "inputs as numbers"),
    "no labels": (lambda _: API.Examples(INPUTS, None), "labels as numbers"),
    "arrays as images": (
        lambda _: API.Images(numpy.zeros((2, 4, 4, 1), "uint8"), [0, 1], ("a", "b")), None
    ),
    "bounds of text": (lambda _: API.Bounds("0", "1"), "bounds that are numbers"),
    "batches of half an example": (lambda _: EXAMPLES.batches(0.5), "batch size of 1 or more"),
    "a dataset that is a number": (lambda _: API.load_dataset(3), "name of a dataset"),
    "a model without data": (lambda _: API.make_model("mlp", None), r"falconcal\.Dataset"),
    "a model that is a number": (lambda _: API.make_model(3, None), "name of a model"),
    "bounds that are a pair": (lambda _: API.Examples(INPUTS, LABELS, (0, 1)), "Bounds or None"),
    "classes that are a count": (
        lambda _: API.Examples(INPUTS, LABELS, None, 2), "names of the classes in a tuple"
    ),
    "tokens that are text": (
        lambda _: API.Examples([[1]], [0], tokens="many"), "number of different tokens"
    ),
    "outliers of None": (lambda _: API.outliers_from("other", None), "a part of a dataset"),
    "outliers that are a number": (lambda _: API.find_outliers(3), "name of a set of outliers"),
    "a shift that is a number": (lambda _: API.find_shift(3), "name of a shift"),
    "a stored shift that is None": (lambda _: API.find_stored(None), "name of a stored shift"),
    "a study that is a number": (lambda _: API.find_study(3), "name of a study"),
    "typos in one text": (lambda _: API.typos("some words", 0.1), "a list of texts"),
    "typos in None": (lambda _: API.typos(None, 0.1), "a list of texts"),
    "half as text": (lambda _: API.typos(["some words"], "half"), "a share from 0 to 1"),
    # predicting and evaluating
    "a model that is a function": (lambda _: API.predict(abs, EXAMPLES), "a model, a torch"),
    "a model that is a class": (lambda _: API.predict(nn.Linear, EXAMPLES), "the class"),
    "data None": (lambda _: API.predict(model(), None), "got None"),
    "data that is a path": (lambda _: API.predict(model(), "x.npz"), "got the text"),
    "data that is an array": (lambda _: API.predict(model(), INPUTS), r"falconcal\.Examples"),
    "data that is a pair of arrays": (lambda _: API.predict(model(), (INPUTS, LABELS)), None),
    "data that is a class": (lambda _: API.predict(model(), API.Examples), "the class"),
    "data that is a generator": (
        lambda _: API.predict(model(), (batch for batch in EXAMPLES.batches(5))), None
    ),
    "batches of arrays": (lambda _: API.predict(model(), [(INPUTS, LABELS)]), None),
    "inputs of another width": (
        lambda _: API.predict(model(), [(INPUTS[:, :3], LABELS)]), r"failed on .*\(12, 3\)"
    ),
    "two outputs for logits": (lambda _: API.predict(Pair(), EXAMPLES), "got a tuple"),
    "evaluating None": (lambda _: API.evaluate(None, EXAMPLES, []), "a model, a torch"),
    "evaluating on arrays": (
        lambda _: API.evaluate(model(), INPUTS, []), r"falconcal\.Examples"
    ),
    "a preparation that is a pair": (
        lambda _: API.evaluate(model(), EXAMPLES, [], preparation=((0.5,), (0.2,))),
        r"falconcal\.data\.Preparation\(mean",
    ),
    "no shifts": (lambda _: API.evaluate(model(), EXAMPLES, None), "a list of shifts"),
    "one shift": (lambda _: API.score_under_shift(model(), EXAMPLES, CONTRAST), None),
    "a shift by its name": (lambda _: API.score_under_shift(model(), EXAMPLES, "fog"), "got 'fog'"),
    "a shift of an array": (lambda _: CONTRAST.at(INPUTS, 1), None),
    "a shift of None": (lambda _: CONTRAST.at(None, 1), "inputs as numbers"),
    "FGSM on arrays": (lambda _: API.fgsm(model(), INPUTS, LABELS, 0.1, None), None),
    "FGSM without truth": (
        lambda _: API.fgsm(model(), INPUTS, LABELS - 1, 0.1, None), "true class"
    ),
    "FGSM out of range": (
        lambda _: API.fgsm(model(), INPUTS, LABELS + 5, 0.1, None), "failed on inputs"
    ),
    "a file that is None": (lambda _: API.read_predictions(None), "path of a file, got None"),
    "a model file that is None": (lambda _: API.load(None), "path of a file, got None"),
    "a batch size that is text": (
        lambda _: API.score_under_shift(model(), EXAMPLES, [], batch_size="all"),
        "batch size of 1 or more",
    ),
    "rows of None": (lambda _: API.scores_to_rows(None), "table that .*score_under_shift gives"),
    "two shifts, one None": (lambda _: CONTRAST | None, "a shift on either side of"),
    "numbers of examples in a list": (
        lambda _: CONTRAST.at(INPUTS, 1, examples=list(range(12))), None
    ),
    "FGSM within a pair": (
        lambda _: API.fgsm(model(), INPUTS, LABELS, 0.1, (0, 1)), "Bounds or None, got .*tuple"
    ),
    "an epsilon of text": (
        lambda _: API.fgsm(model(), INPUTS, LABELS, "small", None), "epsilon to be a number"
    ),
    "a page of None": (
        lambda place: API.write_score_page(None, place, title="x"), r"what falconcal\.assess found"
    ),
    # training and calibrating
    "a loss of arrays": (lambda _: API.calibration_loss(LOGITS, TRUTH), "logits, a tensor"),
    "a loss of a row": (
        lambda _: API.predictive_entropy_loss(torch.ones(3), torch.ones(3)), r"\(N, C\), got"
    ),
    "checkpoints in None": (
        lambda _: API.checkpointing(None).__enter__(), "path of a file, got None"
    ),
    "float64 inputs": (lambda _: fit(model(), [(INPUTS, LABELS)]), None),
    "float64 tensors in a loop": (
        lambda _: API.FalconStep(
            trained := model(), torch.optim.SGD(trained.parameters(), 0.1),
            API.Falcon(epochs=1, bounds=None),
        )(torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
        None,
    ),
    "validation that is not cut": (
        lambda _: fit(model(), EXAMPLES.batches(6), EXAMPLES), None
    ),
    "training on a pair of arrays": (
        lambda _: fit(model(), (INPUTS, LABELS)), "one tuple of arrays: make batches"
    ),
    "training on a dataset of torch": (
        lambda _: fit(
            model(),
            torch.utils.data.TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
        ),
        "a single example .*DataLoader",
    ),
    "labels in a column": (lambda _: fit(model(), [(INPUTS, LABELS[:, None])]), "labels"),
    "one-hot labels of whole numbers": (
        lambda _: fit(model(), [(INPUTS, numpy.eye(2, dtype=int)[LABELS])]), r"labels\.float\(\)"
    ),
    "soft labels over other classes": (
        lambda _: fit(model(), [(INPUTS, numpy.eye(3)[LABELS])]), "over the model's 2 classes"
    ),
    "features of inference mode": (lambda _: fit(model(), [(inferred(), LABELS)]), None),
    "a forward without gradients": (
        lambda _: fit(nn.Sequential(Frozen(), nn.Linear(4, 2)), EXAMPLES.batches(6)),
        r"gradient at the inputs, got none: .*torch\.no_grad",
    ),
    "class weights by name": (
        lambda _: fit(model(), EXAMPLES.batches(6), class_weights={0: 1.0, 1: 2.0}), "got a dict"
    ),
    "class weights misspelt": (
        lambda _: fit(model(), EXAMPLES.batches(6), class_weights="blanced"), "'balanced', got"
    ),
    "class weights of more classes": (
        lambda _: fit(model(), EXAMPLES.batches(6), class_weights=[1, 1, 1]), "2 as the model has"
    ),
    "a loss of one logit": (
        lambda _: fit(
            model(1), EXAMPLES.batches(6), loss=nn.BCEWithLogitsLoss(reduction="none")
        ),
        "a single logit as two",
    ),
    "an optimiser in place of a function": (
        lambda _: fit(
            model(), EXAMPLES.batches(6), optimizer=torch.optim.SGD(model().parameters(), 0.1)
        ),
        "lambda weights: ",
    ),
    "an optimiser with a closure": (
        lambda _: fit(model(), EXAMPLES.batches(6), optimizer=torch.optim.LBFGS), "a closure"
    ),
    "a step of an optimiser with a closure": (
        lambda _: API.FalconStep(
            trained := model(), torch.optim.LBFGS(trained.parameters()), API.Falcon()
        ),
        "LBFGS, which needs a closure",
    ),
    "another state of a step": (
        lambda _: API.FalconStep(
            trained := model(), torch.optim.SGD(trained.parameters(), 0.1), API.Falcon()
        ).load_state_dict({"model": 1}),
        "got the keys model",
    ),
    "training that is not cut": (lambda _: fit(model(), EXAMPLES), r"\.batches\(100, shuffle"),
    "training on None": (lambda _: fit(model(), None), "training batches .*got None"),
    "training on a path": (lambda _: fit(model(), "x.npz"), "training batches .*the text"),
    "training on a generator": (lambda _: fit(model(), iter([])), "iterated more than once"),
    "training None": (lambda _: fit(None, EXAMPLES.batches(6)), "a model, a torch"),
    "training a class": (lambda _: fit(nn.Linear, EXAMPLES.batches(6)), "the class Linear"),
    "training an ensemble of None": (
        lambda _: fit(None, EXAMPLES.batches(6), method=API.Ensemble()), "a model, a torch"
    ),
    "training Bayes on None": (
        lambda _: fit(model(), None, method=API.SVI(epochs=1)), "training batches"
    ),
    "labels above the outputs": (
        lambda _: fit(model(), [(INPUTS, LABELS + 5)]), "labels from 0 to 1"
    ),
    "training on another width": (
        lambda _: fit(model(), [(INPUTS[:, :3], LABELS)]), r"failed on .*\(12, 3\)"
    ),
    "a pair of outputs in training": (
        lambda _: fit(nn.Sequential(model(), Pair()), EXAMPLES.batches(6)), "got a tuple"
    ),
    "a step without an optimiser": (
        lambda _: API.FalconStep(model(), None), "an optimiser of the model"
    ),
    "a step of a class": (
        lambda _: API.FalconStep(
            trained := model(), torch.optim.SGD(trained.parameters(), 0.1), API.Falcon
        ),
        "the class Falcon",
    ),
    "an ensemble of a class": (lambda _: API.Ensemble(base=API.Falcon), "settings"),
    "calibrating arrays": (
        lambda _: API.Temperature().fit_predictions((PROBABILITIES, TRUTH)), None
    ),
    "calibrating None": (lambda _: API.Temperature().fit_predictions(None), "got None"),
    "calibrating scores": (
        lambda _: API.Temperature().fit_predictions(PREDICTIONS.scores()), "all classes"
    ),
    "calibrating on None": (
        lambda _: API.Temperature().fit(model(), None, None), "got None"
    ),
    # saving
    "a method that is a class": (
        lambda place: API.save(
            model(), place / "m", "mlp", classes=("a", "b"), shape=(4,), method=API.Falcon
        ),
        "the method that trained",
    ),
    "three outputs, two names": (
        lambda place: API.save(
            Columns(4, 3), place / "m", "tests.helpers.stripes:Columns", classes=("a", "b"),
            shape=(4,), arguments={"inputs": 4, "outputs": 3},
        ),
        "names of the 3 classes .*got 2: a, b",
    ),
    "another shape": (
        lambda place: API.save(
            Columns(4, 3), place / "m", "tests.helpers.stripes:Columns", classes=("a", "b", "c"),
            shape=(5,), arguments={"inputs": 4, "outputs": 3},
        ),
        r"failed on inputs of shape \(1, 5\)",
    ),
    "classes that are a number": (
        lambda place: API.save(model(), place / "m", "mlp", classes=2, shape=(4,)),
        "classes in a list",
    ),
    "saving None": (
        lambda place: API.save(None, place / "m", "mlp", classes=("a", "b"), shape=(4,)),
        "a model, a torch",
    ),
}  # fmt: skip


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
@pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning")
@pytest.mark.parametrize("misuse", MISUSES)
def test_a_misuse_works_or_is_said_in_our_words(misuse: str, tmp_path: Path) -> None:
    call, words = MISUSES[misuse]
    if words is None:
        assert call(tmp_path) is not None
        return
    with pytest.raises(UserError, match=words):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


def test_arrays_are_the_tensors_that_they_hold() -> None:
    arrays = API.Examples(INPUTS[::-1], LABELS.astype(">i2"))  # neither order is torch's
    assert torch.equal(arrays.inputs, torch.from_numpy(INPUTS).flip(0))
    assert arrays.labels.tolist() == LABELS.tolist()
    fixed = INPUTS.copy()
    fixed.flags.writeable = False
    assert API.Examples(fixed, LABELS).inputs.tolist() == INPUTS.tolist()


@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
def test_float64_inputs_train_as_float32_ones_do() -> None:
    weights = []
    for kind in (torch.float64, torch.float32):
        trained = model()
        fit(trained, [(torch.from_numpy(INPUTS).to(kind), torch.from_numpy(LABELS))])
        weights.append([weight.detach().clone() for weight in trained.parameters()])
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)
