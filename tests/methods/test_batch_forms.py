"""Every method takes every form of batch and output, with the bits of the plain ones."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import falconcal
from falconcal.core.method import Method
from falconcal.data import Bounds, Loader
from falconcal.errors import UserError
from falconcal.methods import METHODS
from falconcal.models.predict import predict
from tests.methods.test_methods import BASED, TRAINED, made

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning"),
]
FEATURES = 6
QUICK = {"epochs": 2, "learning_rate": 0.02}
# its draws take one pass each where an input joins after the noise, and a pass rounds otherwise
SHARES_NOISE = {"mnf"}
TAKES_ONE_TENSOR = {"joint_gan"}  # a generator makes one tensor

OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda logits: logits,
    "tuple": lambda logits: (logits, "more"),
    "mapping": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: SimpleNamespace(logits=logits, hidden_states=None),
}


class Network(nn.Module):
    """A network of one or two inputs that gives its logits in any form."""

    def __init__(self, output: str = "tensor") -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)
        )
        self.output = output

    def forward(self, numbers: Tensor, kind: Tensor | None = None) -> Any:
        logits = self.body(numbers)
        if kind is not None:
            logits = logits + kind[:, None]
        return OUTPUTS[self.output](logits)


def network(output: str = "tensor") -> Network:
    torch.manual_seed(0)
    return Network(output)


@cache
def pairs(seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(3):
        numbers = torch.rand(40, FEATURES, generator=generator)
        noise = 0.1 * torch.randn(40, generator=generator)
        batches.append((numbers, (3 * (numbers[:, 0] + noise)).long().clamp(0, 2)))
    return tuple(batches)


def _kind(numbers: Tensor) -> Tensor:
    return torch.zeros(len(numbers), dtype=torch.long)


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pair": lambda x, y: (x, y),
    "flat": lambda x, y: (x, _kind(x), y),
    "nested": lambda x, y: ((x, _kind(x)), y),
    "mapping": lambda x, y: {"numbers": x, "kind": _kind(x), "labels": y},
    "mapping_and_labels": lambda x, y: ({"numbers": x, "kind": _kind(x)}, y),
    "other_key": lambda x, y: {"target": y, "kind": _kind(x), "numbers": x},
}


def loader(form: str, seed: int) -> Loader:
    batches = [FORMS[form](*pair) for pair in pairs(seed)]
    key = "target" if form == "other_key" else "labels"
    return Loader(batches, labels=key, bounds=Bounds(0, 1), classes=("a", "b", "c"))


def method_of(name: str) -> Method:
    settings = {"check_families": False} if name == "shift_temperature" else {}
    if name in TRAINED or name in BASED:
        return made(name, **QUICK)
    return METHODS[name](**settings)


def fitted(name: str, form: str, output: str) -> Tensor:
    model = method_of(name).fit(network(output), loader(form, 0), loader(form, 1))
    return predict(model, loader(form, 2)).log_probs


@cache
def plain(name: str) -> Tensor:
    return fitted(name, "pair", "tensor")


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", METHODS)
def test_it_gives_the_bits_of_plain_batches(name: str, form: str, output: str) -> None:
    if name in TAKES_ONE_TENSOR and form != "pair":
        with pytest.raises(UserError, match="does not take such batches"):
            fitted(name, form, output)
        return
    if name in SHARES_NOISE:
        torch.testing.assert_close(fitted(name, form, output), plain(name), rtol=0, atol=1e-6)
    else:
        assert torch.equal(fitted(name, form, output), plain(name))


@pytest.mark.parametrize("form", FORMS)
def test_evaluation_takes_every_form(form: str) -> None:
    model = network("mapping").eval()
    shifts = [falconcal.SHIFTS["gain"], falconcal.SHIFTS["fgsm"]]
    rows = falconcal.evaluate(model, loader(form, 2), shifts)
    expected = falconcal.evaluate(network().eval(), loader("pair", 2), shifts)
    assert rows.equals(expected)
