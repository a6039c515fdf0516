"""A shift: one family of perturbations at increasing strengths; level 0 changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from falconcal.core.array_conversion import ArrayLike, as_tensor
from falconcal.core.model_inputs import BoundModel, Inputs, main_of
from falconcal.data import Bounds, Part, Texts
from falconcal.errors import UserError, described
from falconcal.shifts.keyed_noise import KeyedNoise

InputKind = Literal["numbers", "tokens"]


class ShiftContext(TypedDict, total=False):
    """What a shift may need besides the inputs of a batch."""

    model: nn.Module | None
    labels: Tensor | None  # (N,)
    bounds: Bounds | None
    tokens: int | None  # the number of different ones
    texts: Texts | None  # of the batch
    others: Tensor | Callable[[], Tensor] | None  # (M, ...) the first examples of the data


WORDS = {
    "model": "the model",
    "labels": "the labels",
    "tokens": "the number of different tokens",
    "texts": "the raw text of the examples with its encoder",
    "others": "other examples to mix with",
}
RANGE_ADVICE = "this shift is made for images in that range, so scale the data to it"
OPTIONAL = ("bounds",)  # without them nothing is clipped
OTHERS = 100  # examples that another one is mixed with


@dataclass(frozen=True)
class Shift:
    """A named perturbation at increasing strengths; level 0 changes nothing.

    Two shifts compose with ``|``: ``SHIFTS["shear"] | SHIFTS["contrast"]``.

    Args:
        name: Its name, which also seeds its noise.
        strengths: One number per level; the first stands for the clean data.
        apply: Called as ``apply(inputs, strength, noise, **context)``, where ``noise`` is a
            ``KeyedNoise`` and ``context`` holds what the shift ``needs``; returns inputs of the
            same shape.
        summary: One line for ``falconcal list shifts``.
        takes: Whether it is made for numbers or for tokens.
        needs: Names of what ``apply`` needs by keyword: model, labels, bounds, tokens, texts or
            others.
        graded: Whether strengths between those of the levels make sense too.
        kin: Families that it resembles: what is fitted on one of them has seen something of it.

    Example:
        >>> import torch
        >>> from falconcal import Shift
        >>> darker = Shift("darker", (1.0, 0.5, 0.1), lambda inputs, kept, noise: kept * inputs)
        >>> darker.at(torch.ones(1, 3), 1)
        tensor([[0.5000, 0.5000, 0.5000]])
        >>> list(darker.levels)
        [0, 1, 2]
    """

    name: str
    strengths: tuple[float, ...]
    apply: Callable[..., Tensor]
    summary: str = ""
    takes: InputKind = "numbers"
    needs: tuple[str, ...] = ()
    graded: bool = True
    kin: tuple[str, ...] = ()

    @property
    def levels(self) -> range:
        """The levels, from 0."""
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
        """Return a batch at a level.

        Noise depends on seed, example and level alone, so the result has the same bits however
        the data is cut into batches.

        Args:
            inputs: The clean batch, (N, ...).
            level: 0 returns the batch as it is.
            seed: The seed of the noise.
            examples: The numbers of the examples in the data, (N,); from 0 by default.
            **context: What the shift needs besides: model, labels, bounds, tokens, texts. Others
                are ignored.

        Returns:
            The shifted batch, (N, ...).

        Raises:
            UserError: There is no such level, the inputs are of another kind, or something that
                the shift needs is missing.
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
        """Return one shift that applies both in turn, for the levels that both have.

        Each has the noise that it has by itself: ``(a | b).at(x, 3)`` is ``b.at(a.at(x, 3), 3)``.
        """
        if not isinstance(other, Shift):
            raise UserError(f"expected a shift on either side of |, got {described(other)}.")
        if self.takes != other.takes:
            raise UserError(
                f"expected two shifts of the same kind of inputs, got {self.name} for {self.takes} "
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
                f"{self.name} expects tokens, whole numbers (N, length), got {inputs.dtype} "
                f"of shape {tuple(inputs.shape)}: choose a shift for such inputs."
            )
        if self.takes == "numbers" and not inputs.is_floating_point():
            raise UserError(
                f"expected floating-point inputs to shift, got {inputs.dtype}: convert images, for "
                "example with inputs.float() / 255; for tokens, choose a word shift."
            )

    def _needed(self, context: dict[str, object]) -> dict[str, object]:
        """Return the context that the shift needs; what is missing is named in the error."""
        for name in self.needs:
            if name not in OPTIONAL and context.get(name) is None:
                raise UserError(
                    f"{self.name} needs {WORDS.get(name, name)}, got none: evaluate on data that "
                    f"has it, or pass {name}= to Shift.at."
                )
        return {name: context.get(name) for name in self.needs}


def shift_context(
    data: Part, first: int, labels: Tensor, model: nn.Module | None = None
) -> ShiftContext:
    """Return what shifts may need of one batch of the data, to be passed to ``Shift.at``.

    Args:
        data: The part that the batch is from.
        first: The number of the batch's first example in the data.
        labels: The labels of the batch, (N,).
        model: The model that is evaluated, for shifts that follow its gradient.

    Returns:
        The context by name.

    Example:
        >>> import falconcal
        >>> from falconcal.shifts import shift_context
        >>> part = falconcal.load_dataset("digits").test
        >>> shift_context(part, 0, part.labels[:10])["bounds"]
        Bounds(low=0.0, high=1.0)
    """
    texts = data.texts.part(first, len(labels)) if data.texts is not None else None
    return ShiftContext(
        model=model,
        labels=labels,
        bounds=data.bounds,
        tokens=data.tokens,
        texts=texts,
        others=partial(_first_inputs, data),
    )


def shift_inputs(
    shift: Shift,
    inputs: Inputs,
    level: int,
    *,
    seed: int = 0,
    examples: Tensor | None = None,
    **context: Unpack[ShiftContext],
) -> Inputs:
    """Return inputs at a level: of several the main one is shifted, but for masked places.

    Args:
        shift: The shift.
        inputs: One tensor, (N, ...), or several.
        level: 0 returns them as they are.
        seed: The seed of the noise.
        examples: The numbers of the examples in the data, (N,); from 0 by default.
        **context: What the shift needs besides, as in ``Shift.at``.

    Returns:
        The shifted inputs.

    Example:
        >>> import torch
        >>> from falconcal import SHIFTS
        >>> from falconcal.shifts import shift_inputs
        >>> torch.equal(shift_inputs(SHIFTS["gain"], torch.ones(2, 3), 0), torch.ones(2, 3))
        True
    """
    if isinstance(inputs, Tensor):
        return shift.at(inputs, level, seed=seed, examples=examples, **context)
    model = context.get("model")
    if model is not None:
        context["model"] = BoundModel(model, inputs)
    return inputs.with_main(shift.at(inputs.main, level, seed=seed, examples=examples, **context))


def _first_inputs(data: Part) -> Tensor:
    return main_of(data.head(OTHERS).inputs)  # (M, ...)


def _composed(
    shifts: tuple[Shift, Shift], inputs: Tensor, level: float, noise: KeyedNoise, **context: object
) -> Tensor:
    for shift in shifts:
        own_noise, own_context = replace(noise, name=shift.name), shift._needed(context)
        inputs = shift.apply(inputs, shift.strengths[int(level)], own_noise, **own_context)
    return inputs
