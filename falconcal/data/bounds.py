"""The range that input values can take."""

import math
from dataclasses import dataclass
from numbers import Real

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
