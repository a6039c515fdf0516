"""Every corruption at every severity on a photograph, as one picture for the docs.

python -m benchmarks.corruption_pictures docs/figures/corruptions.webp
"""

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image
from torch import Tensor

from falconcal.shifts import Shift, corruption_shifts

SIDE, GAP, LABEL = 128, 4, 18  # pixels
BLOCKS = 2  # corruptions beside each other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    picture().save(arguments.file, quality=78)


def picture() -> Image.Image:
    """Return a strip of the five severities for each corruption, two strips in a row."""
    shifts = list(corruption_shifts().values())
    rows = -(-len(shifts) // BLOCKS)
    width = 5 * (SIDE + GAP) + 3 * GAP
    whole = Image.new("RGB", (BLOCKS * width, rows * (SIDE + LABEL + GAP)), "white")
    for number, shift in enumerate(shifts):
        block, row = divmod(number, rows)
        draw_strip(whole, shift, block * width + GAP, row * (SIDE + LABEL + GAP))
    return whole


def draw_strip(whole: Image.Image, shift: Shift, left: int, top: int) -> None:
    ImageDraw.Draw(whole).text((left, top + 2), shift.name, "black", ImageFont.load_default(12))
    for level in shift.levels[1:]:
        image = to_image(shift.at(photograph(), level)[0])
        place = (left + (level - 1) * (SIDE + GAP), top + LABEL)
        whole.paste(image.resize((SIDE, SIDE), Image.Resampling.BOX), place)


def photograph() -> Tensor:
    """Return the middle of scikit-learn's view of a temple: (1, 3, 224, 224)."""
    pixels = torch.from_numpy(load_sample_image("china.jpg").copy())
    return pixels[60:284, 130:354].permute(2, 0, 1)[None].float() / 255


def to_image(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).contiguous().numpy())


if __name__ == "__main__":
    main()
