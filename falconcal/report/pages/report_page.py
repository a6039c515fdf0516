"""The page: one file that asks nothing of the network."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import polars
from markupsafe import Markup

from falconcal.evaluation.under_shift import CLEAN
from falconcal.metrics.metric import Better
from falconcal.report.charts.by_level import (
    ACCURACY,
    CONFIDENCE,
    ECE,
    ENTROPY,
    NLL,
    history_figures,
    level_figure,
    pooled_figure,
)
from falconcal.report.charts.cost_charts import cost_figures
from falconcal.report.charts.distributions import (
    distribution_figures,
    distribution_note,
    distribution_tables,
    distributions,
)
from falconcal.report.charts.engine import scripts
from falconcal.report.charts.figure import CHOSEN_ON, Figure
from falconcal.report.charts.headline_chart import headline_figure
from falconcal.report.charts.matrix import matrix_figures
from falconcal.report.charts.outlier_charts import (
    OUTLIER_COLUMNS,
    OUTLIERS_NOTE,
    outlier_figures,
    outlier_tables,
)
from falconcal.report.charts.recalibration_charts import recalibration_figures
from falconcal.report.charts.reliability_figures import reliability_by_shift
from falconcal.report.charts.variant_charts import variant_figures
from falconcal.report.outcomes import ONE_SEED_NOTE, rests_on_one_seed
from falconcal.report.pages.explorer import explorer_data
from falconcal.report.ranking import MANY, first_shown, ranked_series
from falconcal.report.results import Results, StoredRun
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.best_cells import BEFORE_FIGURES, best_of_columns
from falconcal.report.tables.comparison_tables import (
    DIFFERENCES_NOTE,
    difference_tables,
    interval_texts,
    test_tables,
    tests_note,
)
from falconcal.report.tables.conformal_tables import conformal_tables
from falconcal.report.tables.costs import cost_tables, costs_of
from falconcal.report.tables.csv_files import summary_csv
from falconcal.report.tables.headline_columns import HEADLINE, SELECTION
from falconcal.report.tables.kin_tables import KIN_NOTE, KIN_TITLE, has_kin, kin_cells, kin_note
from falconcal.report.tables.metric_means import METRICS_NOTE, means_by_metric
from falconcal.report.tables.paper_values import PUBLISHED_NOTE, paper_cells
from falconcal.report.tables.summary import (
    SELECTION_NOTE,
    seeds_note,
    shift_rows,
    summary_cells,
    tested_shift_rows,
)
from falconcal.report.verdicts import answer, compared_with, verdicts

TEMPLATES = Path(__file__).parents[1] / "templates"


@dataclass(frozen=True, eq=False)
class Section:
    """A heading of the page with its figures."""

    anchor: str
    heading: str
    figures: list[Figure]


@dataclass(frozen=True)
class Cell:
    """Text with smaller text below it, whether it is the best, and which values are better."""

    text: str
    below: str = ""
    best: bool = False
    better: Better | None = None


@dataclass(frozen=True)
class HtmlTable:
    """Text in rows; the first cell of a row names it."""

    heading: list[str]
    rows: Sequence[Sequence[str | Cell]]
    better: Sequence[Better | None] = ()  # which values of each column are better, where known


def sections(results: Results, evidence: StudyEvidence) -> list[Section]:
    """Return all figures in the order of the page."""
    return [
        Section("verdict", "Verdict", [headline_figure(results)]),
        Section(
            "reliability", "Reliability, methods side by side", [reliability_by_shift(results)]
        ),
        Section("comparison", "Method against method", matrix_figures(results, evidence)),
        Section("variants", "Variants", variant_figures(results)),
        Section("shifts", "Calibration of each shift", [pooled_figure(results)]),
        Section("ece", "Calibration by level", [level_figure(results, ECE)]),
        Section("accuracy", "Accuracy by level", [level_figure(results, ACCURACY)]),
        Section(
            "certainty",
            "Confidence, entropy and likelihood by level",
            [level_figure(results, quantity) for quantity in (CONFIDENCE, ENTROPY, NLL)],
        ),
        Section("recalibration", "After recalibration", recalibration_figures(results)),
        Section(
            "outside",
            "In domain and truly out of distribution",
            distribution_figures(results),
        ),
        Section("outliers", "Outliers", outlier_figures(results)),
        Section("cost", "Cost", cost_figures(results, evidence, costs_of(results))),
        Section("history", "Training", history_figures(results)),
    ]


def render(
    results: Results, summary: polars.DataFrame, evidence: StudyEvidence, parts: list[Section]
) -> str:
    """Return the page as HTML."""
    return render_template(
        "report.html.jinja",
        results=results,
        sections={part.anchor: part for part in parts},
        explorer=explorer_data(results),
        rows_csv=summary_csv(results),
        **_answers(results, summary, evidence),
        **_summaries(results, summary, evidence),
        **_tables_of_shifts(results),
        **_tables_of_outliers(results, evidence),
        **_records(results),
    )


def _answers(
    results: Results, summary: polars.DataFrame, evidence: StudyEvidence
) -> dict[str, object]:
    """Return what stands at the top of the page: what was tested, the answer, the verdicts."""
    return {
        "tested": _tested_count(results),
        "answer": answer(results, summary, evidence),
        "verdicts": verdicts(results, summary, evidence),
        "compared_with": compared_with(results),
        "first_shown": first_shown(results),
        "many": len(results.series) > MANY,
        "one_seed": rests_on_one_seed(evidence),
        "one_seed_note": ONE_SEED_NOTE,
    }


def _summaries(
    results: Results, summary: polars.DataFrame, evidence: StudyEvidence
) -> dict[str, object]:
    """Return the headline, the comparisons with their tests, and the paper's figures."""
    return {
        "headline": _headline(results, summary, evidence),
        "columns": HEADLINE,
        "seeds_note": seeds_note(summary),
        "resamples": evidence.resamples,
        "difference_tables": difference_tables(evidence),
        "differences_note": DIFFERENCES_NOTE,
        "test_tables": test_tables(evidence),
        "tests_note": tests_note(evidence),
        "published": HtmlTable(*paper_cells(results, summary)),
        "published_note": PUBLISHED_NOTE,
        "selection": HtmlTable(*summary_cells(summary, SELECTION)),
        "selection_note": SELECTION_NOTE,
    }


def _tables_of_shifts(results: Results) -> dict[str, object]:
    """Return what the page says of metrics and shifts, with an image of each shift."""
    return {
        "metric_table": _metric_table(results),
        "metrics_note": METRICS_NOTE,
        "shift_table": _shift_table(results),
        "mark_note": KIN_NOTE if has_kin(results, results.shifts) else "",
        "kin": HtmlTable(*kin_cells(results)),
        "kin_title": KIN_TITLE,
        "kin_note": kin_note(results),
        "chosen_on": CHOSEN_ON,
        "images": {shift: _data_uri(file) for shift, file in results.examples.items()},
    }


def _tables_of_outliers(results: Results, evidence: StudyEvidence) -> dict[str, object]:
    """Return what the page says of outliers, of confidences there, and of conformal sets."""
    images = {name: _data_uri(file) for name, file in results.outlier_examples.items()}
    return {
        "outlier_images": images,
        "outlier_tables": outlier_tables(results, evidence),
        "outliers_note": OUTLIERS_NOTE,
        "outlier_columns": OUTLIER_COLUMNS,
        "distribution_tables": distribution_tables(results, distributions(results)),
        "distribution_note": distribution_note(results),
        "conformal_tables": conformal_tables(results),
    }


def _records(results: Results) -> dict[str, object]:
    """Return what the runs cost, their settings, and what they recorded."""
    return {
        "cost_tables": cost_tables(results, costs_of(results)),
        "study": {name: value for name, value in results.study.items() if name != "methods"},
        "settings": {series: _settings(results, series) for series in results.series},
        "common_record": _common(run.record for run in results.runs),
        "record_table": _record_table(results.runs),
    }


def render_template(template: str, **values: object) -> str:
    """Return a template filled in: all text escaped, the scripts that draw figures inside."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals["shown"] = format_setting
    return environment.get_template(template).render(**values, bundle=_bundle())


def format_setting(value: Any) -> str:
    """Return a setting as text: numbers as they are, lists and the rest as JSON without quotes."""
    if isinstance(value, list):
        return ", ".join(format_setting(item) for item in value) or "none"
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _bundle() -> Markup:
    """Return the scripts that draw the figures; they are the only text not escaped."""
    script = scripts()
    # inside a script element these two would end it, or keep it from ending
    return Markup(script.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _headline(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> HtmlTable:
    """Return the headline table, ranked: the interval of each figure below it, the best marked."""
    heading, rows = summary_cells(summary, HEADLINE)
    order = ranked_series(results)
    rows.sort(key=lambda row: order.index(row[0]))
    best, bounds = best_of_columns(rows, HEADLINE), interval_texts(evidence)
    cells: list[list[str | Cell]] = []
    for row, texts in enumerate(rows):
        named = enumerate(texts[BEFORE_FIGURES:], start=BEFORE_FIGURES)
        below = [bounds.get((texts[0], column.name), "") for column in HEADLINE]
        figures = [
            Cell(text, interval, (row, place) in best)
            for (place, text), interval in zip(named, below, strict=True)
        ]
        cells.append([*texts[:BEFORE_FIGURES], *figures])
    better = [*[None] * BEFORE_FIGURES, *(column.better for column in HEADLINE)]
    return HtmlTable(heading, cells, better)


def _tested_count(results: Results) -> str:
    """Return how many examples were tested and what they are, such as "450 test images"."""
    if "examples" not in results.rows.columns:
        return f"test {results.inputs}"
    (number,) = results.rows.filter(shift=CLEAN).select(polars.col("examples").max()).row(0)
    return f"{number:,} test {results.inputs}"


def _metric_table(results: Results) -> HtmlTable:
    rows: list[list[str | Cell]] = [
        [heading, *(Cell(clean, f"shifted {shifted}") for clean, shifted in cells)]
        for heading, cells in means_by_metric(results).items()
    ]
    return _readable(results, HtmlTable(["Metric", *results.series], rows))


def _shift_table(results: Results) -> HtmlTable:
    rows: list[list[str | Cell]] = [list(row) for row in tested_shift_rows(results)]
    for name, *figures in shift_rows(results, results.selection_shifts):
        rows.append([f"{name} ({CHOSEN_ON})", *figures])
    return _readable(results, HtmlTable(["Shift", *results.series], rows))


def _readable(results: Results, table: HtmlTable) -> HtmlTable:
    """Return a table with one column per method, or, of many methods, with one row per method."""
    if len(results.series) <= MANY:
        return table
    places = {name: place for place, name in enumerate(table.heading)}
    names = [str(row[0]) for row in table.rows]
    rows: list[list[str | Cell]] = [
        [series, *(row[places[series]] for row in table.rows)] for series in ranked_series(results)
    ]
    return HtmlTable(["Method", *names], rows)


def _settings(results: Results, series: str) -> dict[str, Any]:
    """Return the settings of a series; one that differs between seeds shows all its values."""
    runs = [run.settings for run in results.runs if run.series == series]
    together: dict[str, Any] = {}
    for name in dict.fromkeys(name for settings in runs for name in settings):
        found = [settings.get(name) for settings in runs]
        together[name] = found[0] if all(value == found[0] for value in found) else found
    return together


def _common(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what every run recorded alike."""
    first, *others = records
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def _record_table(runs: tuple[StoredRun, ...]) -> HtmlTable:
    """Return what the runs recorded, where they differ: times before all."""
    common = _common(run.record for run in runs)
    names = dict.fromkeys(name for run in runs for name in run.record if name not in common)
    rows = [
        [run.series, str(run.key.seed), *(_recorded(name, run.record.get(name)) for name in names)]
        for run in runs
    ]
    return HtmlTable(["Method", "Seed", *(name.replace("_", " ") for name in names)], rows)


def _recorded(name: str, value: Any) -> str:
    if name.endswith("_seconds") and isinstance(value, int | float):
        return f"{value:,.1f}"
    return format_setting(value)


def _data_uri(file: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
