"""How figures look: one colour per method, ink that follows the page, words for axes."""

from typing import Any

# mid-tones that stand out from white and from near-black alike, apart for colour-blind eyes; the
# dashes and shapes say the same again for print without colour
COLOURS = (
    "#0077bb",
    "#d55e00",
    "#009e73",
    "#c2569b",
    "#9a7d0a",
    "#7a68d8",
    "#2f9fb8",
    "#a0522d",
    "#7f8c8d",
    "#d4526e",
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
INK = "currentColor"  # the page's text colour, light or dark; black in a file of its own
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "padding": 4,
    "view": {"stroke": INK, "strokeOpacity": 0.25},
    "axis": {
        "domain": False,
        "gridColor": INK,
        "gridOpacity": 0.12,
        "labelColor": INK,
        "labelFontSize": 11,
        "labelOverlap": "greedy",
        "tickColor": INK,
        "tickOpacity": 0.35,
        "titleColor": INK,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "header": {
        "labelColor": INK,
        "labelFontSize": 12,
        "labelFontWeight": 600,
        "labelPadding": 4,
        "titleColor": INK,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 240,
        "orient": "top",
        "symbolOpacity": 1,
        "symbolStrokeWidth": 2,
        "titleColor": INK,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
    },
    "text": {"color": INK},
    "rule": {"color": INK},
}


def cycled(choices: tuple[Any, ...], count: int) -> list[Any]:
    """Return as many of the choices as asked for, from the start again when they run out."""
    return [choices[number % len(choices)] for number in range(count)]
