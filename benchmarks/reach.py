"""Whether plain training reaches the expected accuracy on the real data, and in what time.

    python -m benchmarks.reach mnist --threads 2

Trains with cross-entropy alone (the method ``dropout``), keeps checkpoints in ``runs/reach/NAME``,
so that an interrupted run goes on, then writes ``results/reach/NAME.json`` and the table of
``docs/networks.md``. Times add up over interruptions. ``--subset N --validation`` is for trying
settings: N training examples, accuracy on validation data, nothing written.
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import ROOT, write_between
from falconcal.data import Dataset, load_dataset
from falconcal.io.atomic import write_text
from falconcal.methods import L2Dropout
from falconcal.metrics import accuracy
from falconcal.models import make_model
from falconcal.models.predict import predict
from falconcal.studies.provenance import provenance
from falconcal.training import EpochRecord, checkpointing, on_epoch

RESULTS, RUNS = ROOT / "results" / "reach", ROOT / "runs" / "reach"


@dataclass(frozen=True)
class Recipe:
    """What is trained, how, and the accuracy expected of it."""

    dataset: dict[str, Any]
    model: dict[str, Any]
    training: L2Dropout
    batch_size: int
    goal: float  # test accuracy
    within: str


RECIPES = {
    "mnist": Recipe(
        {"name": "mnist"},
        {"name": "lenet"},
        L2Dropout(epochs=3, learning_rate=1e-3),
        100,
        0.985,
        "3 epochs",
    ),
    "cifar10_small": Recipe(
        {"name": "cifar10"},
        {"name": "vgg_small"},
        L2Dropout(epochs=12, learning_rate=1e-3),
        100,
        0.80,
        "an hour on two cores",
    ),
    "newsgroups": Recipe(
        {"name": "newsgroups", "length": 300},
        {"name": "text_lstm"},
        L2Dropout(epochs=12, learning_rate=1e-3, dropout=0.5),
        100,
        0.60,
        "an hour on two cores",
    ),
    "sequential_mnist_gru": Recipe(
        {"name": "sequential_mnist", "side": 14},
        {"name": "gru"},
        L2Dropout(epochs=6, learning_rate=1e-3, clip_norm=1.0),
        100,
        0.90,
        "an hour on two cores",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--subset", type=int, help="train on so many examples")
    parser.add_argument("--validation", action="store_true", help="try settings, write nothing")
    parser.add_argument("--set", action="append", default=[], help="a setting of the training")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recipe = changed(RECIPES[arguments.name], arguments.set)
    if arguments.validation:
        attempt(recipe, arguments.subset)
        return
    reach(arguments.name, recipe)
    write_page()


def changed(recipe: Recipe, changes: list[str]) -> Recipe:
    pairs = (change.split("=", 1) for change in changes)
    values = {name: json.loads(value) for name, value in pairs}
    size = values.pop("batch_size", recipe.batch_size)
    length = {"length": values.pop("length")} if "length" in values else {}
    training = replace(recipe.training, **values)
    dataset = {**recipe.dataset, **length}
    return replace(recipe, training=training, batch_size=size, dataset=dataset)


def attempt(recipe: Recipe, subset: int | None) -> None:
    """Train on a part of the data and print the accuracy on validation data."""
    dataset = load_dataset(**recipe.dataset)
    if subset is not None:
        dataset = replace(dataset, train=dataset.train.first(subset))
    started = time.process_time()

    def say(record: EpochRecord) -> None:
        print(f"epoch {record.epoch}: {record.terms}", flush=True)

    with on_epoch(say):
        model = train(recipe, dataset)
    right = accuracy(predict(model, dataset.validation))
    print(f"validation accuracy {right:.4f}, {time.process_time() - started:.0f} CPU seconds")


def train(recipe: Recipe, dataset: Dataset) -> torch.nn.Module:
    settings = dict(recipe.model)
    model = make_model(settings.pop("name"), dataset, 0, **settings)
    batches = dataset.training_batches(recipe.batch_size, 0)
    return recipe.training.fit(model, batches, dataset.validation.batches(500))


def reach(name: str, recipe: Recipe) -> None:
    """Train, measure on the test data, and write the results."""
    folder = RUNS / name
    dataset = load_dataset(**recipe.dataset)
    with timed(folder) as times, checkpointing(folder, every_minutes=2.0):
        model = train(recipe, dataset)
    found = {
        "test_accuracy": accuracy(predict(model, dataset.test)),
        "validation_accuracy": accuracy(predict(model, dataset.validation)),
        "goal": recipe.goal,
        "within": recipe.within,
        **times,
        "dataset": recipe.dataset,
        "model": recipe.model,
        "epochs": recipe.training.epochs,
        "learning_rate": recipe.training.learning_rate,
        "dropout": recipe.training.dropout,
        "clip_norm": recipe.training.clip_norm,
        "batch_size": recipe.batch_size,
        **provenance(),
    }
    write_text(RESULTS / f"{name}.json", json.dumps(found, indent=2) + "\n")
    shutil.rmtree(folder)
    print(json.dumps(found, indent=2))


@contextmanager
def timed(folder: Path) -> Iterator[dict[str, float]]:
    """Measure wall and CPU time of a training, including those before an interruption."""
    file = folder / "times.json"
    before = json.loads(file.read_text()) if file.exists() else {"wall": 0.0, "cpu": 0.0}
    wall, cpu = time.perf_counter(), time.process_time()
    times: dict[str, float] = {}

    def note(*_: object) -> None:
        times["wall_minutes"] = (before["wall"] + time.perf_counter() - wall) / 60
        times["cpu_minutes"] = (before["cpu"] + time.process_time() - cpu) / 60
        so_far = {"wall": 60 * times["wall_minutes"], "cpu": 60 * times["cpu_minutes"]}
        write_text(file, json.dumps(so_far))

    with on_epoch(note):
        yield times
    note()


def write_page() -> None:
    """Put all that was measured into the page on networks."""
    lines = [
        "| data | network | epochs | test accuracy | goal | wall minutes | CPU minutes | threads |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for name in RECIPES:
        file = RESULTS / f"{name}.json"
        if file.exists():
            lines.append(_line(json.loads(file.read_text())))
    write_between("docs/networks.md", "reach", "reach", "\n".join(lines))


def _line(found: dict[str, Any]) -> str:
    data = ", ".join(str(value) for value in found["dataset"].values())
    cells = [
        data,
        found["model"]["name"],
        found["epochs"],
        f"{found['test_accuracy']:.4f}",
        f"at least {found['goal']} within {found['within']}",
        f"{found['wall_minutes']:.1f}",
        f"{found['cpu_minutes']:.1f}",
        found["threads"],
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
