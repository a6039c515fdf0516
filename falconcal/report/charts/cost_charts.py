"""The figures of costs: how expensive a method is, and how well calibrated it is for that."""

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.drawing.theme import SHAPES, cycled
from falconcal.report.charts.figure import (
    NAMED_ROWS,
    ROW_HEIGHT,
    Figure,
    colour,
    grid,
    legend_width,
)
from falconcal.report.ranking import ranked_series
from falconcal.report.results import Results
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.costs import EVALUATION, TRAINING, Costs

COST_PANELS = {TRAINING: "Training", EVALUATION: "Measuring"}
SCATTER_HEIGHT, WIDE = 210, 300


def cost_figures(results: Results, evidence: StudyEvidence, costs: Costs | None) -> list[Figure]:
    """Return the figures; none where nothing was recorded."""
    if costs is None:
        return []
    return [cost_figure(results, costs), calibration_figure(results, evidence, costs)]


def cost_figure(results: Results, costs: Costs) -> Figure:
    """Training and measuring in multiples of the plain method, one row per method."""
    marks = _panels(costs).with_columns(polars.lit(1.0).alias("one"))
    if costs.ensemble:
        in_training = polars.col("phase") == TRAINING
        whole = polars.when(in_training).then(costs.member * costs.members)
        marks = marks.with_columns(whole.alias("ensemble"))
    layers = _costs(results, has_ensemble=costs.ensemble is not None)
    chart = _side_by_side(layered(layers, marks), ROW_HEIGHT * len(results.series))
    dotted = f"Dotted: {costs.ensemble}, {costs.members} members. " if costs.ensemble else ""
    caption = (
        f"What a run costs in runs of {costs.plain}, dashed; a line is the range of the seeds. "
        f"{dotted}The scale is logarithmic."
    )
    return Figure("training-cost", caption, chart, 75, cells=NAMED_ROWS)


def calibration_figure(results: Results, evidence: StudyEvidence, costs: Costs) -> Figure:
    """Mean micro ECE against cost, one mark per method."""
    panel = layered(_scatter(results, costs), calibration_costs(evidence, _panels(costs)))
    caption = (
        "Mean micro-averaged ECE over the tested shifts, with its 95 % interval over examples, "
        f"against cost in runs of {costs.plain}, on a logarithmic scale. Best is the lower left."
    )
    chart = _side_by_side(panel, SCATTER_HEIGHT)
    return Figure(
        "cost-against-calibration",
        caption,
        chart,
        legend_width(results),
        cells=NAMED_ROWS,
        by_method=True,
    )


def calibration_costs(evidence: StudyEvidence, table: polars.DataFrame) -> polars.DataFrame:
    """Return costs with the mean micro ECE of each series and its interval beside them."""
    found = evidence.table.filter(
        polars.col("shift").is_null(), kind="interval", figure="mean_micro_ece"
    )
    names = {"first": "series", "value": "ece", "low": "ece_low", "high": "ece_high"}
    bounds = found.select(polars.col(name).alias(alias) for name, alias in names.items())
    return table.join(bounds, on="series", maintain_order="left")


def _panels(costs: Costs) -> polars.DataFrame:
    return costs.table.with_columns(polars.col("phase").replace(COST_PANELS).alias("panel"))


def _side_by_side(panel: altair.LayerChart, height: int) -> altair.FacetChart:
    chart = grid(panel, "panel", dict.fromkeys(COST_PANELS.values(), False), height)
    chart.spec.width = WIDE
    wide: altair.FacetChart = chart.resolve_scale(x="independent")
    return wide


def _costs(results: Results, *, has_ensemble: bool) -> list[altair.Chart]:
    names = altair.Axis(grid=False, ticks=False, labelOverlap=False)
    base = altair.Chart().encode(
        y=altair.Y(
            "series:N", title=None, axis=names, scale=altair.Scale(domain=ranked_series(results))
        ),
        color=colour(results, "circle").legend(None),
    )
    rule = altair.Chart().mark_rule(strokeWidth=1)
    ensemble = rule.mark_rule(strokeDash=[1, 3], strokeWidth=1.5).encode(x="ensemble:Q")
    one = rule.mark_rule(strokeDash=[4, 3], opacity=0.6).encode(x=_cost("one:Q"))
    line = base.mark_rule(strokeWidth=2, opacity=0.6).encode(x="low:Q", x2="high:Q")
    dots = base.mark_circle(size=60, opacity=1).encode(x="mean:Q", tooltip=_tooltip())
    return [one, *([ensemble] if has_ensemble else []), line, dots]


def _scatter(results: Results, costs: Costs) -> list[altair.Chart]:
    series = list(results.series)
    shape = altair.Scale(domain=series, range=cycled(SHAPES, len(series)))
    title = "mean micro ECE"
    base = altair.Chart().encode(
        x=_cost("mean:Q", f"times {costs.plain}"), color=colour(results, "circle")
    )
    bounds = base.mark_rule(strokeWidth=2, opacity=0.4).encode(
        y=altair.Y("ece_low:Q", title=title), y2="ece_high:Q"
    )
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        y=altair.Y("ece:Q", title=title, scale=altair.Scale(zero=True)),
        shape=altair.Shape("series:N", title=None, scale=shape),
        tooltip=[*_tooltip(), *_error_tooltip()],
    )
    return [bounds, dots]


def _cost(field: str, title: str = "times the cost") -> altair.X:
    axis = altair.Axis(format="~g", tickCount=5)
    scale = altair.Scale(type="log", nice=False, padding=10)  # marks at the ends stay whole
    return altair.X(field, title=title, axis=axis, scale=scale)


def _tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("panel:N", title="cost of"),
        altair.Tooltip("seconds:Q", format=",.1f"),
        altair.Tooltip("mean:Q", title="times", format=".2f"),
        altair.Tooltip("low:Q", title="lowest seed", format=".2f"),
        altair.Tooltip("high:Q", title="highest seed", format=".2f"),
    ]


def _error_tooltip() -> list[altair.Tooltip]:
    return [
        altair.Tooltip("ece:Q", title="mean micro ECE", format=".3f"),
        altair.Tooltip("ece_low:Q", title="95 % from", format=".3f"),
        altair.Tooltip("ece_high:Q", title="to", format=".3f"),
    ]
