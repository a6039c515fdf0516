"""What a network does with images first: a fact of the data that becomes a layer of the network.

So the data stays in pixels from 0 to 1: shifts act on the whole image, and FGSM's epsilon, the
bounds and a saved model's inputs are in pixel units, whatever the network sees behind that layer.
"""

from typing import Annotated

from pydantic import Field

from falconcal.core.settings import Count, settings
from falconcal.errors import UsageError

Channels = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


@settings
class Preparation:
    """Images averaged down to ``side`` x ``side``, then normalised channel by channel."""

    side: Count | None = None
    mean: Channels | None = None
    deviation: Channels | None = None

    def __post_init__(self) -> None:
        mean, deviation = self.mean or (), self.deviation or ()
        if len(mean) != len(deviation) or any(value <= 0 for value in deviation):
            raise UsageError(
                "expected mean and deviation with a number a channel each, the deviations above "
                f"0, got {self.mean} and {self.deviation}."
            )

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the network sees of examples of a shape."""
        return shape if self.side is None else (shape[0], self.side, self.side)
