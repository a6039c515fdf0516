"""Is a network as sure as people agree with it? CIFAR-10H, networks of others and our own.

    python -m benchmarks.pretrained_networks resnet20 runs/pretrained/resnet20
    python -m benchmarks.people_answers runs/pretrained
    python -m benchmarks.people_answers --own runs/paper/cifar10
    python -m benchmarks.people_answers

Needs the scores on clean images that the first command keeps, or those of a run of the study
``cifar10_small``, and predicts nothing anew. Keeps one entry per network and method, the mean over
seeds, in ``results/natural_shifts/cifar10h.json`` and writes ``docs/results/cifar10h.md``, from
what is kept where no folder is given.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import torch

from benchmarks.natural_shifts import KEPT
from benchmarks.pages import PAGES, render, table
from benchmarks.pretrained_networks import CALIBRATORS, RAW, WEIGHTS, file_of
from benchmarks.promise_networks import read_levels
from falconcal.data.sets.cifar10h import human_answers
from falconcal.data.subsets import sample_indices
from falconcal.evaluation.score_rows import scores_by_level
from falconcal.metrics import Scores, expected_calibration_error, signed_gap
from falconcal.report.results import Results, load_results

OWN = "vgg_small"
FILE = KEPT / "cifar10h.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the networks' folders")
    parser.add_argument("--own", type=Path, help="output folder of the study cifar10_small")
    arguments = parser.parse_args()
    if arguments.runs is not None:
        keep({name: figures(arguments.runs / name) for name in measured(arguments.runs)})
    if arguments.own is not None:
        keep({OWN: own_figures(load_results(arguments.own))})
    (PAGES / "cifar10h.md").write_text(page())


def keep(found: dict[str, Any]) -> None:
    """Keep the figures of some networks beside those that are kept."""
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps(known | found, indent=1) + "\n")


def measured(runs: Path) -> list[str]:
    return [name for name in WEIGHTS if has_clean_scores(runs / name)]


def has_clean_scores(folder: Path) -> bool:
    return all(file_of(folder, half, None).exists() for half in (0, 1))


def figures(folder: Path) -> dict[str, dict[str, float]]:
    """Return for each method what the labels and what people's answers say of its confidence."""
    return {method: compared(clean_scores(folder, method)) for method in (RAW, *CALIBRATORS)}


def own_figures(results: Results) -> dict[str, dict[str, float]]:
    """Return the same for the methods of a run, means over seeds."""
    by_method: dict[str, list[dict[str, float]]] = {}
    for run in results.runs:
        by_method.setdefault(run.key.method, []).append(compared(read_levels(run, "clean")[0]))
    return {method: means(found) for method, found in by_method.items()}


def means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(one[name] for one in found) for name in found[0]}


def clean_scores(folder: Path, method: str) -> Scores:
    """Return the scores of all test images in their official order."""
    tables = []
    for half in (0, 1):  # each half has every second image
        table = polars.read_parquet(file_of(folder, half, None)).filter(method=method)
        tables.append(table.with_columns(example=2 * polars.col("example") + half))
    whole = polars.concat(tables).sort("example").with_columns(level=polars.lit(0))
    return scores_by_level(whole)[0]


def compared(scores: Scores) -> dict[str, float]:
    asked = by_answer(scores)
    return {
        "accuracy": float(scores.correct.double().mean()),
        "agreement": float(asked.correct.double().mean()),
        "confidence": float(scores.confidence.double().mean()),
        "ece": expected_calibration_error(scores),
        "ece_people": expected_calibration_error(asked),
        "gap_people": signed_gap(asked),
    }


def by_answer(scores: Scores) -> Scores:
    """Return one score per answer that a person gave, right where the person agrees."""
    counts = answers_for(len(scores.confidence))  # (N, C)
    images, answers = counts.nonzero(as_tuple=True)
    times = counts[images, answers]
    images, answers = images.repeat_interleave(times), answers.repeat_interleave(times)
    asked: dict[str, Any] = {name: getattr(scores, name)[images] for name in SCORED}
    agrees = asked["prediction"] == answers
    return Scores(**asked, label=answers.to(scores.label.dtype), correct=agrees)


def answers_for(count: int) -> torch.Tensor:
    """Return people's answers to the test images of a study with so many of them: (count, C)."""
    counts = torch.from_numpy(human_answers())
    return counts if count == len(counts) else counts[sample_indices(len(counts), count)]


SCORED = ("prediction", "confidence", "nll", "entropy", "brier")


def page() -> str:
    found = json.loads(FILE.read_text())
    heads = ("method", "accuracy", "people agree", "mean confidence", "ECE by labels",
             "ECE by people", "surer than people agree")  # fmt: skip
    tables = {
        name: table(
            heads,
            [
                (
                    f"`{method}`",
                    *(f"{one[key]:.3f}" for key in ("accuracy", "agreement", "confidence")),
                    f"{one['ece']:.3f}",
                    f"{one['ece_people']:.3f}",
                    f"{one['gap_people']:+.3f}",
                )
                for method, one in methods.items()
            ],
        )
        for name, methods in found.items()
    }
    return render("cifar10h", {"tables": tables})


if __name__ == "__main__":
    main()
