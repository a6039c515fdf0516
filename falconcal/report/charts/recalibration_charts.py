"""What recalibration does to a method under shift: ECE by level, base and recalibrated paired."""

from falconcal.report.charts.by_level import ECE, LEVELS_NOTE, SEEDS_NOTE, file_names, level_chart
from falconcal.report.charts.figure import Figure, legend_width
from falconcal.report.results import Results


def recalibrated(results: Results) -> dict[str, list[str]]:
    """Return each series whose models others of the study recalibrated, and these others.

    A run that recalibrated the model of another has recorded of which.
    """
    names = {str(run.key): run.series for run in results.runs}
    found: dict[str, list[str]] = {}
    for run in results.runs:
        base = names.get(str(run.record.get("base")))
        if base is not None and run.series not in found.setdefault(base, []):
            found[base].append(run.series)
    return found


def recalibration_figures(results: Results) -> list[Figure]:
    """Return a figure for each base; a study that recalibrates nothing has none."""
    pairs = recalibrated(results)
    names = file_names(pairs)
    return [_figure(results, base, others, names[base]) for base, others in pairs.items()]


def _figure(results: Results, base: str, others: list[str], name: str) -> Figure:
    chart = level_chart(results, ECE, [base, *others])
    words = f"{base} as it was trained and after {', '.join(others)}, on the same trained models."
    caption = f"{words} {ECE.caption} {LEVELS_NOTE} {SEEDS_NOTE}"
    return Figure(f"recalibration-{name}", caption, chart, legend_width(results))
