"""Every calibrator after plainly trained networks: at home, and on 28 families or real drift.

    python -m benchmarks.calibrators runs/calibrators digits gas_drift mnist
    python -m benchmarks.calibrators

The first trains plain networks, fits all calibrators beside each other on the same validation data,
and keeps rows in ``results/calibrators``; a seed that is there is not done again. Both write
``docs/results/calibrators.md``, with the rows of the pretrained ResNets that
``benchmarks.pretrained_networks`` has kept. What was to be tested stands in
``docs/results/protocol.md``.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars
import torch
from torch import nn

from benchmarks.calibrator_goal import (
    coded,
    listed,
    methods,
    nearest_table,
    reaching,
    standings,
    verdict,
    winners,
)
from benchmarks.pages import PAGES, ROOT, render, table
from benchmarks.pretrained_networks import CALIBRATORS, RAW, SHIFTS
from benchmarks.promise import AFFINE
from benchmarks.promise_networks import (
    CORRUPTED,
    FAMILIES,
    METRICS,
    TEMPERATURE,
    by_family,
    clean,
    over,
)
from falconcal import Dataset, L2Dropout, load_dataset, make_model
from falconcal.data import PREDICTION_BATCH_SIZE, subset_all_parts, subset_test
from falconcal.data.sets.gas_drift import GasDrift
from falconcal.evaluation import score_together, scores_to_rows
from falconcal.shifts import AnyShift, affine_shifts, shift_from

KEPT = ROOT / "results" / "calibrators"
PRETRAINED = {"resnet20": "a ResNet-20", "resnet56": "a ResNet-56"}
SEEDS = (0, 1, 2)
BATCHES = (3, 4, 5, 6, 8, 9)
LATER = "later"
Rows = polars.DataFrame


@dataclass(frozen=True)
class Setting:
    """Data, and how the plain network is trained on it."""

    title: str
    load: Callable[[], Dataset]
    model: str
    method: L2Dropout
    batch_size: int
    shifts: Callable[[], Sequence[AnyShift]]


def keras_shifts() -> list[AnyShift]:
    """Return the nine affine shifts about the middle that MNIST is turned by, and the others."""
    affine = affine_shifts("keras")
    return [affine.get(shift.name, shift) for shift in SHIFTS]


def small_mnist() -> Dataset:
    return subset_test(subset_all_parts(load_dataset("mnist"), 15_000), 1000)


def later_batches() -> list[AnyShift]:
    return [shift_from(LATER, [GasDrift(test=(batch,)).load().test for batch in BATCHES])]


SETTINGS = {
    "digits": Setting(
        "Handwritten digits, LeNet (development data)",
        lambda: load_dataset("digits"), "lenet",
        L2Dropout(epochs=20, learning_rate=2e-3, l2_weight=0.01, dropout=0.0),
        100, lambda: SHIFTS,
    ),
    "mnist": Setting(
        "MNIST, LeNet", small_mnist, "lenet",
        L2Dropout(epochs=4, learning_rate=5e-4, l2_weight=0.001, dropout=0.5),
        100, keras_shifts,
    ),
    "gas_drift": Setting(
        "Gas sensors that drift, MLP (development data)", GasDrift().load, "mlp",
        L2Dropout(epochs=40, learning_rate=1e-3), 50, later_batches,
    ),
}  # fmt: skip
IMAGES = ("digits", "mnist", *PRETRAINED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where seeds are kept meanwhile")
    parser.add_argument("names", nargs="*", metavar="DATA", help=", ".join(SETTINGS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names:
        keep(name, arguments.folder / name)
    (PAGES / "calibrators.md").write_text(page())


def keep(name: str, folder: Path) -> None:
    """Measure the seeds that are not there, and keep the rows of all."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"seed-{seed}.parquet" for seed in SEEDS]
    for seed, file in zip(SEEDS, files, strict=True):
        if not file.exists():
            measured(SETTINGS[name], seed).write_parquet(file)
            print(name, seed, flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    rows = polars.concat([polars.read_parquet(file) for file in files])
    rows.write_parquet(KEPT / f"{name}.parquet", compression="zstd")


def measured(setting: Setting, seed: int) -> Rows:
    """Train a plain network, fit all calibrators, and return the rows of all."""
    data = setting.load()
    models = fitted(setting, data, seed)
    scores = score_together(models, data.test, setting.shifts())
    tables = [
        scores_to_rows(one).with_columns(method=polars.lit(name)) for name, one in scores.items()
    ]
    rows = polars.concat(tables).filter(polars.col("metric").is_in(METRICS))
    named = rows.with_columns(seed=polars.lit(seed))
    return named.select("method", "seed", "shift", "level", "metric", "value")


def fitted(setting: Setting, data: Dataset, seed: int) -> dict[str, nn.Module]:
    """Return the plain network as it is and after every calibrator."""
    network = make_model(setting.model, data, seed=seed)
    validation = data.validation.batches(PREDICTION_BATCH_SIZE)
    trained = setting.method.fit(
        network, data.training_batches(setting.batch_size, seed), validation
    )
    train = data.train.batches(PREDICTION_BATCH_SIZE)
    calibrated = {name: one.fit(trained, train, validation) for name, one in CALIBRATORS.items()}
    return {RAW: trained, **calibrated}


def page() -> str:
    kept = {name: rows_of(name) for name in IMAGES if file_of(name).exists()}
    return render(
        "calibrators",
        {
            "sections": [
                {
                    "title": title_of(name),
                    "winners": winners(rows),
                    "table": image_table(rows),
                    "wins": wins_table(rows),
                    "reach": coded(reaching(rows)) or "none",
                }
                for name, rows in kept.items()
            ],
            "folders": folders(kept),
            "gas": gas_table(rows_of("gas_drift")),
            "verdict": verdict(kept),
            "nearest": nearest_table(kept),
            "families": family_tables(kept),
        },
    )


def file_of(name: str) -> Path:
    if name in PRETRAINED:
        return ROOT / "results" / "promise" / name / "rows.parquet"
    return KEPT / f"{name}.parquet"


def folders(kept: Iterable[str]) -> str:
    """Return the folders of the rows of pretrained networks, as the page names them."""
    return listed([f"`results/promise/{name}`" for name in PRETRAINED if name in kept])


def rows_of(name: str) -> Rows:
    rows = polars.read_parquet(file_of(name))
    return rows.filter(polars.col("method").is_in([RAW, *CALIBRATORS]))


def title_of(name: str) -> str:
    if name in SETTINGS:
        return SETTINGS[name].title
    return f"CIFAR-10, {PRETRAINED[name]} that others trained"


def image_table(rows: Rows) -> str:
    """Return one row per calibrator: at home, over the nine shifts and under the corruptions."""
    lines = []
    for method in methods(rows):
        mine = rows.filter(polars.col("method") == method)
        figures = (
            clean(mine, "ece"),
            over(mine, AFFINE, "micro_ece"),
            over(mine, AFFINE, "macro_ece"),
            over(mine, CORRUPTED, "micro_ece"),
            over(mine, CORRUPTED, "macro_ece"),
        )
        lines.append((f"`{method}`", *(f"{value:.3f}" for value in figures)))
    heads = ("calibrator", "clean ECE", "micro ECE, nine shifts", "macro ECE",
             "micro ECE, 19 corruptions", "macro ECE")  # fmt: skip
    return table(heads, lines)


def wins_table(rows: Rows) -> str:
    """Return how many families each calibrator does better and worse on than one temperature."""
    macro = standings(rows, "macro_ece")
    lines = [
        (
            f"`{method}`",
            won_and_not(one.won),
            won_and_not(macro[method].won),
            f"{one.family} {one.behind:+.3f}",
        )
        for method, one in standings(rows).items()
    ]
    heads = ("calibrator", "better / not better", "by macro ECE", "worst family, difference")
    return table(heads, lines)


def won_and_not(won: int) -> str:
    return f"{won} / {len(FAMILIES) - won}"


def family_tables(kept: dict[str, Rows]) -> list[dict[str, str]]:
    """Return the micro ECE of every calibrator by family, one table per data."""
    return [{"title": title_of(name), "table": family_table(rows)} for name, rows in kept.items()]


def family_table(rows: Rows) -> str:
    errors, shown = by_family(rows), methods(rows)
    lines = [(name, *(f"{errors[method][name]:.3f}" for method in shown)) for name in FAMILIES]
    return table(("family", *(f"`{method}`" for method in shown)), lines)


def gas_table(rows: Rows) -> str:
    """Return one row per calibrator: at home and on the later batches, and batches won."""
    lines = [gas_cells(rows, method) for method in methods(rows)]
    heads = ("calibrator", "clean ECE", "micro ECE", "macro ECE",
             *(f"ECE batch {batch}" for batch in BATCHES), "better / not, of 6")  # fmt: skip
    return table(heads, lines)


def gas_cells(rows: Rows, method: str) -> tuple[str, ...]:
    mine = rows.filter(polars.col("method") == method)
    figures = (clean(mine, "ece"), *(over(mine, [LATER], name) for name in METRICS[-2:]))
    batches = batch_errors(rows, method)
    return (
        f"`{method}`",
        *(f"{value:.3f}" for value in (*figures, *batches)),
        "" if method == TEMPERATURE else batches_won(rows, method),
    )


def batch_errors(rows: Rows, method: str) -> list[float]:
    """Return the ECE on each later batch, mean over seeds."""
    mine = rows.filter(
        (polars.col("method") == method)
        & (polars.col("shift") == LATER)
        & (polars.col("metric") == "ece")
        & (polars.col("level") > 0)
    )
    means = mine.group_by("level").agg(polars.col("value").mean()).sort("level")
    return means["value"].to_list()


def batches_won(rows: Rows, method: str) -> str:
    pairs = zip(batch_errors(rows, method), batch_errors(rows, TEMPERATURE), strict=True)
    won = sum(mine < theirs for mine, theirs in pairs)
    return f"{won} / {len(BATCHES) - won}"


if __name__ == "__main__":
    main()
