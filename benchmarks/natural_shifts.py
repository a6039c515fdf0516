"""What calibration brings on shifts that nature made: sensors that drift, prices, other pens.

    falconcal run gas_drift --out runs/gas_drift
    falconcal run gas_drift --seeds 6 --out runs/gas_drift --methods dropout,falcon,temperature,...
    falconcal run gas_drift_rows --out runs/gas_drift_rows
    falconcal run elec2 --out runs/elec2
    falconcal run usps --out runs/usps
    python -m benchmarks.natural_shifts runs

Keeps the rows of the runs that are in the folder in ``results/natural_shifts`` and writes
``docs/results/gas_drift.md``, ``elec2.md`` and ``usps.md``. What was to be tested stands in
``docs/results/protocol.md``.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars

from benchmarks.pages import PAGES, ROOT, render, table

KEPT = ROOT / "results" / "natural_shifts"
STUDIES = ("gas_drift", "gas_drift_rows", "elec2", "usps")
METRICS = ("ece", "accuracy", "confidence")
BATCHES = (3, 4, 5, 6, 8, 9)  # the levels 1 to 6 of the shift later
AFTER = (5, 6, 8, 9)
SHOWN_SEEDS, FRESH_SEEDS = (0, 1, 2), (3, 4, 5)
ROWS = {"rows25": 25, "default": 50, "rows100": 100, "rows150": 150}  # by variant
PLAIN, TEMPERATURE = "dropout", "temperature"
MONOTONE = ("shift_temperature_drifted_monotone", "falcon_shift_temperature_drifted_monotone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the output folders")
    runs = parser.parse_args().runs
    if runs is not None:
        keep(runs)
    for name, page in WRITTEN.items():
        (PAGES / f"{name}.md").write_text(page())


def keep(runs: Path) -> None:
    """Keep what the pages need of the runs."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for study in STUDIES:
        if not (runs / study).exists():
            continue
        rows = polars.read_parquet(runs / study / "rows.parquet")
        levels = rows.filter(
            polars.col("metric").is_in(METRICS) & polars.col("level").is_not_null()
        )
        levels.filter(polars.col("shift") != "clean").write_parquet(KEPT / f"{study}.parquet")


def gas_page() -> str:
    rows, after = kept("gas_drift"), kept("gas_drift_rows")
    shown = of_seeds(rows, SHOWN_SEEDS)
    return render(
        "gas_drift",
        {
            "goals": gas_goals(rows),
            "headline": gas_headline(shown, methods_of(shown)),
            "batches": batch_table(shown),
            "fresh": gas_headline(of_seeds(rows, FRESH_SEEDS), fresh_methods(rows)),
            "curve": row_curve(after),
        },
    )


def kept(study: str) -> polars.DataFrame:
    return polars.read_parquet(KEPT / f"{study}.parquet")


def of_seeds(rows: polars.DataFrame, seeds: Sequence[int]) -> polars.DataFrame:
    return rows.filter(polars.col("seed").is_in(seeds))


def methods_of(rows: polars.DataFrame) -> list[str]:
    return rows["method"].unique(maintain_order=True).to_list()


def fresh_methods(rows: polars.DataFrame) -> list[str]:
    """Return the methods that have the seeds which nobody had looked at."""
    return methods_of(of_seeds(rows, FRESH_SEEDS))


def mean_of(
    rows: polars.DataFrame,
    method: str,
    metric: str,
    levels: Iterable[int],
    variant: str = "default",
) -> float:
    """Return the mean over levels and seeds."""
    chosen = rows.filter(
        (polars.col("method") == method)
        & (polars.col("metric") == metric)
        & (polars.col("variant") == variant)
        & polars.col("level").is_in(list(levels))
    )
    assert len(chosen), f"there are no rows of {method}, {metric}, {variant}"
    return float(chosen["value"].mean())  # type: ignore[arg-type]


def levels_of(batches: Iterable[int]) -> list[int]:
    return [1 + BATCHES.index(batch) for batch in batches]


def gas_headline(rows: polars.DataFrame, methods: Sequence[str]) -> str:
    lines = [
        (
            f"`{method}`",
            f"{mean_of(rows, method, 'ece', levels_of(BATCHES)):.3f}",
            f"{mean_of(rows, method, 'ece', levels_of(AFTER)):.3f}",
            spread_over_seeds(rows, method),
            f"{mean_of(rows, method, 'ece', [0]):.3f}",
            f"{mean_of(rows, method, 'accuracy', [0]):.3f}",
        )
        for method in methods
    ]
    heads = (
        "method", "mean ECE, batches 3 to 9", "batches 5 to 9", "by seed", "clean ECE",
        "clean accuracy",
    )  # fmt: skip
    return table(heads, lines)


def spread_over_seeds(rows: polars.DataFrame, method: str) -> str:
    """Return the lowest and the highest mean ECE of batches 5 to 9 among the seeds."""
    seeds = rows.filter(polars.col("method") == method)["seed"].unique().to_list()
    means = [mean_of(of_seeds(rows, [seed]), method, "ece", levels_of(AFTER)) for seed in seeds]
    return f"{min(means):.3f} to {max(means):.3f}"


def batch_table(rows: polars.DataFrame) -> str:
    """Return accuracy of plain training, and mean confidence of some methods, by batch."""
    shown = (PLAIN, "shift_temperature", "falcon_shift_temperature", *MONOTONE)
    levels = [0, *levels_of(BATCHES)]
    lines = [("accuracy of `dropout`", *_by_level(rows, PLAIN, "accuracy", levels))]
    lines += [
        (f"confidence of `{method}`", *_by_level(rows, method, "confidence", levels))
        for method in shown
        if method in methods_of(rows)
    ]
    return table(("", "clean", *(f"batch {batch}" for batch in BATCHES)), lines)


def _by_level(rows: polars.DataFrame, method: str, metric: str, levels: Sequence[int]) -> list[str]:
    return [f"{mean_of(rows, method, metric, [level]):.2f}" for level in levels]


def row_curve(rows: polars.DataFrame) -> str:
    """Return mean ECE on the later batches by how many labelled rows were fitted on."""
    levels = range(1, len(AFTER) + 1)
    none = [
        mean_of(rows, method, "ece", levels)
        for method in ("shift_temperature", "falcon_shift_temperature")
    ]
    lines = [("0", *(f"{value:.3f}" for value in none), "")]
    drifted = ("shift_temperature_drifted", "falcon_shift_temperature_drifted")
    for variant, count in ROWS.items():
        means = [mean_of(rows, method, "ece", levels, variant) for method in drifted]
        clean = max(mean_of(rows, method, "ece", [0], variant) for method in drifted)
        lines.append((str(count), *(f"{value:.3f}" for value in means), f"{clean:.3f}"))
    lines.append(("plain", *(f"{mean_of(rows, PLAIN, 'ece', levels):.3f}",) * 2, ""))
    return table(("labelled rows", "after plain", "after FALCON", "larger clean ECE"), lines)


def gas_goals(rows: polars.DataFrame) -> str:
    """Return what was aimed at beforehand beside what was found."""
    shown, fresh = of_seeds(rows, SHOWN_SEEDS), of_seeds(rows, FRESH_SEEDS)
    lines = [
        _without_labels(shown, method)
        for method in ("shift_temperature", "falcon_shift_temperature")
    ]
    lines.append(_with_labels(shown, "shift_temperature_drifted", "seeds 0 to 2"))
    lines += [_with_labels(fresh, method, "seeds 3 to 5") for method in MONOTONE]
    return table(("row", "goal", "found", "verdict"), lines)


def _without_labels(rows: polars.DataFrame, method: str) -> tuple[str, str, str, str]:
    levels = levels_of(BATCHES)
    own, plain, one = (mean_of(rows, name, "ece", levels) for name in (method, PLAIN, TEMPERATURE))
    found = f"{own / plain:.2f} of plain's {plain:.3f}; temperature has {one:.3f}"
    goal = "no later label: at most 0.7 of plain's, below temperature's"
    return f"`{method}`", goal, found, verdict(own <= 0.7 * plain and own < one)


def _with_labels(rows: polars.DataFrame, method: str, seeds: str) -> tuple[str, str, str, str]:
    levels = levels_of(AFTER)
    own, plain = (mean_of(rows, name, "ece", levels) for name in (method, PLAIN))
    clean = mean_of(rows, method, "ece", [0])
    found = f"{own / plain:.2f} of plain's {plain:.3f}, clean ECE {clean:.3f}"
    goal = f"50 rows of batch 4: at most 0.55 of plain's, clean ECE at most 0.03; {seeds}"
    return f"`{method}`", goal, found, verdict(own <= 0.55 * plain and clean <= 0.03)


def verdict(met: bool) -> str:
    return "met" if met else "missed"


def elec2_page() -> str:
    rows = kept("elec2")
    levels = sorted(set(rows["level"].to_list()) - {0})
    lines = [
        (
            f"`{method}`",
            f"{mean_of(rows, method, 'ece', levels):.3f}",
            f"{mean_of(rows, method, 'ece', [0]):.3f}",
            f"{mean_of(rows, method, 'accuracy', [0]):.3f}",
            *_by_level(rows, method, "ece", levels),
        )
        for method in methods_of(rows)
    ]
    tenths = [f"ECE {30 + 10 * (level - 1)} %" for level in levels]
    heads = ("method", "mean ECE later", "clean ECE", "clean accuracy", *tenths)
    accuracy = _by_level(rows, PLAIN, "accuracy", levels)
    return render("elec2", {"table": table(heads, lines), "accuracy": ", ".join(accuracy)})


def usps_page() -> str:
    rows = kept("usps")
    lines = [
        (
            f"`{method}`",
            *(f"{mean_of(rows, method, metric, [1]):.3f}" for metric in METRICS),
            f"{mean_of(rows, method, 'ece', [1]) - mean_of(rows, PLAIN, 'ece', [1]):+.3f}",
            f"{mean_of(rows, method, 'ece', [0]):.3f}",
            f"{mean_of(rows, method, 'accuracy', [0]):.3f}",
        )
        for method in methods_of(rows)
    ]
    heads = ("method", "ECE on USPS", "accuracy", "mean confidence", "ECE less plain's",
             "clean ECE", "clean accuracy")  # fmt: skip
    goals = [_usps_goal(rows, name) for name in ("shift_temperature", "falcon_shift_temperature")]
    return render(
        "usps",
        {
            "table": table(heads, lines),
            "goals": table(("row", "goal", "found", "verdict"), goals),
        },
    )


def _usps_goal(rows: polars.DataFrame, method: str) -> tuple[str, str, str, str]:
    gap = mean_of(rows, method, "ece", [1]) - mean_of(rows, PLAIN, "ece", [1])
    return f"`{method}`", "ECE at most 0.01 above plain's", f"{gap:+.3f}", verdict(gap <= 0.01)


WRITTEN = {"gas_drift": gas_page, "elec2": elec2_page, "usps": usps_page}

if __name__ == "__main__":
    main()
