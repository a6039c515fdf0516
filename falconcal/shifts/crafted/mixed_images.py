"""Mixed images: another example of the data shines through, at most as strongly as the example."""

from collections.abc import Callable

import torch
from torch import Tensor

from falconcal.errors import UserError
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import Shift

SHARES = tuple(level / 18 for level in range(10))  # up to one half


def mixed_images_shift() -> Shift:
    return Shift(
        "mixed_images",
        SHARES,
        mixed_images,
        "another example shines through, up to one half",
        needs=("others",),
    )


def mixed_images(
    inputs: Tensor, share: float, noise: KeyedNoise, *, others: Tensor | Callable[[], Tensor]
) -> Tensor:
    """Return (1 - share) of each example and a share of one of the others: (N, ...).

    ``others`` (M, ...) are the first examples of the data, so that no example meets itself: one
    whose own number is below M is passed over.
    """
    among = (others() if callable(others) else others).to(inputs)
    if len(among) < 2:
        raise UserError(f"mixed_images needs at least 2 other examples, got {len(among)}.")
    drawn = (noise.uniform((1,))[:, 0] * (len(among) - 1)).long()  # (N,), from 0 to M - 2
    partners = drawn + (drawn >= noise.examples).long()
    return torch.lerp(inputs, among[partners.to(inputs.device)], share)
