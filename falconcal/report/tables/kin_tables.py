"""Shifts that are kin of what a method was fitted on: marks, and figures over the unseen alone.

Unseen is what is kin of nothing that any method of the study was fitted on, so that the means of
all methods are over the same shifts.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from falconcal.report.charts.chart_data import pooled_curves
from falconcal.report.results import Results
from falconcal.report.tables.headline_columns import NOT_KNOWN

KIN_MARK = " (kin)"
UNSEEN_MEAN = "mean of unseen shifts"
KIN_TITLE = "Over all tested shifts, and over the unseen ones alone"
KIN_NOTE = (
    "A figure is marked (kin) where the shift is, or resembles, one that the method was fitted on: "
    "there it shows less than on a shift that nobody foresaw."
)
UNSEEN_NOTE = (
    "Unseen are the shifts that are kin of nothing that any method here was fitted on. Lower and "
    "higher count the shifts on which the micro ECE of a method, its mean over seeds, is lower or "
    "higher than that of"
)
NOTHING_UNSEEN = (
    "No tested shift is unseen: methods here were fitted on each of them, or on its kin."
)


@dataclass(frozen=True)
class Standing:
    """How a method does over some shifts: its mean micro ECE, and where it is below plain's."""

    shifts: int
    mean_micro_ece: float | None
    lower: int | None = None  # than the plain method's, of which a study may have none
    higher: int | None = None


def with_kin_mark(text: str, results: Results, series: str, shift: str) -> str:
    """Return a figure with the mark, if the shift is kin of what the method was fitted on."""
    is_kin = text != NOT_KNOWN and shift in results.kin.get(series, ())
    return text + KIN_MARK if is_kin else text


def has_kin(results: Results, shifts: Iterable[str]) -> bool:
    """Return whether one of the shifts is kin of what a method was fitted on."""
    return not {shift for kin in results.kin.values() for shift in kin}.isdisjoint(shifts)


def unseen_shifts(results: Results) -> tuple[str, ...]:
    """Return the tested shifts that are kin of nothing that any method was fitted on."""
    seen = {shift for kin in results.kin.values() for shift in kin}
    return tuple(shift for shift in results.tested_shifts if shift not in seen)


def standings(results: Results, shifts: Iterable[str]) -> dict[str, Standing]:
    """Return how each method does over some shifts."""
    pooled = pooled_curves(results, "micro_ece").select("series", "shift", "mean").rows()
    errors: dict[str, dict[str, float]] = {series: {} for series in results.series}
    chosen = set(shifts)
    for series, shift, mean in pooled:
        if shift in chosen and mean is not None:
            errors[series][shift] = mean
    plain = errors.get(results.series_of(results.roles.plain) or "")
    return {series: _standing(own, plain) for series, own in errors.items()}


def _standing(own: dict[str, float], plain: dict[str, float] | None) -> Standing:
    mean = sum(own.values()) / len(own) if own else None
    if plain is None:
        return Standing(len(own), mean)
    both = [(own[shift], plain[shift]) for shift in own if shift in plain]
    lower, higher = (sum(one < two for one, two in both), sum(one > two for one, two in both))
    return Standing(len(own), mean, lower, higher)


def unseen_row(results: Results) -> list[list[str]]:
    """Return the row of means over the unseen shifts; none where every tested shift is unseen."""
    if not has_kin(results, results.tested_shifts):
        return []
    found = standings(results, unseen_shifts(results))
    return [[UNSEEN_MEAN, *(_figure(found[series]) for series in results.series)]]


def kin_cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows, one per method; no rows where no tested shift is kin."""
    unseen = unseen_shifts(results)
    heading = ["Method", "Kin", f"Mean micro ECE, all {len(results.tested_shifts)}"]
    heading += ["Lower / higher, all", f"Mean micro ECE, {len(unseen)} unseen"]
    heading += ["Lower / higher, unseen"]
    if not has_kin(results, results.tested_shifts):
        return heading, []
    everywhere, elsewhere = standings(results, results.tested_shifts), standings(results, unseen)
    rows = []
    for series in results.series:
        own = _cells(everywhere[series]) + _cells(elsewhere[series])
        rows.append([series, str(_kin_count(results, series)), *own])
    return heading, rows


def kin_note(results: Results) -> str:
    """Say what unseen is, what is counted, and which families each method was fitted on."""
    fitted = [
        f"{series} was fitted on {', '.join(names)}." for series, names in results.fitted_on.items()
    ]
    return " ".join([KIN_NOTE, f"{UNSEEN_NOTE} {plain_of(results)}.", *fitted])


def plain_of(results: Results) -> str:
    """Return the name of the method that the others are counted against."""
    return results.series_of(results.roles.plain) or "the plain method, which is not here"


def kin_json(results: Results) -> dict[str, Any]:
    """Return the same for machines; nothing where no shift is kin of anything."""
    if not has_kin(results, results.shifts):
        return {}
    unseen = unseen_shifts(results)
    everywhere, elsewhere = standings(results, results.tested_shifts), standings(results, unseen)
    methods = {
        series: {
            "fitted_on": list(results.fitted_on.get(series, ())),
            "kin": list(results.kin.get(series, ())),
            "all": asdict(everywhere[series]),
            "unseen": asdict(elsewhere[series]),
        }
        for series in results.series
    }
    return {"kin": {"note": KIN_NOTE, "unseen_shifts": list(unseen), "methods": methods}}


def _kin_count(results: Results, series: str) -> int:
    return len(set(results.kin.get(series, ())) & set(results.tested_shifts))


def _cells(standing: Standing) -> list[str]:
    if standing.lower is None:
        return [_figure(standing), NOT_KNOWN]
    return [_figure(standing), f"{standing.lower} / {standing.higher}"]


def _figure(standing: Standing) -> str:
    return NOT_KNOWN if standing.mean_micro_ece is None else f"{standing.mean_micro_ece:.3f}"
