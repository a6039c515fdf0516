"""Confidence and entropy in domain and where nothing can be known: boxes, medians and means.

Truly out of distribution are, by the paper's rule, the last levels of tested shifts at which
accuracy is near random, and whole sets of outliers.
"""

import math

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.evaluation.under_shift import CLEAN, OUTLIER_LEVEL
from falconcal.report.charts.figure import NAMED_ROWS, ROW_HEIGHT, Figure, colour, grid
from falconcal.report.paper_tests import NEAR_RANDOM, ShiftLevel, near_chance_levels
from falconcal.report.ranking import ranked_series
from falconcal.report.results import Results, class_count, explaining_read_errors, open_scores
from falconcal.report.tables.comparison_tables import ComparisonTable
from falconcal.report.tables.headline_columns import NOT_KNOWN

IN_DOMAIN, LOST = "in domain", "truly out of distribution"
QUANTILES = {"low": 0.05, "first": 0.25, "median": 0.5, "third": 0.75, "high": 0.95}
BOX = 9
FULL = 1.22  # the end of the axis: past 1 stand the medians


def distribution_note(results: Results) -> str:
    """Say which examples stand where."""
    shifts = ", ".join(shift for shift, _ in near_chance_levels(results))
    rule = f"the mean accuracy of all runs is below {NEAR_RANDOM} at the last level"
    lost = (
        f"Truly out of distribution, by the paper's rule, is the last level of the tested shifts "
        f"under which {rule}: {shifts}."
        if shifts
        else f"No tested shift is truly out of distribution by the paper's rule, which is that "
        f"{rule}."
    )
    highest = math.log(class_count(results))
    return (
        f"In domain are the clean test examples. {lost} Where nothing can be known, confidence "
        f"should be low and entropy near its maximum, {highest:.2f} nats. Seeds are pooled."
    )


def distribution_groups(results: Results) -> dict[str, tuple[ShiftLevel, ...]]:
    """Return the groups of examples that are compared, without empty ones."""
    outliers = {name: ((name, OUTLIER_LEVEL),) for name in results.outliers}
    groups: dict[str, tuple[ShiftLevel, ...]] = {
        IN_DOMAIN: ((CLEAN, 0),),
        LOST: near_chance_levels(results),
    }
    return {name: levels for name, levels in (groups | outliers).items() if levels}


def distributions(results: Results) -> polars.DataFrame:
    """Return series, group, quantiles of confidence, mean entropy, accuracy and examples."""
    levels = [
        (group, shift, level)
        for group, listed in distribution_groups(results).items()
        for shift, level in listed
    ]
    groups = polars.DataFrame(levels, ["group", "shift", "level"], orient="row")
    order = groups.select("group").unique(maintain_order=True)
    parts = [_of_series(results, series, groups) for series in results.series]
    found = [order.join(part, on="group", maintain_order="left") for part in parts]
    return polars.concat(found)


def _of_series(results: Results, series: str, groups: polars.DataFrame) -> polars.DataFrame:
    runs = [run for run in results.runs if run.series == series]
    keys = polars.col("shift").cast(polars.String), polars.col("level").cast(polars.Int64)
    columns = ["label", "confidence", "entropy", "correct"]
    scores = polars.concat([open_scores(run).select(*keys, *columns) for run in runs])
    confidence = polars.col("confidence").cast(polars.Float64)
    known = (polars.col("label") >= 0).all()
    wanted = scores.join(groups.lazy(), on=["shift", "level"]).group_by("group")
    table = wanted.agg(
        *(confidence.quantile(share, "linear").alias(name) for name, share in QUANTILES.items()),
        polars.col("entropy").cast(polars.Float64).mean(),
        polars.when(known).then(polars.col("correct").mean()).alias("accuracy"),
        polars.len().alias("examples"),
    )
    with explaining_read_errors(runs[0].scores_file):
        return table.select(polars.lit(series).alias("series"), polars.all()).collect()


def distribution_tables(results: Results, table: polars.DataFrame) -> list[ComparisonTable]:
    """Return median confidence and mean entropy, one row per method, one column per group."""
    groups = table["group"].unique(maintain_order=True).to_list()
    cells = {(row["series"], row["group"]): row for row in table.to_dicts()}
    heading = ["Method", *(group[0].upper() + group[1:] for group in groups)]
    return [
        ComparisonTable(
            title,
            "",
            heading,
            [
                [series, *(_number(cells.get((series, group)), name) for group in groups)]
                for series in results.series
            ],
        )
        for title, name in (("Median confidence", "median"), ("Mean entropy in nats", "entropy"))
    ]


def _number(row: dict[str, float] | None, name: str) -> str:
    return NOT_KNOWN if row is None else f"{row[name]:.3f}"


def distribution_figures(results: Results) -> list[Figure]:
    """Return the figure; none where the study has clean data to show alone."""
    found = distributions(results)
    return [distribution_figure(results, found)] if found["group"].n_unique() > 1 else []


def distribution_figure(results: Results, table: polars.DataFrame) -> Figure:
    """Boxes of confidence, one panel per group of examples, one row per method."""
    medians = polars.Series("text", [f"{median:.2f}" for median in table["median"]], polars.String)
    groups = dict.fromkeys(table["group"], False)
    height = ROW_HEIGHT * len(results.series)
    chart = grid(layered(_layers(results), table.with_columns(medians)), "group", groups, height)
    caption = (
        "Confidences: boxes hold the middle half of the examples, lines nine tenths, the bar in a "
        "box and the number are the median. A diamond is the accuracy on the same examples, where "
        "they have a true class: confidence should be about there."
    )
    return Figure("confidence-distributions", caption, chart, 75, cells=NAMED_ROWS)


def _layers(results: Results) -> list[altair.Chart]:
    scale = altair.Scale(domain=[0, FULL], nice=False)
    axis = altair.Axis(values=[0, 0.5, 1], format="~g")
    names = altair.Axis(grid=False, ticks=False, labelOverlap=False)
    base = altair.Chart().encode(
        y=altair.Y(
            "series:N", title=None, axis=names, scale=altair.Scale(domain=ranked_series(results))
        ),
        color=colour(results, "square").legend(None),
    )
    line = base.mark_rule(strokeWidth=1.5, opacity=0.7).encode(
        x=altair.X("low:Q", title="confidence", scale=scale, axis=axis), x2="high:Q"
    )
    box = base.mark_bar(size=BOX, opacity=0.55).encode(
        x="first:Q", x2="third:Q", tooltip=_tooltip()
    )
    middle = base.mark_tick(thickness=2.5, size=BOX + 4).encode(x="median:Q", tooltip=_tooltip())
    right = base.mark_point(shape="diamond", size=38, strokeWidth=1.3).encode(
        x="accuracy:Q", color=altair.value("currentColor"), tooltip=_tooltip()
    )
    text = base.mark_text(align="right", fontSize=10).encode(
        x=altair.datum(FULL - 0.01), text="text:N", color=altair.value("currentColor")
    )
    return [line, box, middle, right, text]


def _tooltip() -> list[altair.Tooltip]:
    quartiles = {"median": "median", "first": "first quartile", "third": "third quartile"}
    return [
        altair.Tooltip("series:N", title="method"),
        altair.Tooltip("group:N", title="examples"),
        *(
            altair.Tooltip(f"{name}:Q", title=words, format=".3f")
            for name, words in quartiles.items()
        ),
        altair.Tooltip("low:Q", title="5 % below", format=".3f"),
        altair.Tooltip("high:Q", title="5 % above", format=".3f"),
        altair.Tooltip("accuracy:Q", format=".3f"),
        altair.Tooltip("examples:Q", title="number", format=",d"),
    ]
