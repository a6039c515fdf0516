"""The matrix of method against method: one panel per figure, coloured where beyond chance."""

import altair
import polars

from falconcal.drawing.layers import layered
from falconcal.drawing.theme import COLOURS
from falconcal.report.charts.figure import PANEL_WIDTH, Figure, grid
from falconcal.report.outcomes import ONE_SEED, WITHIN_CHANCE, outcome, turned
from falconcal.report.results import Results
from falconcal.report.study_evidence import BEYOND_CHANCE, EvidenceRow, StudyEvidence
from falconcal.report.tables.comparison_tables import HEADINGS, corrected_chance

COLOURED = {"row better": COLOURS[0], "row worse": COLOURS[1]}
MATRIX_CELL_WIDTH, MATRIX_CELL_HEIGHT = 46, 26
MAX_SIDE_BY_SIDE = 3  # methods whose matrices fit side by side; the page's script knows it too
CAPTION = (
    "The figure of the method in the row less that of the method in the column, on the same "
    f"examples; coloured where that is beyond chance (p below {BEYOND_CHANCE} after Holm's "
    "correction, several seeds), the stronger the larger it is. Accuracy is better higher, ECE "
    "lower."
)


def matrix_figures(results: Results, evidence: StudyEvidence) -> list[Figure]:
    """Return the matrix; a study of one method has none."""
    table = matrix_cells(evidence)
    return [] if table.is_empty() else [_matrix_figure(results, table)]


def matrix_cells(evidence: StudyEvidence) -> polars.DataFrame:
    """Return a cell for each figure and each two methods, both ways round."""
    rows = evidence.table.filter(kind="difference").to_dicts()
    sides = [side for row in rows for side in (row, turned(row))]
    cells = polars.DataFrame([_cell(side, evidence.resamples) for side in sides])
    if cells.is_empty():
        return cells
    strength = polars.col("difference").abs() / polars.col("difference").abs().max().over("figure")
    coloured = polars.col("verdict").is_in(list(COLOURED))
    return cells.with_columns(
        polars.when(coloured).then(0.15 + 0.6 * strength).otherwise(0.0).alias("opacity")
    )


def _cell(row: EvidenceRow, resamples: int) -> EvidenceRow:
    found, difference = outcome(row), float(row["value"] or 0)
    return {
        "figure": HEADINGS[str(row["figure"])],
        "row": row["first"],
        "column": row["second"],
        "difference": difference,
        "low": row["low"],
        "high": row["high"],
        "p": row["p_holm"],
        "chance": corrected_chance(row, resamples),
        "verdict": f"row {found}" if f"row {found}" in COLOURED else found,
        "label": f"{difference:+.3f}".replace("0.", ".", 1),
    }


def _matrix_figure(results: Results, table: polars.DataFrame) -> Figure:
    methods = len(results.series)
    seen = set(table["verdict"])
    verdicts = [name for name in (*COLOURED, WITHIN_CHANCE, ONE_SEED) if name in seen]
    panel = layered(_layers(list(results.series), verdicts), table)
    figures = dict.fromkeys(table["figure"], False)
    chart = grid(panel, "figure", figures, height=MATRIX_CELL_HEIGHT * methods)
    chart.columns = len(figures) if methods <= MAX_SIDE_BY_SIDE else 2
    chart.spec.width = max(PANEL_WIDTH, MATRIX_CELL_WIDTH * methods)
    # the legend starts where the panel does, so a narrow page has room for one entry per line
    return Figure("method-against-method", CAPTION, chart, 180, cells=methods)


def _layers(series: list[str], verdicts: list[str]) -> list[altair.Chart]:
    scale, axis = altair.Scale(domain=series), altair.Axis(grid=False, ticks=False)
    upright = altair.Axis(grid=False, ticks=False, labelAngle=-40, labelOverlap=False)
    base = altair.Chart().encode(
        x=altair.X("column:N", title=None, scale=scale, axis=upright),
        y=altair.Y("row:N", title=None, scale=scale, axis=axis),
    )
    cells = base.mark_rect(stroke="currentColor", strokeOpacity=0.12).encode(
        color=altair.Color(
            "verdict:N",
            title=None,
            scale=altair.Scale(
                domain=verdicts, range=[COLOURED.get(name, "transparent") for name in verdicts]
            ),
            legend=altair.Legend(symbolType="square", symbolStrokeColor="currentColor"),
        ),
        fillOpacity=altair.FillOpacity("opacity:Q", scale=None),
        tooltip=_tooltip(),
    )
    numbers = base.mark_text(fontSize=10 if len(series) <= 7 else 9).encode(text="label:N")
    return [cells, numbers]


def _tooltip() -> list[altair.Tooltip]:
    return [
        *(altair.Tooltip(f"{name}:N") for name in ("figure", "row", "column")),
        altair.Tooltip("difference:Q", title="row less column", format="+.4f"),
        altair.Tooltip("low:Q", title="95 % from", format="+.4f"),
        altair.Tooltip("high:Q", title="to", format="+.4f"),
        altair.Tooltip("chance:N", title="p (Holm)"),
        altair.Tooltip("verdict:N"),
    ]
