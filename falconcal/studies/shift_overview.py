"""One image of test examples under shift: one row per shift, one column per level."""

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
from falconcal.studies.shift_images import levels_of, png_bytes, to_image

CELL_HEIGHT = 64  # pixels; smaller images are enlarged
GAP, LINE, FONT_SIZE = 4, 22, 13  # pixels: between cells, a line of text, the size of its letters
PLOT = (96, 64)  # width and height of the plot of a signal
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def shift_overview(
    dataset: Dataset,
    names: Sequence[str] | None = None,
    examples: int = 1,
    stored: str | None = None,
) -> bytes:
    """Return a PNG of test examples at every level of shifts, by default of the usual ones."""
    tested = dataset.test.head(examples)
    if not tested.inputs.is_floating_point():
        raise UserError(
            f"{dataset.name} is text, which cannot be drawn: print what SHIFTS[name].at returns "
            "for its tokens, or falconcal.shifts.typos for its words."
        )
    chosen = usual_shifts(tested) if names is None else names
    shifts = [_check_without_model(find_shift(name, "middle", stored)) for name in chosen]
    rows = [(shift.name, _cells(levels_of(shift, tested), tested)) for shift in shifts]
    return png_bytes(_lay_out(rows))


def usual_shifts(tested: Examples) -> list[str]:
    """Return the names of the shifts that are usual for such data."""
    if len(tested.shape) != 3:
        return list(sensor_shifts())
    if tested.shape[0] == 3:
        return list(corruption_shifts())
    return [*affine_shifts(), *noise_blur_contrast_shifts()]


def _check_without_model(shift: AnyShift) -> AnyShift:
    if not isinstance(shift, StoredShift) and "model" in shift.needs:
        raise UserError(
            f"{shift.name} needs a model, and its images differ from model to model: choose "
            "shifts that need only the data."
        )
    return shift


def _cells(levels: Tensor, tested: Examples) -> list[list[Image.Image]]:
    """Return one image per example and level: (levels, N, ...) -> N rows of levels."""
    draw = _image if levels.ndim == 5 else _plot
    low, high = (float(end) for end in levels[0].aminmax())
    bounds = tested.bounds or Bounds(low, max(high, low + 1e-6))
    return [[draw(one, bounds) for one in example] for example in levels.transpose(0, 1)]


def _image(image: Tensor, bounds: Bounds) -> Image.Image:
    """Return an image (channels, H, W), enlarged by a whole number where it is small."""
    drawn = to_image((image - bounds.low) / bounds.range).convert("RGB")
    times = max(1, CELL_HEIGHT // drawn.height)
    return drawn.resize((times * drawn.width, times * drawn.height), Image.Resampling.NEAREST)


def _plot(signal: Tensor, bounds: Bounds) -> Image.Image:
    """Return a plot of a signal (time, channels), one line per channel, or of a row (features,)."""
    width, height = PLOT
    drawn = Image.new("RGB", PLOT, "#f4f4f4")
    channels = (signal if signal.ndim == 2 else signal[:, None]).double()
    unit = ((channels - bounds.low) / bounds.range).clamp(-0.5, 1.5)  # with room above and below
    across = numpy.linspace(0, width - 1, len(unit))
    down = height * (0.75 - unit.numpy() / 2)
    for number in range(unit.shape[1]):
        points = list(zip(across.tolist(), down[:, number].tolist(), strict=True))
        ImageDraw.Draw(drawn).line(points, LINE_COLOURS[number % len(LINE_COLOURS)], width=1)
    return drawn


def _lay_out(rows: Sequence[tuple[str, list[list[Image.Image]]]]) -> Image.Image:
    """Return all cells in one image, with the names of rows and columns."""
    font = ImageFont.load_default(FONT_SIZE)
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
