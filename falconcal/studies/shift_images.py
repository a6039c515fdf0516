"""Pictures of what a shift does: a few examples down, its levels across."""

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

EXAMPLES, COLUMNS, GAP = 4, 10, 2


def write_pictures(
    directory: Path, data: Part, shifts: Iterable[AnyShift], outliers: Iterable[Outliers] = ()
) -> None:
    """Write one PNG a shift for image data, and one a set of outliers, into an output folder."""
    few = data.first(EXAMPLES)
    for shift in shifts:
        if isinstance(shift, StoredShift) or "model" not in shift.needs:
            # under FGSM every run's model sees images of its own
            write_bytes(example_file(directory, shift.name), _png(_grid(levels_of(shift, few))))
    for one in outliers:
        images, _ = next(one.batches(data, COLUMNS))
        write_bytes(example_file(directory, one.name), _png(_grid(images[:, None])))


def levels_of(shift: AnyShift, few: Examples) -> Tensor:
    """Return examples at every level: (levels, N, channels, H, W)."""
    if isinstance(shift, StoredShift):
        stored = [shift.level(level, few).read(slice(len(few))) for level in shift.levels[1:]]
        return torch.stack([few.inputs, *stored])
    context = shift_context(few, 0, few.labels)
    return torch.stack([shift.at(few.inputs, level, **context) for level in shift.levels])


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
