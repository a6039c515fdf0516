"""Ensembles: several members, each from its own first weights, whose probabilities are averaged.

Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
Deep Ensembles", NeurIPS 2017: members differ by first weights and by the order of the data, and are
trained adversarially. FALCON's ensemble has FALCON members and no adversarial training.
"""

import copy
from collections.abc import Callable, Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from falconcal.data import Batches
from falconcal.data.examples import mixed_seed
from falconcal.errors import UserError
from falconcal.method import Base, Method, innermost, seeded, structure_of
from falconcal.methods.adversarial import Adversarial
from falconcal.methods.falcon import Falcon
from falconcal.modes import seeded_random
from falconcal.registry import look_up
from falconcal.sampling import mean_probabilities
from falconcal.settings import Count, settings
from falconcal.training.preparing import check_given
from falconcal.trust import PERSON, CodeKind, check_takes, is_function


@settings
class Ensemble:
    """Fit members by a base method; the seed is that of the base, each member's derived of it."""

    base: Base = Adversarial()  # what trains a member
    size: Count = 5
    fresh: bool = True  # members start from weights of their own; False from those given
    factory: str | None = None  # package.module:name of what makes a network, called with nothing

    names_code: ClassVar = ("factory",)  # settings for which code must be trusted in a file

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        """Return the mixture of the members; the model itself is left as it was."""
        check_given(model, train, validation)
        members = [self._member(model, train, validation, number) for number in range(self.size)]
        return Mixture(members).eval()

    def structure(self, model: nn.Module) -> nn.Module:
        bases = [self._base(number) for number in range(self.size)]
        return Mixture(structure_of(base, copy.deepcopy(model)) for base in bases).eval()

    def _base(self, number: int) -> Method:
        """Return the base with the seed of a member, from which it may draw in use too."""
        return seeded(self.base, member_seed(self._seed(), number))

    def _seed(self) -> int:
        return getattr(innermost(self.base), "seed", 0)

    def _member(
        self, model: nn.Module, train: Batches, validation: Batches, number: int
    ) -> nn.Module:
        start = self._start(model, member_seed(self._seed(), number))
        return self._base(number).fit(start, reordered(train, number), validation)

    def _start(self, model: nn.Module, seed: int) -> nn.Module:
        """Return the network that a member begins as."""
        with seeded_random(seed):
            if self.factory is not None:
                return _made(self.factory, model)
            return fresh_copy(model) if self.fresh else copy.deepcopy(model)


@settings
class FalconEnsemble(Ensemble):
    """An ensemble of FALCON members."""

    base: Base = Falcon()


class Mixture(nn.Module):
    """Members side by side: inputs in, the log of their mean probabilities out."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        return mean_probabilities(torch.stack([member(inputs) for member in self.members]))


def member_seed(seed: int, number: int) -> int:
    """Return a member's seed, far from those that people choose: the model may be drawn by one."""
    return mixed_seed(seed + 1, number + 1) % 2**32


def reordered(train: Batches, number: int) -> Batches:
    """Return the batches in a member's own order, where they are shuffled by a seed of theirs."""
    if not hasattr(train, "seed"):
        return train  # a DataLoader's order comes from the member's random numbers
    other = copy.copy(train)
    other.seed = mixed_seed(train.seed, number)
    return other


def fresh_copy(model: nn.Module) -> nn.Module:
    """Return a copy whose weights are drawn anew, by the layers themselves; frozen ones stay."""
    fresh = copy.deepcopy(model)
    for name, layer in reversed(list(fresh.named_modules())):  # parts before the whole
        _reset(name, layer)
    with torch.no_grad():
        for (name, weight), given in zip(fresh.named_parameters(), model.parameters(), strict=True):
            if not weight.requires_grad:
                weight.copy_(given)
            elif torch.equal(weight, given) and not _constant(weight):
                raise UserError(f"{name} kept its values when its layer was reset: {ADVICE}.")
    return fresh


ADVICE = (
    "give the layer a reset_parameters() that draws them, or name a factory of fresh networks, "
    'factory="package.module:name"; fresh=False starts every member from the weights given'
)


def _reset(name: str, layer: nn.Module) -> None:
    own = list(layer.parameters(recurse=False))
    if own and not any(weight.requires_grad for weight in own):
        return  # frozen, with its statistics
    # attention has it by a private name
    reset = getattr(layer, "reset_parameters", getattr(layer, "_reset_parameters", None))
    if reset is not None:
        reset()
    elif own:
        raise UserError(
            f"members of an ensemble start from fresh weights, and {name or 'the model'}, a "
            f"{type(layer).__name__}, has weights but no reset_parameters(): {ADVICE}."
        )


def _constant(weight: Tensor) -> bool:
    """Say whether all values are one, as those that scale and shift begin."""
    return bool((weight == weight.flatten()[0]).all()) if weight.numel() else True


def _is_factory(thing: object) -> bool:
    return is_function(thing) or (isinstance(thing, type) and issubclass(thing, nn.Module))


KIND = CodeKind("factory", "a function that makes a torch.nn.Module", _is_factory)


def _made(factory: str, model: nn.Module) -> nn.Module:
    known: dict[str, Callable[[], object]] = {}  # none by a short name
    make = look_up(KIND, factory, known, PERSON)  # who made the method has named it
    check_takes(f"factory {factory}", make)
    made = make()
    if not isinstance(made, nn.Module) or _shapes(made) != _shapes(model):
        raise UserError(
            f"expected the factory {factory} to make a network with the weights of the model, by "
            f"name and shape, got {type(made).__name__}."
        )
    return made


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}
