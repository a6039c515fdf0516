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
from falconcal.data import Bounds, Dataset, Loader
from falconcal.errors import UserError
from falconcal.methods import METHODS
from falconcal.models.predict import predict
from tests.helpers.methods_by_kind import BASED, TRAINED, made
from tests.helpers.small_data import small_network

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
TAKES_IMAGES = {"augmix"}
CHECKED = [name for name in METHODS if name not in TAKES_IMAGES]

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
@pytest.mark.parametrize("name", CHECKED)
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


class OneLogit(nn.Module):
    """A network with one logit, as those of two classes often have."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last, self.flat = nn.Linear(FEATURES, 1), flat

    def forward(self, numbers: Tensor) -> Tensor:
        logit: Tensor = self.last(numbers)
        return logit[:, 0] if self.flat else logit


@pytest.mark.parametrize("flat", [True, False])
def test_a_single_logit_is_trained_as_binary_cross_entropy(flat: bool) -> None:
    numbers, labels = pairs(0)[0]
    labels = (labels > 0).long()
    model, expected = OneLogit(flat), OneLogit(flat)
    falconcal.L2Dropout(epochs=1).fit(
        model, [(numbers, labels)], optimizer=lambda weights: torch.optim.SGD(weights, lr=0.5)
    )
    loss = nn.functional.binary_cross_entropy_with_logits(
        expected.last(numbers)[:, 0], labels.float()
    )
    loss.backward()
    with torch.no_grad():
        for weight in expected.parameters():
            assert weight.grad is not None
            weight.sub_(0.5 * weight.grad)
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", [name for name in CHECKED if name not in TAKES_ONE_TENSOR])
def test_every_method_takes_a_single_logit(name: str) -> None:
    batches = [(numbers, (labels > 0).long()) for numbers, labels in pairs(0)]
    loader = Loader(batches, bounds=Bounds(0, 1))
    model = method_of(name)
    if name in ("mc_dropout", "svi", "mnf"):
        return  # they need layers that this network does not have
    found = predict(model.fit(OneLogit(flat=True), loader, loader), loader)
    assert found.log_probs.shape == (120, 2)
    torch.testing.assert_close(found.log_probs.exp().sum(1), torch.ones(120).double())


class NamedImages(nn.Module):
    """A network of images that takes them by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_network()

    def forward(self, images: Tensor) -> Any:
        return {"logits": self.body(images)}


def test_augmix_takes_images_by_name(tiny: Dataset) -> None:
    method = falconcal.AugMix(epochs=1, bounds=Bounds(0, 1))
    batches = list(tiny.train.batches(30))
    plain_model = method.fit(small_network(), batches, batches)
    named = [{"images": inputs, "labels": labels} for inputs, labels in batches]
    model = method.fit(NamedImages(), named, named)
    for one, other in zip(plain_model.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_with_two_classes_falcons_entropy_term_is_not_0() -> None:
    """The literal form stands in, at a weight of at most 0.4, by hand: 0.4 * -log(p_wrong) / 2."""
    from falconcal.methods.falcon import clean_falcon_terms
    from falconcal.training import Step

    model = nn.Linear(2, 2)
    inputs, labels = torch.rand(5, 2), torch.tensor([0, 1, 0, 1, 1])
    step = Step(model, inputs, labels, 20, 20, torch.Generator())
    terms = clean_falcon_terms(falconcal.Falcon(entropy_weight=50.0), step)
    wrong = model(inputs).log_softmax(1).gather(1, 1 - labels[:, None])
    torch.testing.assert_close(terms["entropy"], -0.4 * wrong.mean() / 2)
    small = clean_falcon_terms(falconcal.Falcon(entropy_weight=0.05), step)
    torch.testing.assert_close(small["entropy"], -0.05 * wrong.mean() / 2)
