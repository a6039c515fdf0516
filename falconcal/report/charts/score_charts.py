"""The figures of one set of predictions: reliability, confidence, risk and coverage, groups."""

import altair
import polars

from falconcal.drawing.layers import HOVER_SIZE, layered
from falconcal.drawing.reliability_chart import MOST_COUNTED, reliability_panel
from falconcal.drawing.theme import COLOURS
from falconcal.evaluation.assessment import HISTOGRAM_CELLS, Assessment
from falconcal.metrics.reliability_bins import reliability_bins_table
from falconcal.report.charts.figure import Figure

RIGHT, WRONG = COLOURS[0], COLOURS[1]
MOST_SHOWN = 20  # groups in the figure
SCORE_CHART_WIDTH, SCORE_CHART_HEIGHT = 420, 190


def score_figures(found: Assessment) -> list[Figure]:
    """Return all figures in the order of the page."""
    figures = [reliability_figure(found), _histogram(found), _risk_coverage(found)]
    return [*figures, _groups(found)] if found.groups else figures


def reliability_table(found: Assessment) -> polars.DataFrame:
    """Return the bins that hold examples, with the bounds of their accuracy."""
    return reliability_bins_table(found.reliability)


def bins_words(found: Assessment) -> str:
    return "1 bin" if found.bins == 1 else f"{found.bins} bins"


def reliability_figure(found: Assessment) -> Figure:
    counted = found.bins <= MOST_COUNTED
    where = "The number over each bin is that of its examples, the" if counted else "The"
    caption = (
        f"Reliability: accuracy against confidence in {bins_words(found)}. On the dashed diagonal "
        "confidence is accuracy; below it the model is too sure. Thick bars are the gaps, "
        f"thin ones 95 % intervals of the accuracy (Wilson). {where} area of a dot is its share."
    )
    panel = reliability_panel(reliability_table(found), counted=counted)
    return Figure("reliability", caption, _alone(panel, SCORE_CHART_WIDTH), 75, square=True)


def _histogram(found: Assessment) -> Figure:
    wrong, right = found.histogram.tolist()
    parts = {f"right answers: {sum(right):,}": right, f"wrong answers: {sum(wrong):,}": wrong}
    answers = [(name, *cell) for name, counts in parts.items() for cell in enumerate(counts)]
    table = polars.DataFrame(answers, ["answers", "cell", "counts"], orient="row").with_columns(
        (polars.col("cell") / HISTOGRAM_CELLS).alias("from"),
        ((polars.col("cell") + 1) / HISTOGRAM_CELLS).alias("to"),
    )
    # nothing at all has no scale
    filled = table.filter(polars.col("counts").sum().over("answers") > 0)
    row = altair.Row("answers:N", sort=list(parts), header=_heading())
    panel = layered([_bars(list(parts))], filled).properties(
        width=SCORE_CHART_WIDTH, height=SCORE_CHART_HEIGHT * 0.8
    )
    chart = panel.facet(row=row, spacing=10).resolve_scale(y="independent")
    caption = (
        "Confidence of right and of wrong answers, each with a scale of its own. Wrong answers "
        "should stand to the left: what is wrong with high confidence does the harm."
    )
    return Figure("confidence-histogram", caption, chart, 75)


def _bars(names: list[str]) -> altair.Chart:
    scale = altair.Scale(domain=[0, 1])
    colour = altair.Scale(domain=names, range=[RIGHT, WRONG])
    bars: altair.Chart = (
        altair.Chart()
        .mark_bar(opacity=0.85, binSpacing=1)
        .encode(
            x=altair.X("from:Q", title="confidence", scale=scale, bin="binned"),
            x2="to:Q",
            y=altair.Y("counts:Q", title="examples", axis=altair.Axis(tickCount=4, format="~s")),
            color=altair.Color("answers:N", scale=colour, legend=None),
            tooltip=[
                altair.Tooltip("from:Q", title="confidence above", format=".2f"),
                altair.Tooltip("to:Q", title="up to", format=".2f"),
                altair.Tooltip("counts:Q", title="examples", format=",d"),
            ],
        )
    )
    return bars


def _risk_coverage(found: Assessment) -> Figure:
    curve = found.risk_coverage
    table = polars.DataFrame(
        {
            "coverage": curve.coverage.numpy(),
            "risk": curve.risk.numpy(),
            "threshold": curve.threshold.numpy(),
        }
    ).with_columns(polars.col("risk").last().alias("all"))
    caption = (
        "Risk and coverage: the error among the answers when only the most confident share is "
        "answered. It should rise from 0 towards the right; the dashed line is the error when all "
        "are answered."
    )
    highest = max(0.01, float(curve.risk.max()))  # an error of 0 throughout has no scale
    chart = _alone(layered(_risk_marks(highest), table), SCORE_CHART_HEIGHT * 2)
    return Figure("risk-coverage", caption, chart, 75)


def _risk_marks(highest: float) -> list[altair.Chart]:
    percent = altair.Axis(format=".0%", tickCount=6)
    base = altair.Chart().encode(
        x=altair.X(
            "coverage:Q", title="share answered", axis=percent, scale=altair.Scale(domain=[0, 1])
        )
    )
    scale = altair.Scale(domain=[0, highest], nice=True)
    axis = altair.Axis(format="~%", tickCount=5)
    risk = altair.Y("risk:Q", title="error among answers", scale=scale, axis=axis)
    hints = [
        altair.Tooltip("coverage:Q", title="share answered", format=".1%"),
        altair.Tooltip("risk:Q", title="error", format=".2%"),
        altair.Tooltip("threshold:Q", title="confidence at least", format=".4f"),
    ]
    whole = base.mark_line(color="currentColor", strokeDash=[4, 3], strokeWidth=1, opacity=0.6)
    line = base.mark_line(color=RIGHT, strokeWidth=2)
    hover = base.mark_circle(size=HOVER_SIZE, opacity=0)
    return [
        whole.encode(y="all:Q"),
        line.encode(y=risk),
        hover.encode(y=risk, tooltip=hints),
    ]


def _groups(found: Assessment) -> Figure:
    worst = found.groups[:MOST_SHOWN]
    table = polars.DataFrame(
        {
            "group": [group.name for group in worst],
            "examples": [group.examples for group in worst],
            "value": [group.interval.value for group in worst],
            "low": [group.interval.low for group in worst],
            "high": [group.interval.high for group in worst],
        }
    )
    shown = (
        f"the worst {MOST_SHOWN} of {len(found.groups)}" if len(found.groups) > MOST_SHOWN else ""
    )
    caption = (
        f"{found.group_metric} by group{f', {shown}' if shown else ''}, the worst first, with 95 % "
        "intervals. Small groups have wide intervals: the worst of many may be so by chance."
    )
    panel = layered(_group_marks(found.group_metric, table["group"].to_list()), table)
    return Figure("groups", caption, _alone(panel, altair.Step(20)), 75)


def _group_marks(metric: str, names: list[str]) -> list[altair.Chart]:
    base = altair.Chart().encode(
        y=altair.Y("group:N", sort=names, title=None, axis=altair.Axis(labelLimit=140))
    )
    spread = base.mark_rule(color=RIGHT, strokeWidth=2, opacity=0.5).encode(
        x=altair.X("low:Q", title=metric, axis=altair.Axis(tickCount=5)), x2="high:Q"
    )
    hints = [
        altair.Tooltip("group:N"),
        altair.Tooltip("examples:Q", format=",d"),
        altair.Tooltip("value:Q", title=metric, format=".4f"),
        altair.Tooltip("low:Q", title="at least", format=".4f"),
        altair.Tooltip("high:Q", title="at most", format=".4f"),
    ]
    dots = base.mark_circle(color=RIGHT, size=HOVER_SIZE, opacity=1).encode(
        x=altair.X("value:Q", title=metric), tooltip=hints
    )
    return [spread, dots]


def _alone(panel: altair.LayerChart, height: float | altair.Step) -> altair.FacetChart:
    """Return a panel as a row of its own, which a page gives its whole width."""
    row = altair.Row("panel:N", header=altair.Header(labels=False, title=None))
    chart: altair.FacetChart = (
        panel.properties(width=SCORE_CHART_WIDTH, height=height)
        .transform_calculate(panel="''")
        .facet(row=row)
    )
    return chart


def _heading() -> altair.Header:
    return altair.Header(title=None, labelOrient="top", labelAnchor="start")
