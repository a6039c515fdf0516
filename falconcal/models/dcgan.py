"""A small DCGAN, sized to the data: a generator of inputs and a discriminator of real ones.

After Radford, Metz & Chintala, "Unsupervised Representation Learning with Deep Convolutional
Generative Adversarial Networks", ICLR 2016, with GroupNorm in the place of BatchNorm: an example's
output does not hang on its batch, so a batch shared out among processes gives what a whole one
does. What is no image of 8 pixels or more a side (tables, signals) gets dense layers.
"""

import math

from torch import Tensor, nn

from falconcal.data import Bounds

SMALLEST_IMAGE = 8  # pixels a side
MOST_CHANNELS = 128  # channels
DENSE_WIDTH = 128  # width of dense layers


class Generator(nn.Module):
    """Noise in, inputs within their bounds out."""

    def __init__(
        self, shape: tuple[int, ...], bounds: Bounds | None, latent: int, width: int
    ) -> None:
        super().__init__()
        self.shape, self.bounds = shape, bounds
        self.layers = _growing(shape, latent, width) if is_image(shape) else _dense(shape, latent)

    def forward(self, noise: Tensor) -> Tensor:  # (N, latent) -> (N, *shape)
        made: Tensor = self.layers(noise)
        if is_image(self.shape):
            made = made[..., : self.shape[1], : self.shape[2]]  # sides that cannot be halved
        if self.bounds is None:
            return made
        return self.bounds.low + self.bounds.range * made.sigmoid()


class Discriminator(nn.Module):
    """Inputs in, logits of being real out."""

    def __init__(self, shape: tuple[int, ...], bounds: Bounds | None, width: int) -> None:
        super().__init__()
        self.bounds = bounds
        self.layers = _shrinking(shape, width) if is_image(shape) else _judging(shape)

    def forward(self, inputs: Tensor) -> Tensor:  # (N, *shape) -> (N,)
        if self.bounds is not None:  # whatever the unit, from -1 to 1
            inputs = 2 * (inputs - self.bounds.low) / self.bounds.range - 1
        scores: Tensor = self.layers(inputs)
        return scores[:, 0]


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE


def halvings(shape: tuple[int, ...]) -> int:
    """Return how often the sides are halved: until the shorter is 8 or less, at least once."""
    return max(1, math.ceil(math.log2(min(shape[1:]) / SMALLEST_IMAGE)))


def _widths(shape: tuple[int, ...], width: int) -> list[int]:
    """Return the channels of each halving, from the image inwards."""
    return [min(width * 2**place, max(width, MOST_CHANNELS)) for place in range(halvings(shape))]


def _growing(shape: tuple[int, ...], latent: int, width: int) -> nn.Sequential:
    sides = tuple(math.ceil(side / 2 ** halvings(shape)) for side in shape[1:])
    *outer, inmost = _widths(shape, width)
    layers: list[nn.Module] = [
        nn.Linear(latent, inmost * math.prod(sides)),
        nn.Unflatten(1, (inmost, *sides)),
    ]
    channels = inmost
    for following in (*reversed(outer), shape[0]):
        layers += [nn.GroupNorm(1, channels), nn.ReLU()]
        layers += [nn.ConvTranspose2d(channels, following, 4, stride=2, padding=1)]
        channels = following
    return nn.Sequential(*layers)


def _shrinking(shape: tuple[int, ...], width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = shape[0]
    for following in _widths(shape, width):
        layers += [nn.Conv2d(channels, following, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        channels = following
    sides = [side // 2 ** halvings(shape) for side in shape[1:]]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * math.prod(sides), 1))


def _dense(shape: tuple[int, ...], latent: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(latent, DENSE_WIDTH),
        nn.ReLU(),
        nn.Linear(DENSE_WIDTH, DENSE_WIDTH),
        nn.ReLU(),
        nn.Linear(DENSE_WIDTH, math.prod(shape)),
        nn.Unflatten(1, shape),
    )


def _judging(shape: tuple[int, ...]) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), DENSE_WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(DENSE_WIDTH, DENSE_WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(DENSE_WIDTH, 1),
    )
