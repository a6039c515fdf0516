"""The losses against the authors' code, closed forms and autograd."""

import math

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.errors import UserError
from falconcal.losses import (
    calibration_loss,
    cross_entropy,
    l2_penalty,
    predictive_entropy_loss,
    predictive_entropy_terms,
)
from falconcal.training import annealed
from tests.conftest import reference

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
