"""Which entropy weight suits tables: FalconClassifier on five sets of more than two classes.

    python -m benchmarks.estimator_defaults results/estimator/entropy_weights.jsonl

Three seeds each; of the examples 60 % are given to ``fit``, 20 % judge, 20 % test. Judged by the
validation criterion: clean, FGSM against the plain model, and drift; tested under the other four
sensor shifts. Of the weights whose mean accuracy on the judging examples is within a hundredth of
plain training, the smallest is chosen whose criterion is within one standard error of the lowest:
a larger weight is not the default where a smaller one does as well. An interrupted search resumes.
The table goes into docs/training.md.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.model_selection import train_test_split

from benchmarks.choose_settings import read
from benchmarks.pages import write_between
from falconcal import Bounds, Examples, FalconClassifier, evaluate
from falconcal.shifts.sensor_faults import sensor_shifts
from falconcal.training.criterion import ACCURACY_SLACK, shifted_validation, validation_criterion

PLAIN, WEIGHTS, SEEDS = "plain", (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0), (0, 1, 2)
FIGURES = ("judged_accuracy", "criterion", "accuracy", "clean_ece", "micro_ece")
Row = dict[str, Any]
Table = tuple[NDArray[Any], NDArray[Any]]


def tables() -> dict[str, Table]:
    """Return rows and labels by the name of the set."""
    made: dict[str, dict[str, Any]] = {
        "made, 5 classes": {"n_samples": 1000, "n_features": 20, "n_classes": 5},
        "made, 3 classes": {"n_samples": 600, "n_features": 10, "n_classes": 3, "flip_y": 0.1},
    }
    real = {"wine": load_wine, "iris": load_iris, "digits": load_digits}
    found = {name: load(return_X_y=True) for name, load in real.items()}
    for name, settings in made.items():
        found[name] = make_classification(n_informative=8, random_state=0, **settings)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON lines, one per run; appended to")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    rows = read(file)
    done = {(row["data"], row["seed"]) for row in rows}
    for name, table in tables().items():
        for seed in [seed for seed in SEEDS if (name, seed) not in done]:
            new = [{"data": name, "seed": seed, **row} for row in runs(table, seed)]
            rows += new
            with file.open("a") as lines:
                lines.writelines(json.dumps(row) + "\n" for row in new)
    write_page(rows)


def runs(table: Table, seed: int) -> Iterator[Row]:
    """Yield the figures of plain training and of every weight, all on the same parts."""
    rows, labels = table
    given, rest = train_test_split(
        range(len(labels)), train_size=0.6, random_state=seed, stratify=labels
    )
    judging, testing = train_test_split(
        rest, train_size=0.5, random_state=seed, stratify=labels[rest]
    )
    settings = {"calibration_fraction": 0.0}
    plain = FalconClassifier(random_state=seed, entropy_weight=0.0, settings=settings)
    plain.fit(rows[given], labels[given])
    drift = sensor_shifts()["sensor_drift"]
    judge_by = shifted_validation(
        examples(plain, rows[judging], labels[judging]), plain.module_, [drift]
    )
    models: dict[str | float, FalconClassifier] = {PLAIN: plain}
    for weight in WEIGHTS:
        model = FalconClassifier(random_state=seed, entropy_weight=weight)
        models[weight] = model.fit(rows[given], labels[given])
    for name, model in models.items():
        judgement = validation_criterion(model.module_, judge_by)
        tested = test_figures(model, examples(model, rows[testing], labels[testing]))
        judged = {"judged_accuracy": judgement.accuracy, "criterion": judgement.criterion}
        yield {"weight": name, "epochs": len(model.history_), **judged, **tested}


def examples(model: FalconClassifier, rows: NDArray[Any], labels: NDArray[Any]) -> Examples:
    """Return rows as the model's network takes them, in the bounds of themselves."""
    inputs = torch.from_numpy(model.scaler_.transform(rows)).float()
    low, high = (float(end) for end in inputs.aminmax())
    return Examples(inputs, torch.from_numpy(labels).long(), Bounds(low, high))


def test_figures(model: FalconClassifier, test: Examples) -> dict[str, float]:
    shifts = [shift for name, shift in sensor_shifts().items() if name != "sensor_drift"]
    rows = evaluate(model.module_, test, shifts)
    clean = rows.filter(shift="clean")
    return {
        "accuracy": clean.filter(metric="accuracy")["value"].item(),
        "clean_ece": clean.filter(metric="ece")["value"].item(),
        "micro_ece": statistics.fmean(rows.filter(metric="micro_ece")["value"]),
    }


def chosen(rows: list[Row]) -> float:
    """Return the smallest weight within a standard error of the lowest criterion."""
    best = lowest(rows)
    close = (weight for weight in WEIGHTS if _within_error(*above(rows, weight, best)))
    return min((best, *close))


def lowest(rows: list[Row]) -> float:
    """Return the weight of the lowest criterion among those that are accurate enough."""
    enough = mean(rows, PLAIN, "judged_accuracy") - ACCURACY_SLACK
    able = [weight for weight in WEIGHTS if mean(rows, weight, "judged_accuracy") >= enough]
    return min(able, key=lambda weight: mean(rows, weight, "criterion"))


def above(rows: list[Row], weight: float, best: float) -> tuple[float, float]:
    """Return by how much the criterion of a weight is above the best one's, and its error."""
    of = {
        one: {(row["data"], row["seed"]): row["criterion"] for row in rows if row["weight"] == one}
        for one in (weight, best)
    }
    gaps = [of[weight][run] - of[best][run] for run in of[best]]
    return statistics.fmean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5


def _within_error(gap: float, error: float) -> bool:
    return gap <= error


def mean(rows: list[Row], weight: str | float, name: str) -> float:
    return statistics.fmean(row[name] for row in rows if row["weight"] == weight)


def write_page(rows: list[Row]) -> None:
    """Put the table into the page on training."""
    best = chosen(rows)
    lines = [
        "| entropy weight | judged: accuracy | criterion "
        "| tested: accuracy | clean ECE | micro ECE |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for weight in (PLAIN, *WEIGHTS):
        name = weight if weight == PLAIN else f"{weight:g}"
        cells = [f"{mean(rows, weight, figure):.3f}" for figure in FIGURES]
        lines.append(f"| {name}{', chosen' if weight == best else ''} | {' | '.join(cells)} |")
    lines += ["", _how_clearly(rows, best)]
    write_between("docs/training.md", "entropy weights", "estimator_defaults", "\n".join(lines))


def _how_clearly(rows: list[Row], weight: float) -> str:
    """Say how far the chosen weight is from the lowest criterion, or from the next, run by run."""
    others = [one for one in WEIGHTS if one != weight]
    rival = min(others, key=lambda one: mean(rows, one, "criterion"))
    gap, error = above(rows, weight, rival)
    return (
        f"Run by run, the criterion of {weight:g} less that of {rival:g} is {gap:+.3f}, standard "
        f"error {error:.3f} over {len(SEEDS) * len(tables())} runs."
    )


if __name__ == "__main__":
    main()
