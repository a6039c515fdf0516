"""Whether the promise holds on digits: confidence that is right at home and far away.

    falconcal run digits --seeds 10 --out runs/digits-10
    python -m benchmarks.promise runs/digits-10

Keeps the rows in ``results/promise``, measures the saved models of seeds 0 to 2 under the 19
corruptions on the test images, and writes ``docs/results/promise.md``. Digits are development data:
the method was found on them, so these figures say that the demo is true, not that other data will
do as well.
"""

import argparse
import statistics
from pathlib import Path

import polars

from benchmarks.pages import PAGES, ROOT, render, table
from falconcal import load, load_dataset
from falconcal.evaluation import evaluate
from falconcal.evaluation.confidence_gaps import nearer
from falconcal.recalibration.ladder import LADDERS
from falconcal.shifts import SHIFTS, affine_shifts, kin_among

KEPT = ROOT / "results" / "promise"
PLAIN, FALCON, TRUSTED = "dropout", "falcon", "falcon_shift_temperature"
METHODS = (PLAIN, FALCON, TRUSTED)
FEW = (0, 1, 2)  # seeds of the means
TURNS = ("rot_left", "rot_right")
AFFINE = list(affine_shifts())
CORRUPTIONS = [shift for name, shift in SHIFTS.items() if name.startswith("corrupt_")]
KIN = kin_among(CORRUPTIONS, LADDERS["image"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="output folder of the finished run")
    run = parser.parse_args().run
    if run is not None:
        keep(run)
    (PAGES / "promise.md").write_text(page())


def keep(run: Path) -> None:
    """Keep what the page needs: rows of the nine shifts, and of the corruptions."""
    KEPT.mkdir(parents=True, exist_ok=True)
    rows = polars.read_parquet(run / "rows.parquet")
    rows.write_parquet(KEPT / "rows.parquet")
    corrupted(run).write_parquet(KEPT / "corruptions.parquet")


def corrupted(run: Path) -> polars.DataFrame:
    """Return ECE and accuracy of the saved models under every corruption and severity."""
    test = load_dataset("digits").test
    tables = []
    for method in METHODS:
        for seed in FEW:
            model = load(next(run.glob(f"runs/**/{method}/seed-{seed}/*.safetensors"))).model
            rows = evaluate(model, test, CORRUPTIONS).filter(
                polars.col("metric").is_in(["ece", "accuracy", "confidence"])
                & (polars.col("level") > 0)
            )
            tables.append(
                rows.with_columns(
                    polars.lit(method).alias("method"), polars.lit(seed).alias("seed")
                )
            )
    return polars.concat(tables)


def page() -> str:
    rows = polars.read_parquet(KEPT / "rows.parquet")
    corruptions = polars.read_parquet(KEPT / "corruptions.parquet")
    return render(
        "promise",
        {
            "headline": headline(rows, corruptions),
            "turned": turned(rows),
            "share": f"{share_closer(rows):.3f}",
            "seeds": rows["seed"].n_unique(),
            "corruptions": corruption_table(corruptions),
            "goals": goals(rows, corruptions),
        },
    )


def headline(rows: polars.DataFrame, corruptions: polars.DataFrame) -> str:
    few = rows.filter(polars.col("seed").is_in(FEW))
    lines = []
    for method in METHODS:
        mine = few.filter(polars.col("method") == method)
        under = corruptions.filter(
            (polars.col("method") == method) & (polars.col("metric") == "ece")
        )
        lines.append(
            (
                f"`{method}`",
                *(f"{_mean(mine, metric):.3f}" for metric in ("micro_ece", "macro_ece")),
                f"{_clean(mine, 'ece'):.3f}",
                f"{_clean(mine, 'accuracy'):.3f}",
                f"{_number(under['value'].mean()):.3f}",
            )
        )
    heads = ("method", "micro ECE", "macro ECE", "clean ECE", "accuracy", "19 corruptions, ECE")
    return table(heads, lines)


def goals(rows: polars.DataFrame, corruptions: polars.DataFrame) -> str:
    """Return what was aimed at beforehand beside what was found."""
    few = rows.filter(polars.col("seed").is_in(FEW))
    plain, ours = (few.filter(polars.col("method") == method) for method in (PLAIN, TRUSTED))
    under = (
        corruptions.filter(polars.col("metric") == "ece")
        .group_by("method")
        .agg(polars.col("value").mean())
    )
    ece = dict(under.iter_rows())
    found = (
        ("micro ECE over plain's", 0.33, _mean(ours, "micro_ece") / _mean(plain, "micro_ece")),
        ("macro ECE over plain's", 0.45, _mean(ours, "macro_ece") / _mean(plain, "macro_ece")),
        ("clean ECE", 0.02, _clean(ours, "ece")),
        ("ECE under corruptions over plain's", 1.0, ece[TRUSTED] / ece[PLAIN]),
        ("mean confidence at 90 degrees", 0.40, _turned(rows, TRUSTED, "confidence")),
    )
    lines = [(name, f"at most {goal:g}", f"{value:.3f}") for name, goal, value in found]
    lines.append(("nearer than plain, share of cases", "at least 0.8", f"{share_closer(rows):.3f}"))
    return table(("figure", "aim", "found"), lines)


def _turned(rows: polars.DataFrame, method: str, metric: str) -> float:
    last = rows.filter(polars.col("shift").is_in(TURNS) & (polars.col("level") == 9))
    mine = last.filter((polars.col("method") == method) & (polars.col("metric") == metric))
    return _number(mine["value"].mean())


def _mean(rows: polars.DataFrame, metric: str) -> float:
    """Return the mean of a pooled metric over the tested shifts and the seeds."""
    tested = rows.filter((polars.col("metric") == metric) & polars.col("shift").is_in(AFFINE))
    return _number(tested["value"].mean())


def _clean(rows: polars.DataFrame, metric: str) -> float:
    clean = rows.filter((polars.col("metric") == metric) & (polars.col("shift") == "clean"))
    return _number(clean["value"].mean())


def _number(value: object) -> float:
    return float(value)  # type: ignore[arg-type]


def turned(rows: polars.DataFrame) -> str:
    """Return what each method says of digits turned by 90 degrees."""
    last = rows.filter(polars.col("shift").is_in(TURNS) & (polars.col("level") == 9))
    lines = []
    for method in METHODS:
        mine = last.filter(polars.col("method") == method)
        values = {
            metric: mine.filter(polars.col("metric") == metric)["value"]
            for metric in ("confidence", "accuracy")
        }
        spread = values["confidence"]
        lines.append(
            (
                f"`{method}`",
                f"{_number(values['accuracy'].mean()):.3f}",
                f"{_number(spread.mean()):.3f}",
                f"{_number(spread.min()):.3f} to {_number(spread.max()):.3f}",
            )
        )
    return table(("method", "accuracy", "mean confidence", "lowest to highest"), lines)


def share_closer(rows: polars.DataFrame) -> float:
    """Return the share of (seed, shift, level) at which it is nearer to the truth than plain."""
    tested = rows.filter(polars.col("shift").is_in(AFFINE))
    return statistics.fmean(nearer(tested, TRUSTED, PLAIN))


def corruption_table(rows: polars.DataFrame) -> str:
    """Return ECE per corruption, kin of fitted families marked, with means over all and unseen."""
    ece = rows.filter(polars.col("metric") == "ece")
    means = ece.group_by("shift", "method").agg(polars.col("value").mean())
    wide = means.pivot(on="method", index="shift", values="value").sort("shift")
    lines = [
        (f"{one['shift']}{_mark(one['shift'])}", *(f"{one[method]:.3f}" for method in METHODS))
        for one in wide.to_dicts()
    ]
    unseen = wide.filter(~polars.col("shift").is_in(KIN))
    for label, part in (("mean of all", wide), ("mean of the unseen", unseen)):
        lines.append((label, *(f"{_number(part[method].mean()):.3f}" for method in METHODS)))
    return table(("corruption", *(f"`{method}`" for method in METHODS)), lines)


def _mark(name: str) -> str:
    return " (kin)" if name in KIN else ""


if __name__ == "__main__":
    main()
