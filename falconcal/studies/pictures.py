"""Pictures of what a shift does: a few examples down, its levels across."""

import io
from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from falconcal.data import Part
from falconcal.files import write_bytes
from falconcal.layout import example_file
from falconcal.shifts import Shift, facts_of

EXAMPLES, GAP = 4, 2


def write_pictures(directory: Path, data: Part, shifts: Iterable[Shift]) -> None:
    """Write one PNG a shift for image data into an output folder."""
    few = data.first(EXAMPLES)
    for shift in shifts:
        if "model" in shift.needs:
            continue  # every run's model sees images of its own
        facts = facts_of(few, 0, few.labels)
        levels = torch.stack([shift.at(few.inputs, level, **facts) for level in shift.levels])
        write_bytes(example_file(directory, shift.name), _png(_grid(levels)))


def _grid(levels: Tensor) -> Tensor:
    """Lay images side by side: (levels, N, channels, H, W) -> (channels, N * H, levels * W)."""
    framed = functional.pad(levels, (0, GAP, 0, GAP), value=1.0)
    count, examples, channels, height, width = framed.shape
    return framed.permute(2, 1, 3, 0, 4).reshape(channels, examples * height, count * width)


def _png(picture: Tensor) -> bytes:
    pixels = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()  # (H, W, channels)
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
