"""One picture of what a model will see: shifts down, levels across."""

import io
from collections.abc import Sequence

import numpy
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from falconcal.data import Bounds, Dataset, Examples
from falconcal.errors import UserError
from falconcal.shifts import (
    AnyShift,
    StoredShift,
    affine_shifts,
    corruption_shifts,
    find_shift,
    noise_blur_contrast_shifts,
    sensor_shifts,
)
from falconcal.studies.shift_images import levels_of

SIDE = 64  # the least height of a cell; what is smaller is enlarged
GAP, LINE, LETTERS = 4, 22, 13  # pixels: between cells, a line of text, the size of its letters
PLOT = (96, 64)  # width and height of the plot of a signal
INKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def shift_overview(
    dataset: Dataset,
    names: Sequence[str] | None = None,
    examples: int = 1,
    stored: str | None = None,
) -> bytes:
    """Return a PNG of some test examples at every level of shifts, those of the data's kind."""
    few = dataset.test.first(examples)
    if not few.inputs.is_floating_point():
        raise UserError(
            f"{dataset.name} is text, of which there is no picture: print what SHIFTS[name].at "
            "gives of its tokens, or falconcal.shifts.typos of its words."
        )
    chosen = usual_shifts(few) if names is None else names
    ladders = [_seen(find_shift(name, "middle", stored)) for name in chosen]
    rows = [(ladder.name, _cells(levels_of(ladder, few), few)) for ladder in ladders]
    return _png(_laid_out(rows))


def usual_shifts(few: Examples) -> list[str]:
    """Return the names of the shifts that such data is usually seen under."""
    if len(few.shape) != 3:
        return list(sensor_shifts())
    if few.shape[0] == 3:
        return list(corruption_shifts())
    return [*affine_shifts(), *noise_blur_contrast_shifts()]


def _seen(ladder: AnyShift) -> AnyShift:
    if not isinstance(ladder, StoredShift) and "model" in ladder.needs:
        raise UserError(
            f"{ladder.name} needs a model, and each model sees other images under it: choose "
            "shifts of the data alone."
        )
    return ladder


def _cells(levels: Tensor, few: Examples) -> list[list[Image.Image]]:
    """Return a picture of each example at each level: (levels, N, ...) -> N rows of levels."""
    draw = _image if levels.ndim == 5 else _plot
    low, high = (float(end) for end in levels[0].aminmax())
    bounds = few.bounds or Bounds(low, max(high, low + 1e-6))
    return [[draw(one, bounds) for one in example] for example in levels.transpose(0, 1)]


def _image(image: Tensor, bounds: Bounds) -> Image.Image:
    """Return an image (channels, H, W), enlarged by a whole number where it is small."""
    unit = ((image - bounds.low) / bounds.range).clamp(0, 1)
    pixels = (unit * 255).round().byte().permute(1, 2, 0).numpy()  # (H, W, channels)
    drawn = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    times = max(1, SIDE // drawn.height)
    return drawn.resize((times * drawn.width, times * drawn.height), Image.Resampling.NEAREST)


def _plot(signal: Tensor, bounds: Bounds) -> Image.Image:
    """Return the channels of a signal (time, channels), or a row of a table, as lines."""
    width, height = PLOT
    drawn = Image.new("RGB", PLOT, "#f4f4f4")
    channels = (signal if signal.ndim == 2 else signal[:, None]).double()
    unit = ((channels - bounds.low) / bounds.range).clamp(-0.5, 1.5)  # some room above and below
    across = numpy.linspace(0, width - 1, len(unit))
    down = height * (0.75 - unit.numpy() / 2)
    for number in range(unit.shape[1]):
        points = list(zip(across.tolist(), down[:, number].tolist(), strict=True))
        ImageDraw.Draw(drawn).line(points, INKS[number % len(INKS)], width=1)
    return drawn


def _laid_out(rows: Sequence[tuple[str, list[list[Image.Image]]]]) -> Image.Image:
    """Return the cells under one another and side by side, with the names of rows and columns."""
    font = ImageFont.load_default(LETTERS)
    left = GAP * 2 + round(max(font.getlength(name) for name, _ in rows))
    cell = rows[0][1][0][0]
    width, height = cell.width + GAP, cell.height + GAP
    columns = max(len(example) for _, examples in rows for example in examples)
    count = sum(len(examples) for _, examples in rows)
    sheet = Image.new("RGB", (left + columns * width, LINE + count * height), "white")
    pen, top = ImageDraw.Draw(sheet), LINE
    for level in range(columns):
        words = "clean" if level == 0 else f"level {level}"
        pen.text((left + level * width, GAP), words, "black", font)
    for name, examples in rows:
        pen.text((GAP, top + GAP), name, "black", font)
        for example in examples:
            for level, drawn in enumerate(example):
                sheet.paste(drawn, (left + level * width, top))
            top += height
    return sheet


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
