"""What a shift is: a ladder of perturbations whose level 0 is the identity."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.data import Bounds, Part, Texts
from falconcal.errors import UserError, described
from falconcal.shifts.keyed_noise import KeyedNoise

InputKind = Literal["numbers", "tokens"]


class ShiftContext(TypedDict, total=False):
    """What a shift may ask for beside the inputs of a batch; bounds may be none."""

    model: nn.Module | None
    labels: Tensor | None  # (N,)
    bounds: Bounds | None
    tokens: int | None  # how many there are
    texts: Texts | None  # of the batch
    others: Tensor | Callable[[], Tensor] | None  # (M, ...) the first examples of the data


WORDS = {
    "model": "the model",
    "labels": "the labels",
    "tokens": "the number of different tokens",
    "texts": "the raw text of the examples with its encoder",
    "others": "other examples to mix with",
}
OPTIONAL = ("bounds",)  # without them no clip
OTHERS = 100  # examples that another one is mixed with


@dataclass(frozen=True)
class Shift:
    """A named perturbation at increasing strengths; ``strengths[0]`` changes nothing.

    ``apply(inputs, strength, noise)`` also gets, by name, the context that it ``needs``.
    """

    name: str
    strengths: tuple[float, ...]
    apply: Callable[..., Tensor]
    summary: str = ""
    takes: InputKind = "numbers"
    needs: tuple[str, ...] = ()
    graded: bool = True  # whether strengths between those of the levels make sense too
    kin: tuple[str, ...] = ()  # families that it resembles; what is fitted on one knows the other

    @property
    def levels(self) -> range:
        return range(len(self.strengths))

    def at(
        self,
        inputs: ArrayLike,
        level: int,
        *,
        seed: int = 0,
        examples: ArrayLike | None = None,
        **context: Unpack[ShiftContext],
    ) -> Tensor:
        """Return the batch at a level: (N, ...) -> (N, ...).

        ``examples`` (N,) numbers the examples, from 0 by default. Noise depends on seed, example
        and level alone, so however the data is cut into batches, the bits are the same. ``context``
        are what some shifts need beside: model, labels, bounds, tokens, texts; the others take no
        notice of them.
        """
        if level not in self.levels:
            raise UserError(f"{self.name} has levels 0 to {len(self.strengths) - 1}, got {level}.")
        inputs = as_tensor(inputs, "inputs")
        self._check(inputs)
        if level == 0:
            return inputs
        if examples is None:
            examples = torch.arange(len(inputs))
        examples = as_tensor(examples, "numbers of examples")
        noise = KeyedNoise(self.name, seed, level, examples.to(inputs.device))
        return self.apply(
            inputs.detach(), self.strengths[level], noise, **self._needed(dict(context))
        )

    def __or__(self, other: "Shift") -> "Shift":
        """Return both in a row, level by level, as far as both have levels.

        The noise of each is what it is alone: ``(a | b).at(x, 3)`` is ``b.at(a.at(x, 3), 3)``.
        """
        if not isinstance(other, Shift):
            raise UserError(f"expected two shifts in a row, got {described(other)} for one.")
        if self.takes != other.takes:
            raise UserError(
                f"expected shifts of one kind of inputs in a row, got {self.name} for {self.takes} "
                f"and {other.name} for {other.takes}."
            )
        levels = min(len(self.strengths), len(other.strengths))
        return Shift(
            f"{self.name} | {other.name}",
            tuple(float(level) for level in range(levels)),
            partial(_composed, (self, other)),
            f"{self.summary}; then {other.summary}",
            self.takes,
            tuple(dict.fromkeys(self.needs + other.needs)),
            graded=False,
            kin=tuple(dict.fromkeys((self.name, other.name, *self.kin, *other.kin))),
        )

    def _check(self, inputs: Tensor) -> None:
        if self.takes == "tokens" and (inputs.is_floating_point() or inputs.ndim != 2):
            raise UserError(
                f"{self.name} is made for tokens, whole numbers (N, length), got {inputs.dtype} "
                f"of shape {tuple(inputs.shape)}: choose a shift that is made for such inputs."
            )
        if self.takes == "numbers" and not inputs.is_floating_point():
            raise UserError(
                f"expected floating-point inputs to shift, got {inputs.dtype}: convert images, for "
                "example with inputs.float() / 255; for tokens there are word shifts."
            )

    def _needed(self, context: dict[str, object]) -> dict[str, object]:
        """Return the context that the shift asks for; one that is lacking is named."""
        for name in self.needs:
            if name not in OPTIONAL and context.get(name) is None:
                raise UserError(
                    f"{self.name} needs {WORDS.get(name, name)}, got none: evaluate on data that "
                    f"has it, or give it as {name}= to Shift.at."
                )
        return {name: context.get(name) for name in self.needs}


def shift_context(
    data: Part, first: int, labels: Tensor, model: nn.Module | None = None
) -> ShiftContext:
    """Return what shifts may ask for of a batch of the data, labels (N,), that begins at first."""
    texts = data.texts.part(first, len(labels)) if data.texts is not None else None
    return ShiftContext(
        model=model,
        labels=labels,
        bounds=data.bounds,
        tokens=data.tokens,
        texts=texts,
        others=partial(_first_inputs, data),
    )


def _first_inputs(data: Part) -> Tensor:
    return data.first(OTHERS).inputs  # (M, ...)


def _composed(
    shifts: tuple[Shift, Shift], inputs: Tensor, level: float, noise: KeyedNoise, **context: object
) -> Tensor:
    for shift in shifts:
        own_noise, own_facts = replace(noise, name=shift.name), shift._needed(context)
        inputs = shift.apply(inputs, shift.strengths[int(level)], own_noise, **own_facts)
    return inputs
