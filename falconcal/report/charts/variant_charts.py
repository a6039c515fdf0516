"""The figures of variants: what each named one changes, and what a swept setting moves."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, TypeGuard

import altair
import polars

from falconcal.core.settings import RENAMED
from falconcal.drawing.layers import HOVER_SIZE, layered
from falconcal.drawing.theme import COLOURS, cycled
from falconcal.evaluation.under_shift import CLEAN
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.report.charts.by_level import file_names
from falconcal.report.charts.chart_data import MEAN_OF_SHIFTS, over_seeds, pooled_curves
from falconcal.report.charts.figure import PANEL_HEIGHT, Figure, grid, tooltip
from falconcal.report.results import Results

CLEAN_PANELS = {"accuracy": "clean accuracy", "ece": "clean ECE"}
POOLED_PANEL = "micro ECE, {}"
ROOM = 0.05  # below the lowest accuracy, so that a tenth of a percent looks like one
LOGARITHMIC = 10  # the ratio of the ends from which a range is drawn so
PANELS_CAPTION = "Accuracy and ECE on clean data, then the micro-averaged ECE of the shifts."


@dataclass(frozen=True)
class Sweep:
    """One setting over a range: its value in each variant, the plain one included if known."""

    key: str
    values: dict[str, float]


def variant_figures(results: Results) -> list[Figure]:
    """Named variants side by side, then each sweep over its range; none without variants."""
    sweeps = find_sweeps(results.study)
    named = set(results.study.get("variants") or ()) - {
        name for one in sweeps for name in one.values
    }
    runs = [run for run in results.runs if run.key.variant in named]
    sides = [_side_by_side(results, {DEFAULT_VARIANT, *named})] if runs else []
    names = file_names(sweep.key for sweep in sweeps)
    drawn = (_sensitivity(results, sweep, names[sweep.key]) for sweep in sweeps)
    return [*sides, *(figure for figure in drawn if figure is not None)]


def find_sweeps(study: dict[str, Any]) -> list[Sweep]:
    """Return the settings that several variants change alone, each to another number."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, changes in (study.get("variants") or {}).items():
        for key, value in changes.items():
            if len(changes) == 1 and _is_number(value):
                found[key][name] = float(value)
    return [
        Sweep(key, {**_plain(study, key), **values})
        for key, values in found.items()
        if len(values) > 1
    ]


def _plain(study: dict[str, Any], key: str) -> dict[str, float]:
    """Return the study's own value by the name of the plain variant; nothing if no number."""
    method, _, setting = key.removeprefix("methods.").rpartition(".")
    table: Any = study
    if method:
        name, *bases = method.split(".base")  # METHOD.base.base
        table = study[name] if name == "model" else (study.get("methods") or {}).get(name)
        for _ in bases:
            table = table.get("base") if isinstance(table, dict) else None
    table = table if isinstance(table, dict) else {}
    value = table.get(setting, table.get(RENAMED.get(setting)))
    return {DEFAULT_VARIANT: float(value)} if _is_number(value) else {}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def panel_table(results: Results) -> polars.DataFrame:
    """Return series, panel and the mean, low and high over seeds of each panel's figure."""
    clean = results.rows.filter(
        polars.col("shift") == CLEAN, polars.col("metric").is_in(list(CLEAN_PANELS))
    ).with_columns(polars.col("metric").replace(CLEAN_PANELS).alias("panel"))
    pooled = pooled_curves(results, "micro_ece").with_columns(
        polars.format(POOLED_PANEL, polars.col("shift").replace(MEAN_OF_SHIFTS, "mean")).alias(
            "panel"
        )
    )
    means = over_seeds(clean, ["series", "panel"])
    table = polars.concat([means, pooled.select(means.columns)]).drop_nulls("mean")
    accuracy = polars.col("panel") == CLEAN_PANELS["accuracy"]
    lowest = polars.col("low").min().over("panel") - ROOM
    # where the axis begins: errors are seen from zero
    return table.with_columns(floor=polars.when(accuracy).then(lowest).otherwise(0.0))


def _side_by_side(results: Results, variants: set[str]) -> Figure:
    """Return bars of the plain runs and those of named variants, one panel per figure."""
    shown = list(dict.fromkeys(run.series for run in results.runs if run.key.variant in variants))
    table = panel_table(results).filter(polars.col("series").is_in(shown))
    panel = layered(_bars(results, shown), table)
    chart = _panels(results, panel, table, altair.Step(16))
    caption = (
        "The study as it stands, and its variants, each named in brackets after the method that it "
        f"changes. {PANELS_CAPTION} Bars are means over seeds, rules the range of the seeds; the "
        "axis of accuracy does not begin at zero."
    )
    return Figure("variants", caption, chart.resolve_scale(x="independent"), _width(shown))


def _bars(results: Results, shown: list[str]) -> list[altair.Chart]:
    axis = altair.Axis(labels=False, ticks=False, grid=False)
    base = altair.Chart().encode(y=altair.Y("series:N", sort=shown, title=None, axis=axis))
    scale = altair.Scale(zero=False, nice=False)
    x = altair.X("mean:Q", title=None, scale=scale, axis=altair.Axis(format="~g", tickCount=4))
    colour = _colour(results, shown, "square")
    bars = base.mark_bar(height={"band": 0.8}).encode(
        x=x, x2="floor:Q", color=colour, tooltip=tooltip(["series", "panel"], "value")
    )
    spread = base.mark_rule(strokeWidth=1.5).encode(x=altair.X("low:Q", title=None), x2="high:Q")
    return [bars, spread]


def _sensitivity(results: Results, sweep: Sweep, name: str) -> Figure | None:
    """Return lines over the range of a setting, one per method; None below two points."""
    points = _points(results, sweep)
    values = points["value"].to_list()
    if len(set(values)) < 2:
        return None
    table = panel_table(results).join(points, on="series").sort("value", maintain_order=True)
    table = table.with_columns(series="method")
    methods = list(dict.fromkeys(points["method"]))
    panel = layered(_range_lines(results, sweep, methods), table)
    chart = _panels(results, panel, table, PANEL_HEIGHT)
    caption = (
        f"{sweep.key} from {min(values):g} to {max(values):g}, everything else as it stands; "
        f"the dashed line is the study's own value. {PANELS_CAPTION} Dots are means over "
        f"seeds, bands the range of the seeds. {_spread(table)}"
    )
    legend = _width(methods)
    return Figure(f"sensitivity-{name}", caption, chart.resolve_scale(y="independent"), legend)


def _points(results: Results, sweep: Sweep) -> polars.DataFrame:
    """Return series, method and value of the runs along a sweep, for methods that it changes."""
    keys = dict.fromkeys((run.key.variant, run.key.method) for run in results.runs)
    changed = {
        method for variant, method in keys if variant in sweep.values and variant != DEFAULT_VARIANT
    }
    rows = [
        (
            RunKey(variant, method, 0).series,
            method,
            sweep.values[variant],
            variant == DEFAULT_VARIANT,
        )
        for variant, method in keys
        if method in changed and variant in sweep.values
    ]
    kinds = {
        "series": polars.String,
        "method": polars.String,
        "value": polars.Float64,
        "plain": polars.Boolean,
    }
    return polars.DataFrame(rows, schema=kinds, orient="row")


def _range_lines(results: Results, sweep: Sweep, methods: list[str]) -> list[altair.Chart]:
    ends = min(sweep.values.values()), max(sweep.values.values())
    wide = ends[0] > 0 and ends[1] / ends[0] >= LOGARITHMIC
    axis = altair.Axis(values=sorted(set(sweep.values.values())), format="~g", grid=False)
    scale = altair.Scale(type="log" if wide else "linear", zero=False, nice=False, padding=8)
    x = altair.X("value:Q", title=sweep.key, scale=scale, axis=axis)
    base = altair.Chart().encode(x=x, color=_colour(results, methods, "stroke"))
    axis = altair.Axis(format="~g", tickCount=4)
    y = altair.Y("mean:Q", title=None, scale=altair.Scale(zero=False), axis=axis)
    band = base.mark_area(opacity=0.18).encode(y=altair.Y("low:Q", title=None), y2="high:Q")
    line = base.mark_line(strokeWidth=1.8, point=True).encode(y=y)
    hints = [
        *tooltip(["series", "panel"], "value"),
        altair.Tooltip("value:Q", title=sweep.key),
    ]
    hover = base.mark_circle(size=HOVER_SIZE, opacity=0).encode(y=y, tooltip=hints)
    floor = base.mark_circle(opacity=0).encode(y=altair.Y("floor:Q", title=None))
    own = altair.Chart().transform_filter("datum.plain").mark_rule(strokeDash=[4, 3], opacity=0.5)
    return [own.encode(x=x), floor, band, line, hover]


def _spread(table: polars.DataFrame) -> str:
    """Return in words how far the figures move over the range, of the method that moves most."""
    moves = table.group_by("panel", "series").agg(
        (polars.col("mean").max() - polars.col("mean").min()).alias("move")
    )
    most = dict(moves.group_by("panel").agg(polars.col("move").max()).rows())
    pooled = [move for panel, move in most.items() if panel not in CLEAN_PANELS.values()]
    words = f"Clean accuracy moves by {100 * most[CLEAN_PANELS['accuracy']]:.1f} points"
    if not pooled:
        return f"{words}."
    return f"{words}, the ECE of no shift by more than {max(pooled):.3f}."


def _panels(
    results: Results,
    panel: altair.LayerChart,
    table: polars.DataFrame,
    height: int | altair.Step,
) -> altair.FacetChart:
    pooled = [POOLED_PANEL.format(shift) for shift in ("mean", *results.shifts)]
    there = set(table["panel"])
    order = [name for name in (*CLEAN_PANELS.values(), *pooled) if name in there]
    return grid(panel, "panel", dict.fromkeys(order, False), height)


def _colour(results: Results, shown: list[str], symbol: str) -> altair.Color:
    """Return the colours of the series shown, the same as in every other figure."""
    colours = dict(zip(results.series, cycled(COLOURS, len(results.series)), strict=True))
    return altair.Color(
        "series:N",
        title=None,
        legend=altair.Legend(symbolType=symbol),
        scale=altair.Scale(
            domain=shown, range=[colours.get(series, COLOURS[0]) for series in shown]
        ),
    )


def _width(shown: list[str]) -> int:
    return 45 + 7 * max(len(series) for series in shown)
