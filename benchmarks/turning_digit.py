"""The picture of the README: a digit turns, and how sure networks say they are of it.

    python -m benchmarks.turning_digit
    FALCONCAL_DATA=data python -m benchmarks.turning_digit --digit    # draw the digit again as well

Draws ``docs/figures/turning-light.svg`` and ``-dark.svg`` from the rows of the promise on MNIST:
the accuracy of plain networks under rotation, their confidence, and that after shift temperature,
which changes no prediction. The digit is the first of MNIST's test images, turned by the shift.
"""

import argparse
import base64
from dataclasses import dataclass

import polars
from PIL import Image

from benchmarks.does_it_work import PLAIN
from benchmarks.pages import ROOT, draw
from falconcal import SHIFTS, load_dataset
from falconcal.drawing.theme import COLOURS, FONT

ROWS = ROOT / "results" / "promise" / "mnist" / "rows.parquet"
DIGIT = ROOT / "results" / "promise" / "mnist" / "turning_digit.png"
FIGURES = ROOT / "docs" / "figures"
TURNS, OURS = ("rot_left", "rot_right"), "shift_temperature"
LEVELS = range(10)  # level n turns by 10 n degrees
LABELS = 8  # the level above or below which the words stand
INKS = {"light": "#1f2328", "dark": "#e6edf3"}
LEFT, WIDTH, TOP, HEIGHT = 60.0, 532.0, 78.0, 236.0  # of the plot, in a picture of 600 by 360


@dataclass(frozen=True)
class Line:
    """One line of the picture: a share at each level, and what it is called where."""

    words: str
    shares: list[float]
    colour: str
    label_below: bool = True
    dash: str = ""

    @property
    def points(self) -> str:
        return " ".join(f"{across(n):.1f},{up(share):.1f}" for n, share in enumerate(self.shares))

    @property
    def label_at(self) -> tuple[float, float]:
        """Where the words stand, above the line or below it."""
        beside = 24 if self.label_below else -20
        return LEFT + WIDTH, up(self.shares[LABELS]) + beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digit", action="store_true", help="draw the digit again, from MNIST")
    if parser.parse_args().digit:
        turned_digit().save(DIGIT)
    for name in INKS:
        (FIGURES / f"turning-{name}.svg").write_text(picture(name))


def turned_digit() -> Image.Image:
    """Return MNIST's first test image at every level, side by side."""
    first = load_dataset("mnist").test.inputs[:1]
    turned = [SHIFTS["rot_right"].at(first, level)[0, 0] for level in LEVELS]
    pixels = [(one * 255).round().byte().numpy() for one in turned]
    strip = Image.new("L", (28 * len(pixels), 28))
    for level, tile in enumerate(pixels):
        strip.paste(Image.fromarray(tile), (28 * level, 0))
    return strip


def picture(name: str) -> str:
    """Return the picture for a light or a dark page."""
    return draw(
        "turning_digit.svg",
        {
            "lines": lines(INKS[name]),
            "ink": INKS[name],
            "font": FONT,
            "digit": base64.b64encode(DIGIT.read_bytes()).decode(),
            "levels": [(level, 10 * level, across(level)) for level in LEVELS],
            "shares": [(share, up(share / 100)) for share in range(0, 101, 25)],
            "tile": WIDTH / len(LEVELS) - 8,
            "edges": (LEFT, LEFT + WIDTH),
        },
    )


def lines(ink: str) -> list[Line]:
    return [
        Line("a plain network says", shares(PLAIN, "confidence"), COLOURS[1], label_below=False),
        Line("with shift temperature", shares(OURS, "confidence"), COLOURS[0], label_below=False),
        Line("and is right", shares(PLAIN, "accuracy"), ink, dash="5 4"),
    ]


def shares(method: str, metric: str) -> list[float]:
    """Return a metric by level, the mean over both directions and all seeds."""
    rows = polars.read_parquet(ROWS).filter(
        polars.col("shift").is_in(TURNS), method=method, metric=metric
    )
    means = rows.drop_nulls("level").group_by("level").agg(polars.col("value").mean())
    return means.sort("level")["value"].to_list()


def across(level: float) -> float:
    """Return the place of a level, in the middle of its tile."""
    return LEFT + WIDTH * (level + 0.5) / len(LEVELS)


def up(share: float) -> float:
    return TOP + HEIGHT * (1 - share)


if __name__ == "__main__":
    main()
