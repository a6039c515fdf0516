"""The losses against the authors' code, closed forms and autograd."""

import math

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.errors import UserError
from falconcal.training import annealed
from falconcal.training.losses import (
    calibration_loss,
    cross_entropy,
    evidential_loss,
    focal_loss,
    l2_penalty,
    misleading_evidence,
    predictive_entropy_loss,
    predictive_entropy_terms,
)
from tests.helpers.small_data import reference

RELATIVE = 1e-5


def authors() -> tuple[Tensor, Tensor, dict[str, numpy.ndarray]]:
    stored = reference("losses")
    logits = torch.from_numpy(stored["logits"]).requires_grad_()
    return logits, torch.from_numpy(stored["labels"]), stored


def assert_close(ours: Tensor, theirs: numpy.ndarray) -> None:
    """Compare entry by entry; theirs is float32, so a millionth of the largest entry is noise."""
    noise = 1e-6 * numpy.abs(theirs).max()
    numpy.testing.assert_allclose(ours.detach(), theirs, rtol=RELATIVE, atol=noise)


def test_entropy_terms_match_the_authors() -> None:
    logits, labels, stored = authors()
    terms = predictive_entropy_terms(logits, labels)
    numpy.testing.assert_allclose(terms.detach(), stored["entropy_term"], rtol=RELATIVE)


@pytest.mark.parametrize("weight", [1, 50])
def test_total_loss_and_its_gradient_match_the_authors(weight: int) -> None:
    logits, labels, stored = authors()
    total = functional.cross_entropy(logits, labels, reduction="none")
    total = total + weight * predictive_entropy_terms(logits, labels)
    (gradient,) = torch.autograd.grad(total.sum(), logits)
    numpy.testing.assert_allclose(total.detach(), stored[f"total_lambda{weight}"], rtol=RELATIVE)
    assert_close(gradient, stored[f"total_lambda{weight}_grad_logits"])


def test_cross_entropy_matches_the_authors() -> None:
    logits, labels, stored = authors()
    loss = cross_entropy(logits, labels)
    (gradient,) = torch.autograd.grad(loss * len(labels), logits)
    assert loss.item() == pytest.approx(stored["ce"].mean(), rel=RELATIVE)
    assert_close(gradient, stored["ce_grad_logits"])


def test_calibration_loss_and_its_gradient_match_the_authors() -> None:
    logits, labels, stored = authors()
    loss = calibration_loss(logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(float(stored["advcalib_lambda1"]), rel=RELATIVE)
    assert_close(gradient, stored["advcalib_lambda1_grad_logits"])


def test_annealed_weights_match_the_authors_exactly() -> None:
    stored = reference("losses")
    entropy = [annealed(50.0, epoch, 20, 1.0) for epoch in range(1, 21)]
    calibration = [annealed(0.02, epoch, 20, 0.5) for epoch in range(1, 21)]
    for ours, theirs in ((entropy, "lambda50"), (calibration, "advlambda002")):
        # the authors' numbers were held in float32, where ours must be the same to the bit
        stored_weights = stored[f"annealing_epochs20_{theirs}"].astype(numpy.float32)
        numpy.testing.assert_array_equal(numpy.array(ours, dtype=numpy.float32), stored_weights)


def test_renormalised_entropy_loss_leaves_the_true_class_alone() -> None:
    logits, labels, _ = authors()
    (gradient,) = torch.autograd.grad(predictive_entropy_loss(logits, labels), logits)
    assert gradient[torch.arange(len(labels)), labels].abs().max() == 0


def test_literal_entropy_loss_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.3, 0.2]])
    loss = predictive_entropy_loss(probabilities.log(), torch.tensor([0]), "literal")
    assert loss.item() == pytest.approx(-(math.log(0.3) + math.log(0.2)) / 3, rel=1e-6)


def test_renormalised_entropy_loss_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.3, 0.2]])
    loss = predictive_entropy_loss(probabilities.log(), torch.tensor([0]))
    assert loss.item() == pytest.approx(-(math.log(0.6) + math.log(0.4)) / 2, rel=1e-6)


def test_literal_form_with_weight_50_would_give_up_the_true_class() -> None:
    """The reason for the default: the best answer is p_true = 1 / (1 + w (C - 1) / C)."""
    logits = torch.zeros(1, 10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")
    label = torch.tensor([0])

    def closure() -> float:
        optimizer.zero_grad()
        entropy = predictive_entropy_loss(logits, label, "literal")
        loss = functional.cross_entropy(logits, label) + 50 * entropy
        loss.backward()
        return loss.item()

    optimizer.step(closure)
    assert logits.softmax(1)[0, 0].item() == pytest.approx(1 / (1 + 50 * 9 / 10), rel=1e-3)


def test_entropy_loss_stays_finite_where_probabilities_vanish() -> None:
    logits = torch.tensor([[300.0, 0.0, -300.0]], requires_grad=True)
    loss = predictive_entropy_loss(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(150)
    assert torch.isfinite(gradient).all()


def test_calibration_root_form_is_the_root_of_twice_the_half_sum() -> None:
    logits, labels, _ = authors()
    half, root = calibration_loss(logits, labels), calibration_loss(logits, labels, form="root")
    assert root.item() == pytest.approx(math.sqrt(2 * half.item()), rel=1e-6)


def test_calibration_root_form_has_no_gradient_where_the_batch_is_calibrated() -> None:
    logits = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    loss = calibration_loss(logits, torch.tensor([0]), form="root")
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert gradient.abs().max() == 0


def test_calibration_gradient_flows_through_confidence_alone() -> None:
    logits = torch.tensor([[0.4, 0.0], [0.3, 0.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1])  # one hit, one miss in the bin (0.5, 0.6]: accuracy 1/2
    (gradient,) = torch.autograd.grad(calibration_loss(logits, labels), logits)
    confidence = logits.detach().softmax(1)[:, 0]
    by_hand = (confidence - 0.5) * confidence * (1 - confidence)
    torch.testing.assert_close(gradient[:, 0], by_hand)


def test_unknown_forms_are_refused() -> None:
    logits, labels, _ = authors()
    with pytest.raises(UserError, match="half_sum or root, got 'halfsum'"):
        calibration_loss(logits, labels, form="halfsum")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="renormalised or literal"):
        predictive_entropy_loss(logits, labels, "renormalized")  # type: ignore[arg-type]


def test_two_classes_leave_the_entropy_loss_nothing_to_spread() -> None:
    assert predictive_entropy_loss(torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1])).item() == 0


def test_l2_is_the_sum_of_squared_dense_weights() -> None:
    dense = nn.Linear(2, 1)
    with torch.no_grad():
        dense.weight.copy_(torch.tensor([[3.0, 4.0]]))
    assert l2_penalty(nn.Sequential(nn.Conv2d(1, 1, 1), dense)).item() == 25


def test_l2_without_dense_layers_is_refused() -> None:
    with pytest.raises(UserError, match=r"nn\.Linear"):
        l2_penalty(nn.Conv2d(1, 1, 1))


def random_batch(count: int = 50, classes: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits = 3 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=generator)
    return logits.requires_grad_(), labels


def same_with_gradient(ours: Tensor, theirs: Tensor, logits: Tensor) -> None:
    torch.testing.assert_close(ours, theirs)
    (mine,), (other,) = (
        torch.autograd.grad(loss, logits, retain_graph=True) for loss in (ours, theirs)
    )
    torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_spreads_a_share_of_the_label_over_all_classes(smoothing: float) -> None:
    logits, labels = random_batch()
    targets = (1 - smoothing) * functional.one_hot(labels, 6) + smoothing / 6  # (N, C)
    by_hand = -(targets * logits.log_softmax(1)).sum(1).mean()
    same_with_gradient(cross_entropy(logits, labels, smoothing), by_hand, logits)
    in_torch = functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    same_with_gradient(cross_entropy(logits, labels, smoothing), in_torch, logits)


def test_focal_loss_at_gamma_0_is_cross_entropy() -> None:
    logits, labels = random_batch()
    plain = functional.cross_entropy(logits, labels)
    same_with_gradient(focal_loss(logits, labels, 0.0), plain, logits)


def test_focal_loss_by_hand() -> None:
    """p = 0.75 and 0.25: the mean of 0.25^2 log(4/3) and 0.75^2 log 4."""
    logits = torch.tensor([[math.log(3.0), 0.0], [math.log(3.0), 0.0]], dtype=torch.float64)
    expected = (0.0625 * math.log(4 / 3) + 0.5625 * math.log(4)) / 2
    assert focal_loss(logits, torch.tensor([0, 1]), 2.0).item() == pytest.approx(expected)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_focal_loss_of_a_certain_answer_has_no_gradient_and_no_nan(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([0]), gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(1, 3))


def test_evidential_losses_by_hand() -> None:
    """alpha = (3, 1, 1), S = 5, p = (0.6, 0.2, 0.2)."""
    log_alpha = torch.tensor([[3.0, 1.0, 1.0]], dtype=torch.float64).log()
    right, wrong = torch.tensor([0]), torch.tensor([1])
    # squares 0.16 + 0.04 + 0.04, variances (0.24 + 0.16 + 0.16) / 6
    assert evidential_loss(log_alpha, right).item() == pytest.approx(0.24 + 0.56 / 6)
    # squares 0.36 + 0.64 + 0.04
    assert evidential_loss(log_alpha, wrong).item() == pytest.approx(1.04 + 0.56 / 6)
    assert evidential_loss(log_alpha, right, "log").item() == pytest.approx(math.log(5 / 3))
    assert evidential_loss(log_alpha, wrong, "log").item() == pytest.approx(math.log(5))
    # digamma(5) - digamma(3) = 1/3 + 1/4, digamma(5) - digamma(1) = 1 + 1/2 + 1/3 + 1/4
    digamma = [evidential_loss(log_alpha, label, "digamma").item() for label in (right, wrong)]
    assert digamma == pytest.approx([7 / 12, 25 / 12])


def test_evidential_losses_are_expectations_under_the_dirichlet() -> None:
    logits, labels = random_batch(1)
    alpha = logits[0].exp() + 0.5
    drawn = torch.distributions.Dirichlet(alpha.detach()).sample((400_000,))  # (draws, C)
    truth = functional.one_hot(labels[0], 6)
    squares = (truth - drawn).square().sum(1).mean().item()
    surprise = -drawn[:, labels[0]].log().mean().item()
    log_alpha = alpha.log()[None]
    assert evidential_loss(log_alpha, labels).item() == pytest.approx(squares, rel=0.01)
    assert evidential_loss(log_alpha, labels, "digamma").item() == pytest.approx(surprise, rel=0.01)


def test_misleading_evidence_is_the_divergence_of_two_dirichlets() -> None:
    logits, labels = random_batch()
    alpha = functional.relu(logits) + 1
    truth = functional.one_hot(labels, 6)
    wrong = torch.distributions.Dirichlet(truth + (1 - truth) * alpha)
    none = torch.distributions.Dirichlet(torch.ones_like(alpha))
    theirs = torch.distributions.kl_divergence(wrong, none).mean()
    same_with_gradient(misleading_evidence(alpha.log(), labels), theirs, logits)


def test_misleading_evidence_by_hand() -> None:
    """Label 0 and alpha (9, 2): Dir(1, 2) is 2 p_2, whose divergence is log 2 - 1/2."""
    log_alpha = torch.tensor([[9.0, 2.0]], dtype=torch.float64).log()
    divergence = misleading_evidence(log_alpha, torch.tensor([0])).item()
    assert divergence == pytest.approx(math.log(2) - 0.5)
    assert misleading_evidence(log_alpha[:, :1].expand(1, 2) * 0, torch.tensor([1])).item() == 0


def test_evidential_losses_are_computed_in_float32_at_least() -> None:
    log_alpha = torch.tensor([[5.0, 0.5, 0.0]])
    labels = torch.tensor([1])
    for loss in (evidential_loss, misleading_evidence):
        half = loss(log_alpha.bfloat16(), labels)
        assert half.dtype == torch.float32
        assert torch.equal(half, loss(log_alpha, labels))


def test_an_unknown_evidential_form_is_refused() -> None:
    with pytest.raises(UserError, match="squares or log or digamma, got 'cubes'"):
        evidential_loss(torch.zeros(1, 3), torch.tensor([0]), "cubes")  # type: ignore[arg-type]
