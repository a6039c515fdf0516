"""Images of a shift: one row per example, one column per level."""

import io
from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from falconcal.data import Examples, Part
from falconcal.io.atomic import write_bytes
from falconcal.io.output_folder import example_file
from falconcal.shifts import AnyShift, Outliers, StoredShift, shift_context

SHOWN_EXAMPLES, SHOWN_OUTLIERS = 4, 10
FRAME = 2  # white pixels between images


def write_pictures(
    directory: Path, data: Part, shifts: Iterable[AnyShift], outliers: Iterable[Outliers] = ()
) -> None:
    """Write one PNG per shift and per set of outliers into an output folder."""
    examples = data.head(SHOWN_EXAMPLES)
    for shift in shifts:
        if isinstance(shift, StoredShift) or "model" not in shift.needs:
            # under FGSM each model gets different images
            _write(example_file(directory, shift.name), levels_of(shift, examples))
    for one in outliers:
        images, _ = next(one.batches(data, SHOWN_OUTLIERS))
        _write(example_file(directory, one.name), images[:, None])


def levels_of(shift: AnyShift, examples: Examples) -> Tensor:
    """Return examples at every level: (levels, N, channels, H, W)."""
    if isinstance(shift, StoredShift):
        count, levels = len(examples), shift.levels[1:]
        stored = [shift.level(level, examples).read(slice(count)) for level in levels]
        return torch.stack([examples.inputs, *stored])
    context = shift_context(examples, 0, examples.labels)
    return torch.stack([shift.at(examples.inputs, level, **context) for level in shift.levels])


def _grid(levels: Tensor) -> Tensor:
    """Join images into one: (levels, N, channels, H, W) -> (channels, N * H, levels * W)."""
    framed = functional.pad(levels, (0, FRAME, 0, FRAME), value=1.0)
    count, examples, channels, height, width = framed.shape
    return framed.permute(2, 1, 3, 0, 4).reshape(channels, examples * height, count * width)


def _write(file: Path, levels: Tensor) -> None:
    write_bytes(file, png_bytes(to_image(_grid(levels))))


def to_image(values: Tensor) -> Image.Image:
    """Return values from 0 to 1, (channels, H, W), as an image; others are clipped."""
    pixels = (values.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()  # (H, W, channels)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def png_bytes(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
