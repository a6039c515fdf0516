"""One epoch of LeNet on MNIST: our batches and loop against a plain DataLoader and a plain loop.

    FALCONCAL_DATA=... python -m benchmarks.mnist_epoch results/data/mnist_epoch.json

One thread. Images per CPU second, both interleaved, the best of several rounds. Both train the
same network with Adam on batches of 100; ours with its checks, records and a final evaluation on
500 validation images, theirs with the steps alone.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.pages import write_between
from falconcal import Dataset, L2Dropout, load_dataset, make_model

BATCH, LEARNING_RATE = 100, 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(load_dataset("mnist"), arguments.rounds)
    print(json.dumps(found, indent=1))
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    arguments.file.write_text(json.dumps(found, indent=1) + "\n")
    write_page(found)


def measure(mnist: Dataset, rounds: int) -> dict[str, float]:
    """Return images per CPU second: training by both, and iterating over their batches alone."""
    floats = TensorDataset(mnist.train.inputs, mnist.train.labels)
    loader = DataLoader(floats, batch_size=BATCH, shuffle=True)
    rivals: dict[str, Callable[[], object]] = {
        "falconcal": lambda: train_ours(mnist),
        "dataloader": lambda: train_plainly(make_model("lenet", mnist), loader),
        "falconcal_batches": lambda: list(map(len, mnist.training_batches(BATCH, 0))),
        "dataloader_batches": lambda: list(map(len, loader)),
    }
    best = dict.fromkeys(rivals, 0.0)
    for _ in range(rounds):
        for name, run in rivals.items():
            before = time.process_time()
            run()
            speed = len(mnist.train) / (time.process_time() - before)
            best[name] = max(best[name], speed)
    return {name: round(speed) for name, speed in best.items()}


def train_ours(mnist: Dataset) -> nn.Module:
    method = L2Dropout(epochs=1, learning_rate=LEARNING_RATE, accelerator="cpu")
    validation = mnist.validation.first(500).batches(500)
    return method.fit(make_model("lenet", mnist), mnist.training_batches(BATCH, 0), validation)


def train_plainly(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]]) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def write_page(found: dict[str, float]) -> None:
    """Put the table into the page on data."""
    lines = [
        "| images a CPU second, one thread | falconcal | DataLoader | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for what, ending in (("one epoch of training", ""), ("its batches alone", "_batches")):
        ours, theirs = found[f"falconcal{ending}"], found[f"dataloader{ending}"]
        lines.append(f"| {what} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |")
    write_between("docs/data.md", "speed", "mnist_epoch", "\n".join(lines))


if __name__ == "__main__":
    main()
