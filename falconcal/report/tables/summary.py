"""The headline: one row per method, and the pooled calibration error of each shift.

A figure is made for every seed alone, then averaged over seeds with the standard deviation beside.
Shifts that served to choose settings stand apart and enter no headline mean.
"""

from collections.abc import Iterable
from typing import Any

import polars

from falconcal.evaluation.under_shift import CLEAN
from falconcal.report.charts.chart_data import MEAN_OF_SHIFTS, pooled_curves
from falconcal.report.charts.distributions import (
    distribution_note,
    distribution_tables,
    distributions,
)
from falconcal.report.charts.outlier_charts import OUTLIER_COLUMNS, OUTLIERS_NOTE, outlier_tables
from falconcal.report.outcomes import ONE_SEED_NOTE, rests_on_one_seed
from falconcal.report.results import Results
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.comparison_tables import (
    DIFFERENCES_NOTE,
    ComparisonTable,
    difference_tables,
    interval_cells,
    intervals_note,
    test_tables,
    tests_note,
)
from falconcal.report.tables.costs import cost_tables, costs_of
from falconcal.report.tables.headline_columns import HEADLINE, NOT_KNOWN, SELECTION, Column
from falconcal.report.tables.kin_tables import (
    KIN_NOTE,
    KIN_TITLE,
    has_kin,
    kin_cells,
    kin_note,
    unseen_row,
    with_kin_mark,
)
from falconcal.report.tables.paper_values import PUBLISHED_NOTE, paper_cells
from falconcal.report.verdicts import answer, verdicts

RUN_KEYS = ["variant", "method", "series", "seed"]
DEVIATION_SUFFIX = "_deviation"


def make_summary(results: Results) -> polars.DataFrame:
    """Return one row per method: means over seeds, standard deviations where seeds allow one.

    The deviation of a figure stands beside it, its name ending in ``_deviation``. It is empty for a
    single seed, as are the selection columns of a study without such shifts.
    """
    names = [column.name for column in HEADLINE + SELECTION]
    seeds = _figures_by_seed(results)
    table = seeds.group_by("variant", "method", "series", maintain_order=True).agg(
        polars.len().alias("seeds"),
        *[polars.col(names).mean(), polars.col(names).std().name.suffix(DEVIATION_SUFFIX)],
    )
    beside = [name for figure in names for name in (figure, figure + DEVIATION_SUFFIX)]
    return table.select("variant", "method", "series", "seeds", *beside)


def markdown(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> str:
    """Return the summary as Markdown, with a note on what each figure is."""
    parts = [
        f"# {_plain(results.title)}",
        *(_plain(note) for note in results.notes),
        *_verdict(results, summary, evidence),
        markdown_table(*summary_cells(summary, HEADLINE)),
        ONE_SEED_NOTE if rests_on_one_seed(evidence) else seeds_note(summary),
        _column_meanings(HEADLINE),
        READING,
        *_beside_paper(results, summary),
        "## 95 % intervals",
        markdown_table(*interval_cells(evidence, HEADLINE)),
        intervals_note(evidence),
        *_comparisons(evidence),
        "## Micro-averaged ECE of each tested shift",
        markdown_table(["Shift", *results.series], tested_shift_rows(results)),
        *_kin(results),
        "## In domain and truly out of distribution",
        _plain(distribution_note(results)),
        *_tables(distribution_tables(results, distributions(results))),
        *_outliers(results, evidence),
        *_selection(results, summary),
    ]
    for table in cost_tables(results, costs_of(results)):
        parts += ["## Cost", _plain(table.note), markdown_table(table.heading, table.rows)]
    return "\n\n".join(parts) + "\n"


def _verdict(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> list[str]:
    """Return the answer and one line per method, the best first."""
    found = verdicts(results, summary, evidence)
    lines = "\n".join(f"- **{_plain(one.series)}**: {_plain(one.words)}" for one in found)
    return [f"**{_plain(answer(results, summary, evidence))}**", lines]


def _outliers(results: Results, evidence: StudyEvidence) -> list[str]:
    if not results.outliers:
        return []
    tables = _tables(outlier_tables(results, evidence))
    return ["## Outliers", OUTLIERS_NOTE, *tables, _column_meanings(OUTLIER_COLUMNS)]


def _kin(results: Results) -> list[str]:
    """Return what the methods do over the unseen shifts; nothing where none is kin."""
    heading, rows = kin_cells(results)
    if not rows:
        return []
    return [f"### {KIN_TITLE}", _plain(kin_note(results)), markdown_table(heading, rows)]


def _selection(results: Results, summary: polars.DataFrame) -> list[str]:
    if not results.selection_shifts:
        return []
    rows = shift_rows(results, results.selection_shifts)
    return [
        "## Shifts used to choose settings",
        f"{SELECTION_NOTE} They enter no figure above.",
        markdown_table(*summary_cells(summary, SELECTION)),
        markdown_table(["Shift", *results.series], rows),
        *([KIN_NOTE] if has_kin(results, results.selection_shifts) else []),
    ]


def _column_meanings(columns: Iterable[Column]) -> str:
    return "\n".join(f"- **{column.heading}**: {column.meaning}." for column in columns)


SELECTION_NOTE = (
    "The methods' settings were chosen under these shifts, so these figures are no evidence of "
    "what a method does under other shifts."
)
READING = (
    "ECE, the expected calibration error, is the mean distance between confidence and accuracy "
    "over 10 bins of confidence: 0 is best. Read it beside the accuracy: a model that knows "
    "nothing and has low confidence is calibrated."
)


def summary_cells(
    summary: polars.DataFrame, columns: tuple[Column, ...], deviations: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table as text, the deviation beside each mean."""
    heading = ["Method", "Seeds", *(column.heading for column in columns)]
    rows = [
        [row["series"], str(row["seeds"]), *(_cell(column, row, deviations) for column in columns)]
        for row in summary.to_dicts()
    ]
    return heading, rows


def seeds_note(summary: polars.DataFrame) -> str:
    """Say what stands beside a mean."""
    counts = summary["seeds"].unique().sort().to_list()
    if counts == [1]:
        return "One seed each: how much another seed would change a figure is not known."
    runs = " to ".join(dict.fromkeys((str(counts[0]), str(counts[-1]))))
    return f"Means over {runs} seeds, ± the standard deviation between seeds."


def shift_rows(results: Results, shifts: Iterable[str]) -> list[list[str]]:
    """Return a row of text for each shift: its name, then the micro ECE of every series.

    A figure is marked where the shift is kin of what the series was fitted on.
    """
    pooled = pooled_curves(results, "micro_ece").select("series", "shift", "mean")
    means = {(series, shift): mean for series, shift, mean in pooled.rows()}
    return [
        [
            shift,
            *(
                with_kin_mark(_number(means.get((series, shift))), results, series, shift)
                for series in results.series
            ),
        ]
        for shift in shifts
    ]


def tested_shift_rows(results: Results) -> list[list[str]]:
    """Return the rows of the tested shifts, of their mean, and of the mean of the unseen ones."""
    return shift_rows(results, (*results.tested_shifts, MEAN_OF_SHIFTS)) + unseen_row(results)


def _figures_by_seed(results: Results) -> polars.DataFrame:
    clean = results.rows.filter(polars.col("shift") == CLEAN)
    parts = [
        clean.filter(metric="accuracy").select(*RUN_KEYS, accuracy="value"),
        clean.filter(metric="ece").select(*RUN_KEYS, clean_ece="value"),
        _mean_pooled(results, "micro_ece", results.tested_shifts, "mean_micro_ece"),
        _mean_pooled(results, "macro_ece", results.tested_shifts, "mean_macro_ece"),
        _last_level_confidence(results),
        _training_seconds(results),
        _mean_pooled(results, "micro_ece", results.selection_shifts, "selection_micro_ece"),
        _mean_pooled(results, "macro_ece", results.selection_shifts, "selection_macro_ece"),
    ]
    table = _order(results)
    for part in parts:
        table = table.join(part, on=RUN_KEYS, how="left", maintain_order="left")
    return table


def _order(results: Results) -> polars.DataFrame:
    keys = [(run.key.variant, run.key.method, run.series, run.key.seed) for run in results.runs]
    schema = dict(zip(RUN_KEYS, [*[polars.String] * 3, polars.Int64], strict=True))
    return polars.DataFrame(keys, schema=schema, orient="row")


def _mean_pooled(
    results: Results, metric: str, shifts: tuple[str, ...], name: str
) -> polars.DataFrame:
    pooled = results.rows.filter(
        polars.col("shift").is_in(shifts),
        polars.col("level").is_null(),
        polars.col("metric") == metric,
    )
    return pooled.group_by(RUN_KEYS).agg(polars.col("value").mean().alias(name))


def _last_level_confidence(results: Results) -> polars.DataFrame:
    at_levels = results.rows.filter(
        polars.col("shift").is_in(results.tested_shifts),
        polars.col("level").is_not_null(),
        polars.col("metric") == "confidence",
    )
    last = at_levels.filter(polars.col("level") == polars.col("level").max().over("shift"))
    return last.group_by(RUN_KEYS).agg(polars.col("value").mean().alias("last_level_confidence"))


def _training_seconds(results: Results) -> polars.DataFrame:
    seconds = [run.record.get("training_seconds") for run in results.runs]
    return _order(results).with_columns(
        polars.Series("training_seconds", seconds, polars.Float64, strict=False)
    )


def _cell(column: Column, row: dict[str, Any], deviations: bool) -> str:
    figures = (row[column.name], row[column.name + DEVIATION_SUFFIX] if deviations else None)
    known = [f"{value:,.{column.digits}f}" for value in figures if value is not None]
    return " ± ".join(known) + column.unit if known else NOT_KNOWN


def _number(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.3f}"


def _beside_paper(results: Results, summary: polars.DataFrame) -> list[str]:
    """Return the paper's figures beside ours; a study that the paper does not have has none."""
    heading, rows = paper_cells(results, summary)
    if not rows:
        return []
    return ["## Beside the paper", markdown_table(heading, rows), PUBLISHED_NOTE]


def _comparisons(evidence: StudyEvidence) -> list[str]:
    """Return the comparisons of methods; a study of one method has none."""
    kinds = [
        ("## Method against method", difference_tables(evidence), DIFFERENCES_NOTE),
        ("## The paper's tests", test_tables(evidence), tests_note(evidence)),
    ]
    parts = []
    for heading, tables, note in kinds:
        parts += [heading, _plain(note), *_tables(tables)] if tables else []
    return parts


def _tables(tables: Iterable[ComparisonTable]) -> list[str]:
    parts = []
    for table in tables:
        parts += [f"### {_plain(table.title)}", *([_plain(table.note)] if table.note else [])]
        parts.append(markdown_table(table.heading, table.rows))
    return parts


def markdown_table(heading: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(heading) - 1)]
    lines = [heading, rule, *rows]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines)


def _plain(text: str) -> str:
    """Keep a name from being read as markup: Markdown may hold HTML, and a bar ends a cell."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.replace("|", "\\|").split())
