"""Ensembles: several members, each from its own first weights, whose probabilities are averaged.

Lakshminarayanan, Pritzel & Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
Deep Ensembles", NeurIPS 2017: p(y|x) = 1/M sum_m p_m(y|x); members differ by first weights and by
the order of the data, and are trained adversarially. FALCON's ensemble, ``falcon_ensemble`` in the
table of methods, has FALCON members and no adversarial training. Members may also be models that
are trained already: in a study, those of several seeds of another method.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from falconcal.core.method import Base, Method, build_untrained, innermost_method, with_seed
from falconcal.core.model_inputs import call_model, packed
from falconcal.core.module_state import without_wrapper
from falconcal.core.randomness import combined_seed, seeded_random
from falconcal.core.registry import look_up
from falconcal.core.settings import Count, settings
from falconcal.core.trust import PERSON, CodeKind, check_takes, is_function
from falconcal.data import Batches
from falconcal.errors import UserError
from falconcal.methods.adversarial import Adversarial
from falconcal.models.sampling import mean_probabilities
from falconcal.training.context import check_given


@settings
class Ensemble:
    """Train several members by a base method and average their probabilities.

    Needs layers that can draw fresh weights (``reset_parameters``), or a ``factory``, unless
    ``fresh`` is off. Training and prediction cost ``size`` times those of the base. The seed is the
    base's; each member has one derived from it. The model that is given stays as it was.

    Raises:
        UserError: If a layer's weights cannot be drawn anew, or the factory makes another network.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.Ensemble(base=falconcal.L2Dropout(epochs=2), size=2)
        >>> model = method.fit(model, data.train.batches(50), data.validation.batches())
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    base: Base = Adversarial()
    """The method that trains a member."""
    size: Count = 5
    """Number M of members."""
    fresh: bool = True
    """Whether members start from weights of their own; False starts all from those given."""
    factory: str | None = None
    """What makes a fresh network, ``package.module:name``; None draws the layers' weights anew."""

    members: Literal["trained", "finished"] = "trained"
    """Where members come from: ``trained`` here; ``finished`` are the models of a study's own runs
    of the base, of the seeds 0 to ``size`` - 1 for seed 0, the next ``size`` for seed 1 and so on,
    and nothing is trained."""

    names_code: ClassVar = ("factory",)  # settings that name code, which a file must be trusted for

    def fit(
        self,
        model: nn.Module,
        train: Batches,
        validation: Batches | None = None,
        **options: Any,
    ) -> nn.Module:
        """Train the members and return them as one module.

        Args:
            model: The network that members are copies of; it is not changed.
            train: Batches of (inputs, labels); each member has its own order.
            validation: Batches that each member is given.
            **options: What ``fit`` of the base takes besides, for each member.

        Returns:
            A module that gives the log of the members' mean probabilities.

        Raises:
            UserError: If members are to be finished models; a study has them, or ``join``.
        """
        check_given(model, train, validation)
        if self.members == "finished":
            raise UserError(
                'members = "finished" takes models that are trained already, the runs of a study: '
                "run the study with the base and as many seeds, or give models to join()."
            )
        fit = partial(self._member, without_wrapper(model), train, validation, options)
        members = [fit(number) for number in range(self.size)]
        return EnsembleModel(members).eval()

    def join(self, models: Iterable[nn.Module]) -> nn.Module:
        """Return models that are trained already as one module; nothing is trained.

        Args:
            models: As many as ``size`` says, each with logits out.

        Returns:
            A module that gives the log of the models' mean probabilities.

        Raises:
            UserError: If their number is another.

        Example:
            >>> import falconcal, torch
            >>> models = [torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)]
            >>> falconcal.Ensemble(size=2).join(models)(torch.zeros(1, 2)).shape
            torch.Size([1, 3])
        """
        joined = list(models)
        if len(joined) != self.size:
            raise UserError(f"expected {self.size} models, as size says, got {len(joined)}.")
        return EnsembleModel(joined).eval()

    def finished_seeds(self, seed: int) -> range:
        """Return the seeds of the finished models that an ensemble of a seed has."""
        return range(seed * self.size, (seed + 1) * self.size)

    def build(self, model: nn.Module) -> nn.Module:
        bases = [self._base(number) for number in range(self.size)]
        return EnsembleModel(build_untrained(base, copy.deepcopy(model)) for base in bases).eval()

    def _base(self, number: int) -> Method:
        """Return the base with the seed of a member, from which it may draw in prediction too."""
        seed = self._seed()
        finished = self.members == "finished"
        own = self.finished_seeds(seed)[number] if finished else member_seed(seed, number)
        return with_seed(self.base, own)

    def _seed(self) -> int:
        return getattr(innermost_method(self.base), "seed", 0)

    def _member(
        self,
        model: nn.Module,
        train: Batches,
        validation: Batches | None,
        options: Mapping[str, Any],
        number: int,
    ) -> nn.Module:
        start = self._start(model, member_seed(self._seed(), number))
        base: Any = self._base(number)  # a method of the user's own need not take options
        fitted: nn.Module = base.fit(start, reordered(train, number), validation, **options)
        return fitted

    def _start(self, model: nn.Module, seed: int) -> nn.Module:
        """Return the network that a member's training starts from."""
        with seeded_random(seed):
            if self.factory is not None:
                return _made_by(self.factory, model)
            return fresh_copy(model) if self.fresh else copy.deepcopy(model)


class EnsembleModel(nn.Module):
    """Members as one module: inputs in, the log of their mean probabilities out."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        given = packed(inputs, named)
        logits = [call_model(member, given) for member in self.members]
        return mean_probabilities(torch.stack(logits))


def member_seed(seed: int, number: int) -> int:
    """Return a member's seed, far from those that people choose: one may have made the model."""
    return combined_seed(seed + 1, number + 1) % 2**32


def reordered(train: Batches, number: int) -> Batches:
    """Return the batches in a member's own order, if they are shuffled by a seed."""
    if not hasattr(train, "seed"):
        return train  # a DataLoader's order comes from the member's random numbers
    other = copy.copy(train)
    other.seed = combined_seed(train.seed, number)
    return other


def fresh_copy(model: nn.Module) -> nn.Module:
    """Return a copy whose weights the layers have drawn anew; frozen weights stay."""
    fresh = copy.deepcopy(model)
    for name, layer in reversed(list(fresh.named_modules())):  # submodules before the whole
        _reset(name, layer)
    with torch.no_grad():
        for (name, weight), given in zip(fresh.named_parameters(), model.parameters(), strict=True):
            if not weight.requires_grad:
                weight.copy_(given)
            elif torch.equal(weight, given) and not _constant(weight):
                raise UserError(f"{name} kept its values when its layer was reset: {RESET_ADVICE}.")
    return fresh


RESET_ADVICE = (
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
            f"members of an ensemble start from fresh weights, but {name or 'the model'}, a "
            f"{type(layer).__name__}, has weights but no reset_parameters(): {RESET_ADVICE}."
        )


def _constant(weight: Tensor) -> bool:
    """Return whether all values are equal, as those of scale and shift are at first."""
    return bool((weight == weight.flatten()[0]).all()) if weight.numel() else True


def _is_factory(thing: object) -> bool:
    return is_function(thing) or (isinstance(thing, type) and issubclass(thing, nn.Module))


FACTORY_KIND = CodeKind("factory", "a function that makes a torch.nn.Module", _is_factory)


def _made_by(factory: str, model: nn.Module) -> nn.Module:
    known: dict[str, Callable[[], object]] = {}  # no short names
    make = look_up(FACTORY_KIND, factory, known, PERSON)  # named by the caller
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
