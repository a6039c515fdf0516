"""What a network does with images first: stated by the data, a layer of the network.

So the data stays in pixels from 0 to 1: shifts act on the whole image, and FGSM's epsilon, the
bounds and a saved model's inputs are in pixel units, whatever the network sees after that layer.
"""

from typing import Annotated

from pydantic import Field

from falconcal.core.settings import Count, settings
from falconcal.errors import UsageError

Channels = Annotated[tuple[float, ...], Field(strict=False, min_length=1)]


@settings
class Preparation:
    """The first layer of a network for images: average them down, then normalise each channel.

    The data itself stays in its own range, so that shifts and FALCON act on pixels.

    Raises:
        UsageError: ``mean`` and ``deviation`` have different lengths, or a deviation is not
            above 0.

    Example:
        >>> from falconcal.data import Preparation
        >>> preparation = Preparation(side=32, mean=(0.5, 0.5, 0.5), deviation=(0.2, 0.2, 0.2))
        >>> preparation.shape((3, 64, 64))
        (3, 32, 32)
    """

    side: Count | None = None
    """The height and width that images are averaged down to; None leaves them as they are."""

    mean: Channels | None = None
    """What is subtracted from each channel; None subtracts nothing."""

    deviation: Channels | None = None
    """What each channel is divided by after that."""

    def __post_init__(self) -> None:
        mean, deviation = self.mean or (), self.deviation or ()
        if len(mean) != len(deviation) or any(value <= 0 for value in deviation):
            raise UsageError(
                "expected mean and deviation with one number per channel each, the deviations "
                f"above 0, got {self.mean} and {self.deviation}."
            )

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that the network sees of examples of a shape."""
        return shape if self.side is None else (shape[0], self.side, self.side)
