"""Losses as pure functions of logits and labels: FALCON's first, then those of other methods.

Tomani & Buettner, "Towards Trustworthy Predictions from Deep Neural Networks with Fast Adversarial
Calibration", AAAI 2021, equations 2 and 3. Where the paper and its authors' code differ, the code's
form is the default, since the published numbers were made with it, and the paper's form has a name.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.core.module_state import at_least_float32
from falconcal.errors import UserError, described
from falconcal.metrics.binning import bin_index

EntropyForm = Literal["renormalised", "literal"]
CalibrationForm = Literal["half_sum", "root"]
Total = Callable[[Tensor], Tensor]
Average = Callable[[Tensor], Tensor]  # of one value per example
EvidentialForm = Literal["squares", "log", "digamma"]


def predictive_entropy_loss(
    logits: Tensor, labels: Tensor, form: EntropyForm = "renormalised"
) -> Tensor:
    """Return L_S of equation 2: it pulls the probabilities of wrong classes to uniform.

    ``renormalised`` makes the wrong classes uniform among themselves and leaves the true class
    alone. ``literal`` is the paper's formula; it takes probability from the true class as well, and
    with a weight of 50 the best prediction gives the true class 0.02.

    Args:
        logits: Outputs of the model, (N, C).
        labels: True classes, (N,).
        form: ``renormalised`` or ``literal``.

    Returns:
        The mean over the examples, a scalar with a gradient.

    Raises:
        UserError: If the form is unknown, or the tensors do not have these shapes.

    Example:
        >>> import torch
        >>> from falconcal.training import predictive_entropy_loss
        >>> logits = torch.tensor([[3.0, 0.0, 0.0]])  # two wrong classes, each of probability 1/2
        >>> round(predictive_entropy_loss(logits, torch.tensor([0])).item(), 4)  # log 2
        0.6931
    """
    return predictive_entropy_terms(logits, labels, form).mean()


def predictive_entropy_terms(
    logits: Tensor, labels: Tensor, form: EntropyForm = "renormalised"
) -> Tensor:
    """L_S of each example: (N, C), (N,) -> (N,)."""
    _check_form(form, EntropyForm)
    _check_logits(logits, labels)
    logits, classes = at_least_float32(logits), logits.shape[1]
    true = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, labels[:, None], True)  # (N, C)
    if form == "renormalised":
        log_probs = logits.masked_fill(true, -torch.inf).log_softmax(1)  # over wrong classes
        terms = classes - 1
    else:
        log_probs = logits.log_softmax(1)
        terms = classes
    # masked_fill before the sum: the true class is -inf here, and 0 * inf has no gradient
    return log_probs.masked_fill(true, 0.0).sum(1) / -terms


def calibration_loss(
    logits: Tensor,
    labels: Tensor,
    bins: int = 10,
    form: CalibrationForm = "half_sum",
    total: Total = lambda value: value,
    weights: Tensor | None = None,
) -> Tensor:
    """Return L_adv of equation 3: the distance of each confidence from the accuracy of its bin.

    The accuracy carries no gradient; the gradient flows through the confidence.

    Args:
        logits: Outputs of the model, (N, C).
        labels: True classes, (N,).
        bins: Number of bins of equal width.
        form: ``half_sum`` is half the sum of squares over the batch, as in the authors' code;
            ``root`` is the root of that sum, as in the paper.
        total: Sums a tensor over the processes that divide a batch among them: the bins are those
            of the whole batch, and the losses of the processes add up to that of the whole.
        weights: How much each example counts, (N,), in the bins and in the sum; None counts all
            alike.

    Returns:
        A scalar with a gradient.

    Raises:
        UserError: If the form is unknown, or the tensors do not have these shapes.

    Example:
        >>> import torch
        >>> from falconcal.training import calibration_loss
        >>> probs = torch.tensor([[0.92, 0.08], [0.92, 0.08]])  # one of the two is right
        >>> loss = calibration_loss(probs.log(), torch.tensor([0, 1]))
        >>> round(loss.item(), 4)  # 1/2 * 2 * (0.5 - 0.92)^2
        0.1764
    """
    _check_form(form, CalibrationForm)
    _check_logits(logits, labels)
    confidence, predicted = at_least_float32(logits).softmax(1).max(1)  # (N,), (N,)
    correct = predicted == labels
    accuracy = bin_accuracy(confidence.detach(), correct, bins, total, weights)  # (N,)
    squares = (accuracy - confidence).square()  # (N,)
    squares = squares.sum() if weights is None else (weights * squares).sum()
    if form == "half_sum":
        return 0.5 * squares
    # the root has an infinite slope at 0, where the batch is calibrated: no step is wanted there;
    # a part of a batch has its part of the whole's root
    whole = total(squares.detach().clone())
    root = torch.where(whole == 0, 1.0, whole).sqrt()
    return squares / (2 * root) + squares.detach() / (2 * root)


def _check_form(form: str, forms: Any) -> None:
    if form not in get_args(forms):
        raise UserError(f"expected the form {' or '.join(get_args(forms))}, got {form!r}.")


def _check_logits(logits: object, labels: object) -> None:
    """Refuse what has no gradient: an array, a list, None."""
    for name, given, axes in (("logits", logits, 2), ("labels", labels, 1)):
        if not isinstance(given, Tensor) or given.ndim != axes:
            expected = "(N, C)" if axes == 2 else "(N,)"
            raise UserError(f"expected {name}, a tensor {expected}, got {described(given)}.")


def bin_accuracy(
    confidence: Tensor,
    correct: Tensor,
    bins: int,
    total: Total = lambda value: value,
    weights: Tensor | None = None,
) -> Tensor:
    """Return for each example the accuracy of the bin it falls into: (N,), (N,) -> (N,)."""
    # NaN has no bin; it stays in the loss through the confidence, and training reports it there
    index = bin_index(confidence.nan_to_num(), bins)  # (N,)
    if weights is not None:
        return _weighted_accuracy(index, correct, bins, total, weights).to(confidence.dtype)
    counts = total(torch.bincount(index, minlength=bins))  # (M,)
    hits = total(torch.bincount(index, weights=correct.double(), minlength=bins))  # (M,)
    return (hits / counts.clamp_min(1))[index].to(confidence.dtype)


def _weighted_accuracy(
    index: Tensor, correct: Tensor, bins: int, total: Total, weights: Tensor
) -> Tensor:
    """Return for each example the weighted accuracy of its bin: (N,)."""
    wide = weights.double()
    mass = total(torch.bincount(index, weights=wide, minlength=bins))  # (M,)
    hits = total(torch.bincount(index, weights=wide * correct.double(), minlength=bins))  # (M,)
    return (hits / mass.clamp_min(torch.finfo(mass.dtype).tiny))[index]


def l2_penalty(model: nn.Module) -> Tensor:
    """Return the sum of squared dense weights, the authors' L2 term (gradient 2w, biases free)."""
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not weights:
        raise UserError("l2_weight needs a model with nn.Linear layers, found none: set it to 0.")
    return torch.stack([weight.square().sum() for weight in weights]).sum()


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return L_CCE, the mean over examples, in float32 or wider even under mixed precision.

    ``smoothing`` is the fraction of each label that is spread evenly over all classes.
    """
    return functional.cross_entropy(at_least_float32(logits), labels, label_smoothing=smoothing)


def focal_loss(
    logits: Tensor, labels: Tensor, gamma: float, average: Average = torch.mean
) -> Tensor:
    """Return the mean of -(1 - p_y)^gamma log p_y: Lin et al. 2017, equation 4."""
    log_probs = at_least_float32(logits).log_softmax(1).gather(1, labels[:, None])[:, 0]  # (N,)
    # at p_y = 1 a power below 1 has an infinite slope, times a log of 0: no step is wanted there
    wrong = (-torch.expm1(log_probs)).clamp_min(torch.finfo(log_probs.dtype).tiny)
    return -average(wrong**gamma * log_probs)


def evidential_loss(
    log_alpha: Tensor,
    labels: Tensor,
    form: EvidentialForm = "squares",
    average: Average = torch.mean,
) -> Tensor:
    """Return the mean expected loss under Dir(alpha), given log alpha (N, C): Sensoy et al. 2018.

    ``squares`` is equation 5, ``log`` the likelihood of equation 3, ``digamma`` the expected
    cross-entropy of equation 4.
    """
    _check_form(form, EvidentialForm)
    alpha = at_least_float32(log_alpha).exp()  # (N, C)
    truth = functional.one_hot(labels, alpha.shape[1]).to(alpha)  # (N, C)
    strength = alpha.sum(1, keepdim=True)  # (N, 1)
    if form == "squares":
        probs = alpha / strength
        return average(((truth - probs).square() + probs * (1 - probs) / (strength + 1)).sum(1))
    function = torch.log if form == "log" else torch.digamma
    return average((truth * (function(strength) - function(alpha))).sum(1))


def misleading_evidence(log_alpha: Tensor, labels: Tensor, average: Average = torch.mean) -> Tensor:
    """Return the mean KL(Dir(y + (1 - y) * alpha) || Dir(1)), given log alpha: Sensoy et al."""
    alpha = at_least_float32(log_alpha).exp()
    truth = functional.one_hot(labels, alpha.shape[1]).bool()
    alpha = alpha.masked_fill(truth, 1.0)  # (N, C): evidence for wrong classes only
    strength = alpha.sum(1, keepdim=True)  # (N, 1)
    spread = torch.lgamma(strength)[:, 0] - torch.lgamma(alpha).sum(1)
    pull = ((alpha - 1) * (torch.digamma(alpha) - torch.digamma(strength))).sum(1)
    return average(spread - math.lgamma(alpha.shape[1]) + pull)


def divergence_from_uniform(logits: Tensor) -> Tensor:
    """Return the mean of KL(U || p) = -log C - (1/C) sum log p_k: Lee et al. 2018."""
    log_probs = at_least_float32(logits).log_softmax(1)  # (N, C)
    return -math.log(logits.shape[1]) - log_probs.mean()
