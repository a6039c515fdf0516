"""What the warps share: images read at moved points, and how far a strength moves them."""

import torch
from torch import Tensor
from torch.nn import functional

from falconcal.errors import UserError

STRENGTHS = tuple(level / 10 for level in range(10))


def check_image_batch(images: Tensor, name: str) -> None:
    """Refuse what is not a batch of images (N, C, H, W)."""
    if images.ndim != 4:
        raise UserError(
            f"{name} is made for images (N, channels, height, width), got shape "
            f"{tuple(images.shape)}: choose a shift for tables, signals or words instead."
        )


def pixel_grid(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates of each pixel, from -1 to 1 over the image: down and right, (H, W)."""
    height, width = images.shape[2:]
    down = torch.linspace(-1, 1, height, device=images.device)
    right = torch.linspace(-1, 1, width, device=images.device)
    return tuple(torch.meshgrid(down, right, indexing="ij"))  # type: ignore[return-value]


def read_at(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Return images read bilinearly at points (N, H, W) from -1 to 1; outside, the edge pixel."""
    points = torch.stack([right, down], 3).to(images)  # (N, H, W, 2)
    return functional.grid_sample(images, points, padding_mode="border", align_corners=True)
