"""What training and measuring cost: in trainings of a plain network, and of an ensemble's members.

The paper counts the carbon that its method saves in networks of a deep ensemble, whose cost grows
with their number. Here the members are counted in seconds that were measured.
"""

from dataclasses import dataclass
from typing import Any

import polars

from falconcal.report.results import Results, StoredRun
from falconcal.report.tables.comparison_tables import ComparisonTable
from falconcal.report.tables.headline_columns import NOT_KNOWN

WATTS = 10  # of a busy core with its share of the machine: an assumption, and named as one
TRAINING, EVALUATION = "training", "evaluation"


@dataclass(frozen=True, eq=False)
class Costs:
    """Seconds of every series, and what they are counted in."""

    table: polars.DataFrame
    plain: str  # the series with a cost of 1
    members: int  # of the study's ensemble; 0 without one
    member: float  # what the training of one costs, in trainings of the plain series
    ensemble: str | None  # the series of the ensemble, if the study has one
    processors: bool  # whether seconds are those of processors, else of the clock


def costs_of(results: Results) -> Costs | None:
    """Return what the runs recorded; nothing if a run lacks its seconds."""
    name = "_cpu_seconds" if _processors(results) else "_seconds"
    seconds = [
        (run.series, phase, run.record.get(phase + name))
        for run in results.runs
        for phase in (TRAINING, EVALUATION)
    ]
    if not all(isinstance(value, int | float) and value > 0 for _, _, value in seconds):
        return None
    table = polars.DataFrame(seconds, ["series", "phase", "seconds"], orient="row")
    plain = _plain(results, table)
    table = _relative(table, plain)
    ensemble, members = _ensemble(results)
    whole = {row["series"]: row["mean"] for row in table.filter(phase=TRAINING).to_dicts()}
    member = whole[ensemble] / members if ensemble else 1.0
    return Costs(table, plain, members, member, ensemble, _processors(results))


def cost_tables(results: Results, costs: Costs | None) -> list[ComparisonTable]:
    """Return the table of costs, one row per method; empty where nothing was recorded."""
    if costs is None:
        return []
    heading = ["Method", "Training", f"Times {costs.plain}"]
    heading += ["Members", "Members saved"] if costs.ensemble else []
    heading += ["Energy, about", f"Measuring, times {costs.plain}"]
    rows = costs.table.to_dicts()
    phases = {(row["series"], row["phase"]): row for row in rows}
    return [
        ComparisonTable(
            "Cost",
            cost_note(costs),
            heading,
            [
                _cells(costs, series, phases[series, TRAINING], phases[series, EVALUATION])
                for series in results.series
            ],
        )
    ]


def cost_note(costs: Costs) -> str:
    """Say what was measured, what is assumed, and what a member is."""
    kind = "Processor seconds" if costs.processors else "Seconds by the clock"
    member = (
        f"A member is one of the {costs.members} networks of {costs.ensemble}; saved are those "
        "that the training does not cost. "
        if costs.ensemble
        else ""
    )
    return (
        f"{kind} of one training run, means over seeds. {member}Energy assumes {WATTS} W for a "
        "busy core, which was not measured. Measuring is all predictions of the study, with the "
        "making of shifted inputs."
    )


def _cells(
    costs: Costs, series: str, training: dict[str, float], evaluation: dict[str, float]
) -> list[str]:
    members = training["mean"] / costs.member
    saved = round(costs.members - members, 1) + 0.0  # never -0.0
    energy = f"{training['seconds'] * WATTS / 3600:,.2g} Wh" if costs.processors else NOT_KNOWN
    return [
        series,
        f"{training['seconds']:,.1f} s",
        f"{training['mean']:.2f}",
        *([f"{members:.2f}", f"{saved:.1f} of {costs.members}"] if costs.ensemble else []),
        energy,
        f"{evaluation['mean']:.2f}",
    ]


def _relative(table: polars.DataFrame, plain: str) -> polars.DataFrame:
    """Return the seconds of each series and phase, alone and over those of the plain series."""
    own = table.filter(series=plain).group_by("phase").agg(polars.col("seconds").mean())
    unit = dict(own.rows())
    seconds = polars.col("seconds")
    ratio = seconds / polars.col("phase").replace_strict(unit, return_dtype=polars.Float64)
    return table.group_by("series", "phase", maintain_order=True).agg(
        seconds.mean(),
        ratio.mean().alias("mean"),
        ratio.min().alias("low"),
        ratio.max().alias("high"),
    )


def _plain(results: Results, table: polars.DataFrame) -> str:
    """Return the series of the plain method, else the one that is cheapest to train."""
    found = results.series_of(results.roles.plain)
    if found is not None:
        return found
    training = table.filter(phase=TRAINING).group_by("series", maintain_order=True)
    return str(training.agg(polars.col("seconds").mean()).sort("seconds")["series"][0])


def _ensemble(results: Results) -> tuple[str | None, int]:
    """Return the study's deep ensemble and its size; none and 0 where it has none."""
    series = results.series_of(results.roles.ensemble)
    sizes = {_size(run) for run in results.runs if run.series == series}
    size = sizes.pop() if len(sizes) == 1 else None
    return (None, 0) if size is None else (series, size)


def _size(run: StoredRun) -> int | None:
    size: Any = run.settings.get("size")
    return size if isinstance(size, int) and size > 0 else None


def _processors(results: Results) -> bool:
    """Return whether processors did the work, in one process per run, so that they measure it."""
    return all(
        f"{TRAINING}_cpu_seconds" in run.record
        and not run.record.get("accelerator")
        and run.settings.get("devices", 1) == 1
        for run in results.runs
    )
