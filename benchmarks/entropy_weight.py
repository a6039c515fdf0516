"""Which entropy weight is a good default of FALCON: short trainings of several networks.

    python -m benchmarks.entropy_weight
    python -m benchmarks.entropy_weight --page

Trains each network of ``NETWORKS`` plain and with FALCON at every weight of ``WEIGHTS``, one seed,
and keeps one row per training in ``results/entropy_weight/rows.jsonl``; no test data is looked at.
Judged on validation data: accuracy, mean confidence, clean ECE, and the criterion of crafted
families at matched levels. A weight harms a network where it loses more than 0.02 of accuracy, or
lies more than 0.05 below the accuracy in mean confidence and further than plain training. The rule:
of the weights that harm the fewest networks the one with the lowest mean criterion; a smaller one
where two differ by less than 0.002. An interrupted search resumes. ``--page`` writes the table in
docs/method.md from the kept rows alone.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.pages import ROOT, table, write_between
from falconcal.core.registry import name_and_settings
from falconcal.data import Dataset, load_dataset, sample
from falconcal.methods import make_method
from falconcal.metrics import accuracy, expected_calibration_error
from falconcal.models import make_model, predict
from falconcal.shifts import SHIFTS
from falconcal.training.criterion import (
    CRITERIA,
    FAMILIES,
    ShiftedValidation,
    shifted_validation,
    validation_criterion,
)

KEPT = ROOT / "results" / "entropy_weight" / "rows.jsonl"
PLAIN, WEIGHTS = "plain", (0.1, 0.25, 1.0, 2.0, 5.0, 50.0)
LOST_ACCURACY, TIMID, ALIKE = 0.02, 0.05, 0.002
JUDGED = 500  # validation examples, at most
Row = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """A network, its data, and how it is trained."""

    dataset: str | dict[str, Any]
    model: str
    epochs: int
    examples: int
    learning_rate: float = 1e-3
    clip_norm: float | None = None
    batch_size: int = 100


NETWORKS = {
    "digits, LeNet": Network("digits", "lenet", 30, 1500),
    "Fashion-MNIST, LeNet": Network("fashion_mnist", "lenet", 4, 10_000),
    "CIFAR-10, small VGG": Network("cifar10", "vgg_small", 4, 2500),
    "worn bearings, signal network": Network(
        "sensors", "signal_network", 20, 2000, 3e-3, batch_size=50
    ),
    "20 Newsgroups, LSTM": Network(
        {"name": "newsgroups", "length": 150}, "text_lstm", 8, 2000, clip_norm=1.0
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="write the page, train nothing")
    if not parser.parse_args().page:
        torch.set_num_threads(1)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        for name, network in NETWORKS.items():
            search(name, network)
    write_page(read())


def search(name: str, network: Network) -> None:
    """Train a network plain and with every weight, unless its rows are kept already."""
    done = {row["weight"] for row in read() if row["network"] == name}
    if done >= {PLAIN, *WEIGHTS}:
        return
    dataset_name, settings = name_and_settings("dataset", network.dataset)
    data = load_dataset(dataset_name, **settings)
    data = replace(data, train=sample(data.train, network.examples))
    judged_on: ShiftedValidation | None = None
    for weight in (PLAIN, *WEIGHTS):
        if weight in done and weight != PLAIN:
            continue
        started = time.process_time()
        model = trained(network, data, weight)
        judged_on = judged_on or matched_validation(data, model)  # plain training comes first
        row = {"network": name, "weight": weight, **judged(model, judged_on)}
        if weight not in done:
            keep({**row, "cpu_seconds": round(time.process_time() - started, 1)})


def trained(network: Network, data: Dataset, weight: float | str) -> torch.nn.Module:
    """Return the network, trained plain or with FALCON at this weight."""
    settings: dict[str, Any] = {
        "epochs": network.epochs,
        "learning_rate": network.learning_rate,
        "clip_norm": network.clip_norm,
    }
    falcon = {"method": "falcon", "entropy_weight": weight}
    method = make_method({**({"method": "dropout"} if weight == PLAIN else falcon), **settings})
    model = make_model(network.model, data, seed=0)
    return method.fit(
        model, data.training_batches(network.batch_size, 0), data.validation.batches()
    )


def matched_validation(data: Dataset, plain: torch.nn.Module) -> ShiftedValidation:
    """Return validation examples under crafted families, at levels matched to plain training."""
    families = [SHIFTS[name] for name in FAMILIES[data.modality]]
    criterion = CRITERIA["matched_levels"]
    return shifted_validation(data.validation, plain, families, JUDGED, criterion)


def judged(model: torch.nn.Module, validation: ShiftedValidation) -> Row:
    clean = predict(model, validation.clean)
    return {
        "accuracy": accuracy(clean),
        "confidence": float(clean.scores().confidence.mean()),
        "clean_ece": expected_calibration_error(clean),
        "criterion": validation_criterion(model, validation).criterion,
    }


def chosen(rows: list[Row]) -> float:
    """Return the weight by the rule at the top of this file."""
    fewest = min(len(harmed(rows, weight)) for weight in WEIGHTS)
    able = [weight for weight in WEIGHTS if len(harmed(rows, weight)) == fewest]
    lowest = min(mean_criterion(rows, weight) for weight in able)
    return min(weight for weight in able if mean_criterion(rows, weight) < lowest + ALIKE)


def harmed(rows: list[Row], weight: float) -> list[str]:
    """Return the networks that a weight makes less accurate, or timid."""
    return [name for name in NETWORKS if is_harm(*pair(rows, name, weight))]


def is_harm(plain: Row, falcon: Row) -> bool:
    lost = plain["accuracy"] - falcon["accuracy"]
    return bool(lost > LOST_ACCURACY or timidity(falcon) > max(TIMID, timidity(plain)))


def timidity(row: Row) -> float:
    return float(row["accuracy"] - row["confidence"])


def pair(rows: list[Row], network: str, weight: float) -> tuple[Row, Row]:
    """Return the rows of plain training and of FALCON on a network."""
    mine = {row["weight"]: row for row in rows if row["network"] == network}
    return mine[PLAIN], mine[weight]


def mean_criterion(rows: list[Row], weight: float) -> float:
    return statistics.fmean(row["criterion"] for row in rows if row["weight"] == weight)


def write_page(rows: list[Row]) -> None:
    """Put the table into the page on the method."""
    write_between("docs/method.md", "entropy weight", "entropy_weight", shown(rows))


def shown(rows: list[Row]) -> str:
    """Return the table, and what was chosen."""
    heading = ["network", *[PLAIN if w == PLAIN else f"{w:g}" for w in (PLAIN, *WEIGHTS)]]
    lines = [
        [name, *[cell(rows, name, weight) for weight in (PLAIN, *WEIGHTS)]] for name in NETWORKS
    ]
    means = [f"{mean_criterion(rows, weight):.3f}" for weight in (PLAIN, *WEIGHTS)]  # type: ignore[arg-type]
    harm = ["", *[str(len(harmed(rows, weight))) for weight in WEIGHTS]]
    lines += [["mean criterion", *means], ["networks harmed", *harm]]
    return f"{table(heading, lines)}\n\nChosen by the rule: {chosen(rows):g}."


def cell(rows: list[Row], network: str, weight: float | str) -> str:
    row = next(one for one in rows if one["network"] == network and one["weight"] == weight)
    return f"{row['accuracy']:.3f} / {row['confidence']:.3f} / {row['criterion']:.3f}"


def keep(row: Row) -> None:
    with KEPT.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    print(row, flush=True)


def read() -> list[Row]:
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


if __name__ == "__main__":
    main()
