"""What a shift is: a ladder of perturbations whose level 0 is the identity."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.noise import Noise


@dataclass(frozen=True)
class Shift:
    """A named perturbation at increasing strengths; ``strengths[0]`` changes nothing."""

    name: str
    strengths: tuple[float, ...]
    apply: Callable[[Tensor, float, Noise], Tensor]
    summary: str = ""

    @property
    def levels(self) -> range:
        return range(len(self.strengths))

    def at(
        self, inputs: Tensor, level: int, *, seed: int = 0, examples: Tensor | None = None
    ) -> Tensor:
        """Return the batch at a level: (N, ...) -> (N, ...).

        ``examples`` (N,) numbers the examples, from 0 by default. Noise depends on seed, example
        and level alone, so however the data is cut into batches, the bits are the same.
        """
        if level not in self.levels:
            raise UserError(f"{self.name} has levels 0 to {len(self.strengths) - 1}, got {level}.")
        if not inputs.is_floating_point():
            raise UserError(
                f"expected floating-point inputs to shift, got {inputs.dtype}: convert them, for "
                "example with inputs.float() / 255."
            )
        if level == 0:
            return inputs
        if examples is None:
            examples = torch.arange(len(inputs))
        noise = Noise(self.name, seed, level, examples.to(inputs.device))
        return self.apply(inputs.detach(), self.strengths[level], noise)

    def __or__(self, other: "Shift") -> "Shift":
        """Return both in a row, level by level, as far as both have levels.

        The noise of each is what it is alone: ``(a | b).at(x, 3)`` is ``b.at(a.at(x, 3), 3)``.
        """
        levels = min(len(self.strengths), len(other.strengths))
        return Shift(
            f"{self.name} | {other.name}",
            tuple(float(level) for level in range(levels)),
            partial(_in_a_row, (self, other)),
            f"{self.summary}; then {other.summary}",
        )


def _in_a_row(shifts: tuple[Shift, Shift], inputs: Tensor, level: float, noise: Noise) -> Tensor:
    for shift in shifts:
        own_noise = replace(noise, name=shift.name)
        inputs = shift.apply(inputs, shift.strengths[int(level)], own_noise)
    return inputs
