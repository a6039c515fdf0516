"""Whether the criterion chooses well on MNIST, which had no part in choosing it.

    python -m benchmarks.criterion_pool mnist runs/pool/mnist
    python -m benchmarks.criterion_confirmed runs/pool/mnist
    python -m benchmarks.criterion_confirmed

The second command fits shift temperature, with the library's defaults, after every network of the
pool that is accurate enough, and keeps one row per network in
``results/criterion/mnist_shift_temperature.jsonl``: the ECE of left-out families on validation
images, and how it tests. It resumes. The third writes ``docs/results/criterion_mnist.md`` from what
is kept, as the second does in the end.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from scipy.stats import spearmanr
from torch import nn

from benchmarks.criterion import matched, old
from benchmarks.criterion_pool import BUDGETS, KEPT, Pool, read, tested
from benchmarks.pages import PAGES, render, table
from falconcal import ShiftTemperature
from falconcal.data import PREDICTION_BATCH_SIZE
from falconcal.training.criterion import FAMILIES

NAME = "mnist"
ALONE, FOLLOWED = KEPT / f"{NAME}.jsonl", KEPT / f"{NAME}_shift_temperature.jsonl"
RESAMPLES = 2000
Row = dict[str, Any]
Measure = Callable[[Row], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where the pool keeps its weights")
    folder = parser.parse_args().folder
    if folder is not None:
        follow(folder)
    (PAGES / f"criterion_{NAME}.md").write_text(page())


def follow(folder: Path) -> None:
    """Fit and test shift temperature after each accurate network that has no row yet."""
    pool = Pool(NAME, folder)
    there = {row["number"] for row in read(FOLLOWED)}
    for row in accurate(read(ALONE)):
        if row["number"] not in there:
            followed = followed_row(pool, pool.network(row["number"], row["settings"]))
            with FOLLOWED.open("a") as lines:
                lines.write(json.dumps({"number": row["number"], **followed}) + "\n")
            print(row["number"], followed["test"]["micro_ece"], flush=True)


def followed_row(pool: Pool, model: nn.Module) -> Row:
    """Return what left-out families and test images say of a network with shift temperature."""
    data = pool.dataset
    train, validation = (
        part.batches(PREDICTION_BATCH_SIZE) for part in (data.train, data.validation)
    )
    calibrated = ShiftTemperature().fit(model, train, validation)
    assert calibrated.fit_record is not None
    left_out = {one.family: one.ece_after for one in calibrated.fit_record.left_out}
    return {
        "left_out": left_out,
        "clean_ece": left_out["clean"],
        "test": tested(calibrated, data, BUDGETS[NAME].centre),
    }


def page() -> str:
    alone = accurate(read(ALONE))
    after = {row["number"]: row for row in read(FOLLOWED)}
    followed = [{**row, **after[row["number"]]} for row in alone if row["number"] in after]
    words = {
        "budget": BUDGETS[NAME],
        "networks": len(read(ALONE)),
        "accurate": len(alone),
        "falcon": len(falcon_of(alone)),
        "alone": judgement(alone, {"`matched_levels`": criterion, "`fixed_levels`": old}),
        "followed": judgement(
            followed, {"`matched_levels` of FALCON alone": criterion_alone(alone),
                       "ECE of left-out families": left_out_error},
        ),
        "measured": len(followed),
        "spread": spread_table(alone, followed),
    }  # fmt: skip
    return render(f"criterion_{NAME}", words)


def accurate(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["accuracy"] >= row["required_accuracy"]]


def criterion(row: Row) -> float:
    return matched(row, FAMILIES["image"])


def criterion_alone(rows: list[Row]) -> Measure:
    """Return the criterion of a network before shift temperature, by its number."""
    values = {row["number"]: criterion(row) for row in rows}
    return lambda row: values[row["number"]]


def left_out_error(row: Row) -> float:
    """Return the mean ECE of the criterion's families, each left out of the fit that is judged."""
    return float(numpy.mean([row["left_out"][name] for name in FAMILIES["image"]]))


def falcon_of(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["settings"]["method"] == "falcon"]


def qualified(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["clean_ece"] <= row["allowed_ece"]]


def judgement(rows: list[Row], measures: dict[str, Measure]) -> str:
    """Return one row per criterion and group: correlation, what it chooses, and the regret."""
    groups = {
        "all networks": rows,
        "FALCON's": falcon_of(rows),
        "FALCON's within the clean limit": qualified(falcon_of(rows)),
    }
    lines = [
        (name, group, str(len(some)), *figures(some, measure))
        for name, measure in measures.items()
        for group, some in groups.items()
        if len(some) >= 5
    ]
    heads = ("criterion", "among", "networks", "correlation with micro ECE", "with macro ECE",
             "chosen micro / macro", "best micro", "regret in micro ECE")  # fmt: skip
    return table(heads, lines)


def figures(rows: list[Row], measure: Measure) -> tuple[str, ...]:
    values = numpy.array([measure(row) for row in rows])
    micro, macro = (
        numpy.array([row["test"][name] for row in rows]) for name in ("micro_ece", "macro_ece")
    )
    chosen = int(values.argmin())
    return (
        with_interval(correlation, values, micro, "+.2f"),
        with_interval(correlation, values, macro, "+.2f"),
        f"{micro[chosen]:.3f} / {macro[chosen]:.3f}",
        f"{micro.min():.3f}",
        with_interval(regret, values, micro, ".3f"),
    )


def correlation(values: numpy.ndarray, errors: numpy.ndarray) -> float:
    return float(spearmanr(values, errors).statistic)


def regret(values: numpy.ndarray, errors: numpy.ndarray) -> float:
    """Return how much worse the chosen network tests than the best of them."""
    return float(errors[values.argmin()] - errors.min())


def with_interval(
    figure: Callable[[numpy.ndarray, numpy.ndarray], float],
    values: numpy.ndarray,
    errors: numpy.ndarray,
    form: str,
) -> str:
    """Return a figure with its 95 % interval over networks, drawn with replacement."""
    drawn = numpy.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    resampled = [figure(values[which], errors[which]) for which in drawn if len(set(which)) > 2]
    low, high = numpy.nanquantile(resampled, (0.025, 0.975))
    return f"{figure(values, errors):{form}} ({low:{form}} to {high:{form}})"


def spread_table(alone: list[Row], followed: list[Row]) -> str:
    """Return how much FALCON's settings matter, before and after shift temperature."""
    metrics = ("micro_ece", "macro_ece", "ece")
    before_and_after = {"FALCON alone": alone, "with shift temperature": followed}
    lines = [
        (name, str(len(falcon_of(rows))), *(spread(falcon_of(rows), metric) for metric in metrics))
        for name, rows in before_and_after.items()
        if rows
    ]
    return table(("", "settings", "micro ECE", "macro ECE", "clean ECE"), lines)


def spread(rows: list[Row], metric: str) -> str:
    """Return the median over settings, and the range of the middle nine tenths."""
    low, middle, high = numpy.quantile([row["test"][metric] for row in rows], (0.05, 0.5, 0.95))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
