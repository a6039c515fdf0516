"""Conformal sets: sets of classes that hold the true one as often as promised.

Split conformal prediction (Vovk, Gammerman & Shafer, 2005). Each class of an example has a score,
the higher the less it is expected; the threshold q is the ``ceil((n + 1)(1 - alpha)) / n`` quantile
of the scores of the true classes of n calibration examples, and the set is all classes whose score
is at most q. If calibration and later examples are exchangeable, the true class is in the set with
a probability of at least 1 - alpha, and at most 1 / (n + 1) more where no scores are equal.

- ``lac``: ``1 - p_y`` (Sadinle, Lei & Wasserman, 2019); the smallest sets on average.
- ``aps``: the probability of all classes at least as probable as y (Romano, Sesia & Candes, 2020).
- ``raps``: that, and a penalty for each rank after the first few (Angelopoulos et al., ICLR 2021).

The papers draw a random number per example for the last two; here nothing is drawn, so that a set
is the same each time: coverage is the same, sets are a little larger. A set may be empty.

Under covariate shift, of which the ratio w(x) of densities there and at home is known, calibration
examples count by their ratio (Tibshirani, Barber, Candes & Ramdas, 2019), and the threshold of an
example depends on its own ratio. Weights that lie with few examples say little: the effective
sample size ``(sum w)^2 / sum w^2`` is given, and refused below 30.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.errors import UserError, unknown_name_error
from falconcal.metrics.predictions import Data, Predictions, as_record

ConformalKind: TypeAlias = Literal["lac", "aps", "raps"]
CONFORMAL_KINDS: tuple[ConformalKind, ...] = ("lac", "aps", "raps")
"""The kinds of conformal sets."""
FEWEST_EFFECTIVE = 30  # effective sample size below which weights are refused
SLACK = 1e-9  # of (n + 1)(1 - alpha), which rounding can put above a whole number


@dataclass(frozen=True)
class SetSummary:
    """How often sets hold the true class, and how large they are.

    Attributes:
        coverage: Fraction of examples whose set holds the true class.
        mean_size: Mean number of classes in a set.
        empty: Fraction of sets that hold no class.
        examples: Number of examples.

    Example:
        >>> from falconcal.metrics import SetSummary
        >>> SetSummary(0.9, 1.2, 0.0, 10).coverage
        0.9
    """

    coverage: float
    mean_size: float
    empty: float
    examples: int


@dataclass(frozen=True, eq=False, repr=False)
class ConformalSets:
    """Conformal sets for any predictions, after ``fit_conformal``.

    Args:
        kind: ``lac``, ``aps`` or ``raps``.
        alpha: The fraction of sets that may miss the true class.
        scores: The scores of the true classes of the calibration examples in rising order, (n,).
        weights: Their density ratios, if they are weighted, (n,).
        penalty: Of ``raps``, per rank.
        free_ranks: Of ``raps``, the ranks without a penalty.

    Example:
        >>> import falconcal
        >>> from falconcal.metrics import fit_conformal
        >>> seen = falconcal.Predictions.from_probabilities([[0.8, 0.2]] * 19, [0] * 17 + [1] * 2)
        >>> fit_conformal(seen, alpha=0.1).sets(([[0.7, 0.3], [0.1, 0.9]], [0, 1])).tolist()
        [[True, True], [False, True]]
    """

    kind: ConformalKind
    alpha: float
    scores: Tensor
    weights: Tensor | None = None
    penalty: float = 0.01
    free_ranks: int = 5

    def __repr__(self) -> str:
        return (
            f"ConformalSets(kind={self.kind!r}, alpha={self.alpha:g}, "
            f"examples={len(self.scores)}, effective_size={self.effective_size:.1f})"
        )

    @property
    def effective_size(self) -> float:
        """How many examples without weights say as much: (sum w)^2 / sum w^2."""
        if self.weights is None:
            return float(len(self.scores))
        return float(self.weights.sum().square() / self.weights.square().sum())

    def thresholds(self, weights: Tensor | None, count: int) -> Tensor:
        """Return the highest score of a class in the set, for each example: (count,)."""
        if self.weights is None or weights is None:
            limit = _plain_quantile(self.scores, self.alpha)
            return torch.full((count,), limit, dtype=torch.float64)
        return _weighted_quantiles(self.scores, self.weights, weights, self.alpha)

    def sets(self, data: Data, weights: ArrayLike | None = None) -> Tensor:
        """Return which classes are in the set of each example.

        Args:
            data: Predictions, or probabilities (N, C); labels are not looked at.
            weights: The density ratio of each example, (N,), where calibration was weighted.

        Returns:
            Booleans (N, C).

        Raises:
            UserError: If only one of calibration and examples has weights.
        """
        predictions = _whole(data)
        given = None if weights is None else _checked_weights(weights, len(predictions))
        if (given is None) != (self.weights is None):
            raise UserError(
                "expected density ratios of the examples where calibration examples have some, and "
                f"only there, got them for {'these' if self.weights is None else 'calibration'} "
                "alone."
            )
        limits = self.thresholds(given, len(predictions))  # (N,)
        return self._scores(predictions) <= limits[:, None]

    def summary(self, data: Data, weights: ArrayLike | None = None) -> SetSummary:
        """Return coverage and size of the sets of labelled predictions.

        Args:
            data: Predictions with labels.
            weights: The density ratio of each example, (N,), where calibration was weighted.

        Returns:
            Coverage, mean size, the fraction of empty sets, and the number of examples.
        """
        predictions = _labelled(data)
        sets = self.sets(predictions, weights)
        covered = sets.gather(1, predictions.labels[:, None])
        sizes = sets.sum(1)
        return SetSummary(
            float(covered.double().mean()),
            float(sizes.double().mean()),
            float((sizes == 0).double().mean()),
            len(predictions),
        )

    def _scores(self, predictions: Predictions) -> Tensor:
        probs = predictions.log_probs.double().exp()
        return class_scores(probs, self.kind, self.penalty, self.free_ranks)


def fit_conformal(
    data: Data,
    alpha: float = 0.1,
    kind: ConformalKind = "lac",
    *,
    weights: ArrayLike | None = None,
    penalty: float = 0.01,
    free_ranks: int = 5,
) -> ConformalSets:
    """Find the threshold of conformal sets from labelled predictions.

    Args:
        data: Predictions on examples that neither trained nor calibrated the model, with labels.
        alpha: The fraction of sets that may miss the true class.
        kind: ``lac``, ``aps`` or ``raps``.
        weights: Density ratios there and here, (N,), for sets under covariate shift.
        penalty: Of ``raps``, per rank.
        free_ranks: Of ``raps``, the ranks without a penalty.

    Returns:
        What makes sets of any predictions of the same model.

    Raises:
        UserError: If labels are missing, alpha is not between 0 and 1, or the weights have an
            effective sample size below 30.

    Example:
        >>> import falconcal
        >>> from falconcal.metrics import fit_conformal
        >>> seen = falconcal.Predictions.from_probabilities([[0.8, 0.2]] * 19, [0] * 19)
        >>> fit_conformal(seen, alpha=0.1).summary(seen).mean_size
        1.0
    """
    if kind not in CONFORMAL_KINDS:
        raise unknown_name_error("kind of conformal sets", kind, CONFORMAL_KINDS)
    if not 0 < alpha < 1:
        raise UserError(f"expected alpha between 0 and 1, got {alpha}.")
    predictions = _labelled(data)
    scores = class_scores(predictions.log_probs.double().exp(), kind, penalty, free_ranks)
    rising, order = scores.gather(1, predictions.labels[:, None])[:, 0].sort()
    given = None if weights is None else _checked_weights(weights, len(predictions))[order]
    made = ConformalSets(kind, alpha, rising, given, penalty, free_ranks)
    if given is not None:
        _check_effective_size(made)
    return made


def _check_effective_size(made: ConformalSets) -> None:
    if made.effective_size < FEWEST_EFFECTIVE:
        raise UserError(
            f"the weights of {len(made.scores)} examples have an effective sample size of "
            f"{made.effective_size:.1f}, below {FEWEST_EFFECTIVE}: a few examples would decide "
            "everything. Collect examples that are more like those to come."
        )


def class_scores(probs: Tensor, kind: ConformalKind, penalty: float, free_ranks: int) -> Tensor:
    """Return how little each class is expected: (N, C) -> (N, C)."""
    if kind == "lac":
        return 1 - probs
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    cumulated = ordered.cumsum(1)
    if kind == "raps":
        ranks = torch.arange(1, probs.shape[1] + 1)
        cumulated = cumulated + penalty * (ranks - free_ranks).clamp_min(0)
    return torch.empty_like(cumulated).scatter(1, order, cumulated)


def _plain_quantile(scores: Tensor, alpha: float) -> float:
    place = math.ceil((len(scores) + 1) * (1 - alpha) - SLACK)
    return float(scores[place - 1]) if place <= len(scores) else math.inf


def _weighted_quantiles(scores: Tensor, weights: Tensor, own: Tensor, alpha: float) -> Tensor:
    """Return for each example the lowest score below which 1 - alpha of the weight lies: (N,).

    The weight of the example itself lies at infinity.
    """
    below = weights.cumsum(0)  # (n,)
    needed = (1 - alpha) * (below[-1] + own) * (1 - SLACK)  # (N,)
    places = torch.searchsorted(below, needed)
    return torch.cat([scores, scores.new_tensor([math.inf])])[places]


def _whole(data: Data) -> Predictions:
    record = as_record(data)
    if not isinstance(record, Predictions):
        raise UserError(
            "conformal sets need the probabilities of all classes, got scores: keep the "
            "Predictions."
        )
    return record


def _labelled(data: Data) -> Predictions:
    record = _whole(data)
    if len(record) == 0 or (record.labels < 0).any():
        raise UserError(
            "conformal sets need examples with the true class of each, got "
            f"{int((record.labels < 0).sum())} without among {len(record)}: leave these out."
        )
    return record


def _checked_weights(weights: ArrayLike, count: int) -> Tensor:
    given = as_tensor(weights, "weights").double()
    if given.shape != (count,) or not given.isfinite().all() or (given < 0).any():
        raise UserError(
            f"expected a density ratio for each of {count} examples, finite and not below 0, got "
            f"shape {tuple(given.shape)}."
        )
    if not (given > 0).any():
        raise UserError("expected density ratios of which some are above 0, got zeros alone.")
    return given
