"""Between a network's inputs and pixels from 0 to 1, in which shifts of images work."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from falconcal.core.batch import Batches
from falconcal.data import Bounds
from falconcal.data.preparation import Channels
from falconcal.errors import UserError

StatedRange = Annotated[tuple[float, float], Field(strict=False)] | Literal["data"] | None
StatedNormalisation = Annotated[tuple[Channels, Channels], Field(strict=False)]


@dataclass(frozen=True)
class UnitRange:
    """How inputs (N, C, H, W) become pixels from 0 to 1: (x - offset) / scale."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def to_unit(self, inputs: Tensor) -> Tensor:
        if self._is_unit:
            return inputs
        pixels = (inputs - self._shaped(self.offset, inputs)) / self._shaped(self.scale, inputs)
        return pixels.clamp(0, 1)

    def from_unit(self, pixels: Tensor) -> Tensor:
        if self._is_unit:
            return pixels
        return pixels * self._shaped(self.scale, pixels) + self._shaped(self.offset, pixels)

    @property
    def _is_unit(self) -> bool:
        return set(self.offset) == {0.0} and set(self.scale) == {1.0}

    @staticmethod
    def _shaped(values: tuple[float, ...], images: Tensor) -> Tensor:
        return torch.tensor(values).to(images).reshape(-1, 1, 1)  # (C, 1, 1)


def find_unit_range(
    batches: Batches, stated: StatedRange, normalisation: StatedNormalisation | None
) -> UnitRange:
    """Return how the images of a loader become pixels, as stated or as the data say.

    Raises:
        UserError: If nobody says so.
    """
    if normalisation is not None:
        mean, deviation = normalisation
        offset = tuple(-low / wide for low, wide in zip(mean, deviation, strict=True))
        return UnitRange(offset, tuple(1 / wide for wide in deviation))
    bounds = getattr(batches, "bounds", None) if stated == "data" else stated
    if isinstance(bounds, tuple):
        bounds = Bounds(*bounds)
    if bounds is None:
        raise UserError(
            "crafted shifts need the range of the inputs, and the data do not say it: give "
            "bounds=(0, 1), or normalisation=(means, deviations), per channel, of pixels that were "
            "normalised."
        )
    return UnitRange(*bounds.ends)
