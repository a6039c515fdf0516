"""The 19 corruptions of ImageNet-C on whole batches: one file per kind, and the table of them.

Hendrycks & Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", ICLR 2019. Each is a shift whose strengths are the severities 1 to 5. Their names
begin with ``corrupt_``, so that they differ from the shifts of other strengths.

To add one, write it in the file of its kind, its parameters in ``parameters.py``, and add a line
to ``CORRUPTIONS``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from falconcal.data.images import PIXEL_BOUNDS
from falconcal.errors import UserError
from falconcal.shifts.corruptions.blur import (
    defocus_blur,
    gaussian_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
)
from falconcal.shifts.corruptions.digital import contrast, elastic_transform, pixelate, saturate
from falconcal.shifts.corruptions.jpeg import jpeg_compression
from falconcal.shifts.corruptions.noise import (
    gaussian_noise,
    impulse_noise,
    shot_noise,
    speckle_noise,
)
from falconcal.shifts.corruptions.parameters import parameters
from falconcal.shifts.corruptions.spatter import spatter
from falconcal.shifts.corruptions.weather import brightness, fog, frost, snow
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.shift import RANGE_ADVICE, Shift

SEVERITIES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
SMALLEST_SIDE = 28  # pixels
# values processed at a time: work that fits the processor's cache is several times faster
VALUES_AT_ONCE = 3 * 224 * 224

# (images, noise, *parameters) -> images, before they are clipped
Corruption = Callable[..., Tensor]

CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "gaussian_noise": (gaussian_noise, "noise of one deviation on every value"),
    "shot_noise": (shot_noise, "few photons: Poisson counts"),
    "impulse_noise": (impulse_noise, "values lost to black or white"),
    "speckle_noise": (speckle_noise, "noise in proportion to the value"),
    "defocus_blur": (defocus_blur, "spread over a disc"),
    "glass_blur": (glass_blur, "seen through frosted glass"),
    "motion_blur": (motion_blur, "moved in one direction"),
    "zoom_blur": (zoom_blur, "moved towards the camera"),
    "gaussian_blur": (gaussian_blur, "smoothed"),
    "snow": (snow, "falling snow"),
    "frost": (frost, "behind a frosted pane"),
    "fog": (fog, "in patchy fog"),
    "brightness": (brightness, "too bright"),
    "contrast": (contrast, "contrast lost"),
    "saturate": (saturate, "too little colour, then too much"),
    "spatter": (spatter, "drops of water, then mud"),
    "elastic_transform": (elastic_transform, "stretched here, squeezed there"),
    "pixelate": (pixelate, "in coarse blocks"),
    "jpeg_compression": (jpeg_compression, "JPEG of low quality"),
}

# families that resemble a corruption: a model fitted on one has partly seen the other
KIN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gaussian_noise", "shot_noise", "impulse_noise"), ("gaussian_noise",)),
    **dict.fromkeys(
        ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
        ("gaussian_blur",),
    ),
    "speckle_noise": ("speckle", "gaussian_noise"),
    "contrast": ("contrast",),
    "elastic_transform": ("elastic_warp",),
}


def kin_of_corruption(name: str) -> tuple[str, ...]:
    """Return the families that a stored corruption resembles, the computed one of that name first.

    Args:
        name: As in the files of ImageNet-C, without a prefix.

    Returns:
        Names of shifts; none where no shift of the library is like it.

    Example:
        >>> from falconcal.shifts.corruptions import kin_of_corruption
        >>> kin_of_corruption("shot_noise")
        ('corrupt_shot_noise', 'gaussian_noise')
    """
    return (f"corrupt_{name}", *KIN.get(name, ())) if name in CORRUPTIONS else ()


def corruption_shifts() -> dict[str, Shift]:
    """Return the 19 corruptions of ImageNet-C as shifts by name, with severities 1 to 5.

    Returns:
        The shifts; images (N, 1 or 3, H, W) from 0 to 1 in and out, at least 28 pixels per side.

    Example:
        >>> from falconcal.shifts import corruption_shifts
        >>> corruption_shifts()["corrupt_fog"].summary
        'in patchy fog (ImageNet-C, severities 1 to 5)'
    """
    return {
        f"corrupt_{name}": Shift(
            f"corrupt_{name}",
            SEVERITIES,
            partial(corrupt, name=name),
            f"{summary} (ImageNet-C, severities 1 to 5)",
            graded=False,
            kin=KIN.get(name, ()),
        )
        for name, (_, summary) in CORRUPTIONS.items()
    }


def corrupt(images: Tensor, severity: float, noise: KeyedNoise, *, name: str) -> Tensor:
    """Return the images corrupted, with the published parameters for their size."""
    check_images(images)
    height, width = images.shape[2:]
    values = parameters(name, height, width)[int(severity) - 1]
    corruption, _ = CORRUPTIONS[name]
    output = torch.empty_like(images, dtype=torch.float32)
    size = max(1, VALUES_AT_ONCE // images[0].numel())
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        own_noise = replace(noise, examples=noise.examples[part])
        piece = images[part].float()
        PIXEL_BOUNDS.check(piece, RANGE_ADVICE)
        changed = corruption(piece, own_noise, *values)
        torch.clamp(changed, 0, 1, out=output[part])
    return output.to(images.dtype)


def check_images(images: Tensor) -> None:
    """Raise an error unless the inputs are a batch of grey or colour images."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < SMALLEST_SIDE:
        raise UserError(
            f"expected images (N, 1 or 3 channels, height, width), at least {SMALLEST_SIDE} pixels "
            f"per side, got shape {tuple(images.shape)}: corruptions are made for images only."
        )
