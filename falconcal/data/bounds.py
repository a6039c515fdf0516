"""The range that input values can take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from falconcal.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """The range that input values can take: a property of the data, not of a method.

    FALCON and FGSM perturb inputs by a fraction of the range and clip them to it.

    Args:
        low: The lowest value.
        high: The highest value.

    Raises:
        UserError: ``low`` is not below ``high``, or one of them is not finite.

    Example:
        >>> import torch
        >>> from falconcal import Bounds
        >>> bounds = Bounds(0.0, 255.0)
        >>> bounds.range
        255.0
        >>> bounds.clip(torch.tensor([-3.0, 300.0])).tolist()
        [0.0, 255.0]
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        both = (self.low, self.high)
        if not all(isinstance(end, Real) for end in both):
            raise UserError(f"expected bounds that are numbers, got {both}.")
        if not -math.inf < self.low < self.high < math.inf:
            raise UserError(
                f"expected finite bounds, low below high, got {self.low} and {self.high}."
            )

    @property
    def range(self) -> float:
        """The distance from the lowest value to the highest."""
        return self.high - self.low

    def range_like(self, inputs: Tensor) -> "float | Tensor":
        """Return the range as it multiplies such inputs."""
        del inputs
        return self.range

    @property
    def ends(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lowest values and the ranges, one for all channels."""
        return (self.low,), (self.range,)

    def clip(self, inputs: Tensor) -> Tensor:
        """Return the inputs with values outside moved to the nearest end."""
        return inputs.clamp(self.low, self.high)

    def check(
        self, inputs: Tensor, advice: str = "state the bounds that the data has, or scale the data"
    ) -> None:
        """Refuse inputs that lie outside by more than rounding."""
        low, high = (float(end) for end in inputs.aminmax())
        slack = 1e-4 * self.range
        if low < self.low - slack or high > self.high + slack:
            raise UserError(
                f"expected inputs from {self.low:g} to {self.high:g}, got {low:g} to {high:g}: "
                f"{advice}."
            )


@dataclass(frozen=True, init=False)
class ChannelBounds(Bounds):
    """A range of its own for each channel, as normalised images have.

    Channels are the second axis of images (N, channels, height, width), and the last of tables and
    signals. Its ``low`` and ``high`` are those of all channels together.

    Args:
        lows: The lowest value of each channel.
        highs: The highest value of each channel.

    Raises:
        UserError: They are not equally many, or a low is not below its high.

    Example:
        >>> from falconcal.data import ChannelBounds
        >>> bounds = ChannelBounds.normalised(mean=(0.5, 0.25), deviation=(0.25, 0.25))
        >>> bounds.lows, bounds.highs
        ((-2.0, -1.0), (2.0, 3.0))
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def __init__(self, lows: Sequence[float], highs: Sequence[float]) -> None:
        each = [Bounds(low, high) for low, high in self._pairs(lows, highs)]
        object.__setattr__(self, "lows", tuple(one.low for one in each))
        object.__setattr__(self, "highs", tuple(one.high for one in each))
        object.__setattr__(self, "low", min(self.lows))
        object.__setattr__(self, "high", max(self.highs))

    @staticmethod
    def _pairs(lows: Sequence[float], highs: Sequence[float]) -> list[tuple[float, float]]:
        if len(lows) != len(highs) or len(lows) == 0:
            raise UserError(
                f"expected one low and one high per channel, got {len(lows)} and {len(highs)}."
            )
        return list(zip(lows, highs, strict=True))

    @classmethod
    def normalised(cls, mean: Sequence[float], deviation: Sequence[float]) -> "ChannelBounds":
        """Return the range of pixels from 0 to 1 after (x - mean) / deviation, per channel.

        Args:
            mean: What is subtracted from each channel.
            deviation: What each channel is divided by after that.

        Returns:
            The bounds.
        """
        both = cls._pairs(mean, deviation)
        return cls([-low / wide for low, wide in both], [(1 - low) / wide for low, wide in both])

    def range_like(self, inputs: Tensor) -> Tensor:
        return self._shaped(self.ends[1], inputs)

    @property
    def ends(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lowest value and the range of each channel."""
        wide = tuple(high - low for low, high in zip(self.lows, self.highs, strict=True))
        return self.lows, wide

    def clip(self, inputs: Tensor) -> Tensor:
        low, high = self._shaped(self.lows, inputs), self._shaped(self.highs, inputs)
        return inputs.clamp(low, high)

    def check(
        self, inputs: Tensor, advice: str = "state the bounds that the data has, or scale the data"
    ) -> None:
        low, wide = self._shaped(self.lows, inputs), self._shaped(self.ends[1], inputs)
        Bounds(0.0, 1.0).check((inputs - low) / wide, f"as parts of each channel's range; {advice}")

    @staticmethod
    def _shaped(values: tuple[float, ...], inputs: Tensor) -> Tensor:
        image = inputs.ndim == 4
        channels = inputs.shape[1 if image else -1]
        if channels != len(values):
            raise UserError(
                f"expected inputs of {len(values)} channels, as the bounds have, got {channels} in "
                f"shape {tuple(inputs.shape)}."
            )
        shaped = torch.tensor(values).to(inputs)
        return shaped[:, None, None] if image else shaped
