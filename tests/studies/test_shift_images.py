"""The picture of shifts: every cell is what the model would see, rows and columns named."""

import io
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from falconcal.data import Bounds, Dataset, Examples
from falconcal.errors import UserError
from falconcal.shifts import (
    affine_shifts,
    find_computed_shift,
    noise_blur_contrast_shifts,
    sensor_shifts,
)
from falconcal.studies.shift_overview import GAP, LINE, shift_overview, usual_shifts
from tests.helpers.command import run_here
from tests.helpers.stripes import load_stripes, load_table


def opened(png: bytes) -> numpy.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        return numpy.asarray(image)


def test_every_cell_is_an_example_at_a_level() -> None:
    data, names = load_stripes(), ["contrast", "rot_left"]
    overview = opened(shift_overview(data, names, examples=2))
    size = 2 * 28 + GAP  # enlarged twice
    left = overview.shape[1] - 10 * size
    assert overview.shape[0] == LINE + 4 * size
    row = 0
    for name in names:
        shift = find_computed_shift(name, "middle")
        for example in range(2):
            for level in shift.levels:
                images = shift.at(data.test.first(2).inputs, level)
                pixels = (images[example, 0].clamp(0, 1) * 255).round().byte().numpy()
                top, side = LINE + row * size, left + level * size
                cell = overview[top : top + 56, side : side + 56, 0]
                assert numpy.array_equal(cell, pixels.repeat(2, 0).repeat(2, 1))
            row += 1
    assert (overview[LINE:, :left] < 128).any()  # names of the shifts
    assert (overview[:LINE, left:] < 128).any()  # and of the levels


def test_usual_shifts_are_those_of_the_kind_of_data() -> None:
    assert usual_shifts(load_stripes().test.first(1)) == [
        *affine_shifts(),
        *noise_blur_contrast_shifts(),
    ]
    assert usual_shifts(load_table().test.first(1)) == list(sensor_shifts())
    colour = Examples(torch.rand(1, 3, 32, 32), torch.zeros(1).long(), Bounds(0, 1))
    assert "corrupt_fog" in usual_shifts(colour)


@pytest.mark.end_to_end
def test_signals_and_tables_are_plotted() -> None:
    signals = Examples(torch.randn(4, 30, 3), torch.zeros(4).long())
    dataset = Dataset("waves", "signal", ("a",), None, signals, signals, signals)
    for data in (dataset, load_table()):
        overview = opened(shift_overview(data, ["sensor_offset"], examples=2))
        assert len(numpy.unique(overview.reshape(-1, 3), axis=0)) > 3


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="fgsm needs a model"):
        shift_overview(load_stripes(), ["fgsm"])
    words = Examples(torch.ones(2, 5).long(), torch.zeros(2).long())
    text = Dataset("words", "text", ("a",), None, words, words, words)
    with pytest.raises(UserError, match="words is text, which cannot be drawn"):
        shift_overview(text)


@pytest.mark.end_to_end
def test_the_command_writes_the_picture(tmp_path: Path) -> None:
    answer = run_here("shift", "digits", "--shifts", "contrast, shear", folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    file = tmp_path / "runs" / "shift" / "digits.png"
    assert str(Path("runs") / "shift" / "digits.png") in answer.stdout
    assert opened(file.read_bytes()).shape[0] == LINE + 2 * (56 + GAP)
    wrong = run_here("shift", "digits", "--out", "picture.gif", folder=tmp_path)
    assert wrong.returncode == 2
    assert "expects a PNG file" in wrong.stderr
    wrong = run_here("shift", "digits", "--out", str(file / "x.png"), folder=tmp_path)
    assert wrong.returncode == 2
    assert "digits.png is a file" in wrong.stderr
