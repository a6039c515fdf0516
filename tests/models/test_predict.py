"""What ``predict`` says of outputs that cannot be what was meant."""

import warnings

import pytest
import torch
from torch import nn

import falconcal
from falconcal.errors import CalibrationWarning

DATA = [(torch.rand(20, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3)]


def test_outputs_of_a_softmax_are_noticed() -> None:
    with pytest.warns(CalibrationWarning, match=r"probabilities.* leave out its last softmax"):
        falconcal.predict(nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)), DATA)


@pytest.mark.parametrize("last", [nn.Identity(), nn.LogSoftmax(1), nn.ReLU(), nn.Sigmoid()])
def test_logits_of_other_kinds_pass_without_a_word(last: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        falconcal.predict(nn.Sequential(nn.Linear(6, 3), last), DATA)


def test_logarithms_of_probabilities_give_these_probabilities() -> None:
    body = nn.Linear(6, 3)
    logs = falconcal.predict(nn.Sequential(body, nn.LogSoftmax(1)), DATA)
    torch.testing.assert_close(logs.probs, falconcal.predict(body, DATA).probs)
