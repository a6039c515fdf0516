"""FALCON as a scikit-learn estimator: arrays in, ``fit``, ``predict`` and ``predict_proba``."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    check_X_y,
    validate_data,
)
from torch import Tensor, nn

from falconcal.core.module_state import check_module
from falconcal.data import PREDICTION_BATCH_SIZE, Examples
from falconcal.errors import UserError, described
from falconcal.integrations.estimator_arrays import (
    Shape,
    as_rows,
    check_square,
    hold_out,
    range_of,
    shape_of_example,
    with_channel,
)
from falconcal.integrations.table_columns import (
    Missing,
    TableColumns,
    advice_on_gaps,
    class_factors,
    dense,
)
from falconcal.methods import Falcon
from falconcal.models import MLP, LeNet
from falconcal.models.predict import predict
from falconcal.recalibration import CalibratedModel, ShiftTemperature
from falconcal.recalibration.calibrator import Calibrator
from falconcal.training import EpochRecord, History, on_epoch

Module = Callable[[Shape, int], nn.Module]  # shape of an example, number of classes


class FalconClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier: a network trained with FALCON on arrays.

    A table (N, features) is standardised by column and goes to a multilayer perceptron. Square
    images (N, height, width) or (N, channels, height, width) are scaled together to 0 ... 1 and go
    to LeNet. Perturbed inputs stay between the lowest and the highest scaled value given to
    ``fit``. Columns of words in a frame become columns of 0 and 1, one per category, and
    sparse matrices are made dense. There is no ``partial_fit``: FALCON's weights rise over the
    epochs of one training, which must know its end.

    Args:
        module: makes a network of one's own instead: called with the shape of an example and the
            number of classes, it returns a module that gives logits.
        hidden: widths of the hidden layers of the multilayer perceptron; a number is one layer.
        epochs: epochs of training.
        batch_size: examples per step.
        learning_rate: learning rate of the classification step.
        entropy_weight: weight of FALCON's predictive entropy loss.
        calibration_weight: weight of FALCON's adversarial calibration loss.
        l2_weight: weight of the L2 penalty.
        early_stopping: hold examples out and keep the epoch with the best validation criterion;
            otherwise train on all examples and keep the last epoch.
        patience: end training when this many epochs brought no better criterion; None trains all
            epochs. A small number ends too early where few examples are held out, or before
            FALCON's weights have risen.
        validation_fraction: fraction of the examples that early stopping holds out.
        class_weight: factors of the classes' losses by class, or ``"balanced"`` for factors that
            make all classes weigh alike; None weighs all examples alike.
        missing: what to do about missing values of a table: ``"refuse"``, or ``"mean"`` to fill in
            the mean of the column; a missing word is a category of its own.
        verbose: whether a line is printed per epoch.
        random_state: seed of the split, the weights and the training.
        settings: further settings of ``Falcon`` by name; they replace all others.

    Attributes:
        module_: the fitted network, which ``recalibrate`` wraps.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> rows, labels = load_iris(return_X_y=True)
        >>> model = FalconClassifier(epochs=5, random_state=0).fit(rows, labels)
        >>> model.predict_proba(rows).shape
        (150, 3)
    """

    module_: nn.Module

    def __init__(
        self,
        module: Module | None = None,
        *,
        hidden: Sequence[int] | int = (64, 64),
        epochs: int = 30,
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        entropy_weight: float = 2.0,  # chosen by benchmarks/estimator_defaults.py
        calibration_weight: float = 0.02,
        l2_weight: float = 0.0,
        early_stopping: bool = True,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        missing: Missing = "refuse",
        verbose: bool = False,
        random_state: int | numpy.random.RandomState | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.entropy_weight = entropy_weight
        self.calibration_weight = calibration_weight
        self.l2_weight = l2_weight
        self.early_stopping = early_stopping
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.missing = missing
        self.verbose = verbose
        self.random_state = random_state
        self.settings = settings

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on examples and their labels.

        Args:
            X: examples, (N, ...): an array, a sparse matrix or a frame.
            y: labels of any type, (N,).
            sample_weight: how much each example counts, (N,); None counts all alike.

        Returns:
            The classifier itself, fitted.

        Raises:
            UserError: there is only one class, or too few examples to hold any out, or images that
                LeNet does not take.
        """
        with advice_on_gaps(self.missing):
            rows, labels, shape = self._read(X, y)
        codes = self._encode(labels)
        weights = None
        if sample_weight is not None:
            weights = torch.from_numpy(_check_sample_weight(sample_weight, rows).astype("float32"))
        seed = int(check_random_state(self.random_state).randint(2**31))
        train, validation = self._split(codes, seed)
        self.example_shape_ = self._module_shape(shape)
        self.columns_.fit_means(rows[train])
        self.scaler_ = StandardScaler() if len(self.example_shape_) == 1 else MinMaxScaler()
        self.scaler_.fit(self._columns_to_scale(rows[train]))
        inputs = self._inputs(rows)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._make_module()
        self._train(module, inputs, torch.from_numpy(codes), weights, (train, validation), seed)
        return self

    def _read(
        self, table: ArrayLike, labels: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[Any], Shape]:
        """Return rows of numbers, labels, and the shape of an example; learn columns of words."""
        self.columns_ = TableColumns(self.missing).fit_words(table)
        if self.columns_.words is None:
            shape = shape_of_example(table)
            found = validate_data(self, as_rows(table), labels, **self._how_to_check())
            return dense(found[0]), found[1], shape
        validate_data(self, table, labels, skip_check_array=True)
        numbers = self.columns_.numbers(table)
        rows, answers = check_X_y(numbers, labels, **self._how_to_check())
        return rows, answers, rows.shape[1:]

    def _read_again(self, table: ArrayLike) -> tuple[NDArray[Any], Shape]:
        """Return rows of numbers, and the shape of an example, of a table like that of ``fit``."""
        with advice_on_gaps(self.missing):
            return self._checked_again(table)

    def _checked_again(self, table: ArrayLike) -> tuple[NDArray[Any], Shape]:
        if self.columns_.words is None:
            rows = validate_data(self, as_rows(table), reset=False, **self._how_to_check())
            return dense(rows), shape_of_example(table)
        validate_data(self, table, reset=False, skip_check_array=True)
        rows = check_array(self.columns_.numbers(table), **self._how_to_check())
        return rows, rows.shape[1:]

    def _how_to_check(self) -> dict[str, Any]:
        allowed = "allow-nan" if self.missing == "mean" else True
        return {"accept_sparse": "csr", "ensure_all_finite": allowed}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the probability of each class.

        Args:
            X: examples, (N, ...), of the shape that ``fit`` was given.

        Returns:
            Probabilities, (N, C), with the classes in the order of ``classes_``.

        Raises:
            UserError: the examples have another shape than in ``fit``.
        """
        probabilities: NDArray[Any] = torch.from_numpy(self.predict_log_proba(X)).exp().numpy()
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the logarithm of the probability of each class.

        Args:
            X: examples, (N, ...), of the shape that ``fit`` was given.

        Returns:
            Logarithms, (N, C), with the classes in the order of ``classes_``.

        Raises:
            UserError: the examples have another shape than in ``fit``.
        """
        check_is_fitted(self)
        rows, shape = self._read_again(X)
        if self._module_shape(shape) != self.example_shape_:
            raise UserError(
                f"expected examples of shape {self.example_shape_}, as in fit, got {shape}."
            )
        unknown = torch.full((len(rows),), -1)
        found = predict(self.module_, Examples(self._inputs(rows), unknown), single_process=True)
        return found.log_probs.numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class of each example.

        Args:
            X: examples, (N, ...), of the shape that ``fit`` was given.

        Returns:
            Labels, (N,), of the type that ``fit`` was given.
        """
        probabilities = self.predict_proba(X)
        chosen: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return chosen

    def recalibrate(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        calibrator: Calibrator | None = None,
    ) -> Self:
        """Fit a calibrator on top of the trained network; ``predict_proba`` uses it from then on.

        Args:
            X: examples that ``fit`` was not given, (N, ...).
            y: their labels, (N,), of classes that ``fit`` knows.
            calibrator: the calibrator; None takes ``ShiftTemperature()``.

        Returns:
            The classifier itself.

        Raises:
            UserError: a label is of no known class, or there are too few examples.
        """
        check_is_fitted(self)
        if not isinstance(calibrator, Calibrator | None):
            raise UserError(
                "expected a calibrator, such as falconcal.Temperature(), got "
                f"{described(calibrator)}."
            )
        rows, _ = self._read_again(X)
        labels = numpy.asarray(y)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()))
        if unknown:
            raise UserError(f"expected labels of the classes that fit was given, got {unknown[0]}.")
        codes = torch.from_numpy(numpy.searchsorted(self.classes_, labels))
        inputs = self._inputs(rows)
        held = Examples(inputs, codes, None if inputs.ndim == 2 else range_of(inputs))
        before = self.module_.model if isinstance(self.module_, CalibratedModel) else self.module_
        validation = held.batches(PREDICTION_BATCH_SIZE)
        self.module_ = (calibrator or ShiftTemperature()).fit(before, validation=validation)
        return self

    def _encode(self, labels: NDArray[Any]) -> NDArray[numpy.int64]:
        """Store the classes and return the index of each label among them, (N,)."""
        check_classification_targets(labels)
        self.classes_, codes = numpy.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise UserError("expected labels of at least 2 classes, got 1 class.")
        return codes.astype(numpy.int64)

    def _split(self, codes: NDArray[numpy.int64], seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the indices of the examples to train on, and of those that choose the epoch."""
        everything = numpy.arange(len(codes))
        if not self.early_stopping:
            return everything, everything  # then only to find out whether training collapsed
        return hold_out(codes, self.validation_fraction, seed)

    def _inputs(self, rows: NDArray[Any]) -> Tensor:
        """Return rows as the network takes them, scaled: (N, *example_shape)."""
        columns = self._columns_to_scale(rows)
        scaled = self.scaler_.transform(columns).astype(numpy.float32)
        return torch.from_numpy(scaled).reshape(-1, *self.example_shape_)

    def _columns_to_scale(self, rows: NDArray[Any]) -> NDArray[numpy.float64]:
        """Return the columns that are scaled apart: those of a table, or all pixels as one."""
        rows = self.columns_.filled(rows.astype(numpy.float64))
        return rows if len(self.example_shape_) == 1 else rows.reshape(-1, 1)

    def _module_shape(self, shape: Shape) -> Shape:
        """Return the shape of an example as the network takes it."""
        return with_channel(shape) if self.module is None else shape

    def _make_module(self) -> nn.Module:
        shape, classes = self.example_shape_, len(self.classes_)
        if self.module is not None:
            return _made_by(self.module, shape, classes)
        if len(shape) == 1:
            widths = numpy.atleast_1d(numpy.asarray(self.hidden, dtype=int)).tolist()
            return MLP(classes, shape[0], widths)
        check_square(shape)
        return LeNet(classes, *shape[:2])

    def _train(
        self,
        module: nn.Module,
        inputs: Tensor,
        codes: Tensor,
        weights: Tensor | None,
        parts: tuple[NDArray[Any], NDArray[Any]],
        seed: int,
    ) -> None:
        bounds, classes = range_of(inputs), tuple(map(str, self.classes_))
        train, validation = (Examples(inputs[part], codes[part], bounds, classes) for part in parts)
        if weights is not None:
            train = replace(train, weights=weights[parts[0]])
        factors = class_factors(self.class_weight, self.classes_, codes[parts[0]].numpy())
        size = _plain(self.batch_size)
        self.history_ = History()
        printing = on_epoch(_print_epoch) if self.verbose else nullcontext()
        with self.history_.recording(), printing:
            self._falcon(seed).fit(
                module,
                train.batches(size, shuffle=True, seed=seed),
                validation.batches(PREDICTION_BATCH_SIZE),
                class_weights=factors,
            )
        module.cpu()  # so that it can be unpickled on a machine without the device
        # in single precision a prediction depends on the other examples in its batch
        self.module_ = module.double() if isinstance(module, MLP) else module

    def _falcon(self, seed: int) -> Falcon:
        names = ("epochs", "learning_rate", "entropy_weight", "calibration_weight", "l2_weight")
        own = {name: getattr(self, name) for name in names}
        own |= {"seed": seed, "keep": "best" if self.early_stopping else "last"}
        own["patience"] = self.patience if self.early_stopping else None
        every = {**own, **(self.settings or {})}
        return Falcon(**{name: _plain(value) for name, value in every.items()})


def _print_epoch(record: EpochRecord) -> None:
    terms = ", ".join(f"{name} {value:.4f}" for name, value in record.terms.items())
    print(f"epoch {record.epoch} of {record.epochs}: {terms}")


def _made_by(module: Module, shape: Shape, classes: int) -> nn.Module:
    """Return the network that a function of the user's makes."""
    if isinstance(module, nn.Module):
        raise UserError(
            "expected module to be a function that makes a network, such as lambda shape, classes: "
            f"torch.nn.Linear(shape[0], classes), got {described(module)}: every fit begins anew."
        )
    made = module(shape, classes)
    check_module(made)
    return made


def _plain(value: Any) -> Any:
    """Return a NumPy number, as searches over settings give them, as a Python number."""
    return value.item() if isinstance(value, numpy.generic) else value
