"""The report of a million scores: seconds and size, for two shapes of made studies.

    python -m benchmarks.report_size results/report/size.json

Many shifts of a small test set, and one shift of a large one; ten methods each. The report is made
by the command in a process of its own, one thread, all it needs from import to the last file; the
seconds are the least of several rounds. With --profile it is made here and its slow parts printed.
"""

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import polars
import torch

from benchmarks.pages import write_between
from falconcal import Predictions
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.evaluation.under_shift import CLEAN
from falconcal.report import write_report

CLASSES = 10
METHODS = ("dropout", "falcon", "mixup", "evidential", "adversarial", "ensemble", "mc_dropout",
           "svi", "mnf", "temperature")  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """How many scores a method has: one clean level, and some of each shift."""

    name: str
    shifts: int
    levels: int  # of each, the clean one left out
    examples: int

    @property
    def scores(self) -> int:
        return len(METHODS) * self.examples * (1 + self.shifts * self.levels)


SHAPES = (
    Shape("nine shifts of nine levels", 9, 9, 1220),
    Shape("one shift of nine levels", 1, 9, 10_000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            make_study(Path(folder), shape)
            if arguments.profile:
                profile(Path(folder))
            else:
                found.append(measure(Path(folder), shape, arguments.rounds))
                print(json.dumps(found[-1], indent=1), flush=True)
    if arguments.file is not None:
        arguments.file.parent.mkdir(parents=True, exist_ok=True)
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
        write_page(found)


def make_study(directory: Path, shape: Shape) -> None:
    """Write an output folder: confidences that fall with the level, slower than accuracy."""
    shifts = [f"shift_{number}" for number in range(shape.shifts)]
    study = {"name": "made", "title": "A million scores", "shifts": shifts}
    (directory / "study.json").write_text(json.dumps({**study, "methods": dict.fromkeys(METHODS)}))
    rows = []
    for number, method in enumerate(METHODS):
        scores = make_scores(shifts, shape, number)
        folder = directory / "runs" / "default" / method / "seed-0"
        folder.mkdir(parents=True)
        scores.write_parquet(folder / "scores.parquet")
        write_record(folder, number)
        key = {"study": "made", "variant": "default", "method": method, "seed": 0}
        named = [polars.lit(value).alias(name) for name, value in key.items()]
        rows.append(scores_to_rows(scores).with_columns(named))
    polars.concat(rows).write_parquet(directory / "rows.parquet")


def write_record(folder: Path, number: int) -> None:
    seconds = {"training_cpu_seconds": 10.0 + number, "evaluation_cpu_seconds": 1.0 + number}
    (folder / "run.json").write_text(json.dumps(seconds))
    (folder / "settings.json").write_text(json.dumps({"settings": {"epochs": 20}}))
    epochs = list(range(1, 21))
    history = {"epoch": epochs, "term": ["loss"] * 20, "value": [1 / epoch for epoch in epochs]}
    polars.DataFrame(history).write_parquet(folder / "history.parquet")


def make_scores(shifts: list[str], shape: Shape, number: int) -> polars.DataFrame:
    labels = torch.arange(shape.examples) % CLASSES
    rungs = [(CLEAN, 0)]
    rungs += [(shift, level) for shift in shifts for level in range(1, shape.levels + 1)]
    generator = torch.Generator().manual_seed(number)
    parts = []
    for shift, level in rungs:
        strength = 6 * (1 - level / (shape.levels + 1))
        logits = 2 * torch.randn(shape.examples, CLASSES, generator=generator)
        logits[torch.arange(shape.examples), labels] += strength
        scores = Predictions.from_logits(logits * (1 + 0.1 * number), labels).scores()
        parts.append(table_of(vars(scores), shift, level))
    return polars.concat(parts)


def table_of(scores: dict[str, torch.Tensor], shift: str, level: int) -> polars.DataFrame:
    columns = {name: column.numpy() for name, column in scores.items()}
    return polars.DataFrame(columns).select(
        polars.lit(shift).alias("shift"),
        polars.lit(level).alias("level"),
        polars.int_range(polars.len()).alias("example"),
        polars.all(),
    )


def measure(directory: Path, shape: Shape, rounds: int) -> dict[str, str | float]:
    """Return the least seconds of the command, by the clock and of processors, and the sizes."""
    timings = [timed(directory) for _ in range(rounds)]
    page = (directory / "report.html").stat().st_size
    figures = sum(file.stat().st_size for file in (directory / "figures").iterdir())
    return {
        "shape": shape.name,
        "scores": shape.scores,
        "seconds": round(min(wall for wall, _ in timings), 1),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[1], 1),  # above 1 others were at work, and the clock went on
        "cpu_seconds": round(min(processors for _, processors in timings), 1),
        "page_megabytes": round(page / 1e6, 2),
        "figures_megabytes": round(figures / 1e6, 2),
    }


def timed(directory: Path) -> tuple[float, float]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "falconcal", "report", str(directory)],
        check=True,
        capture_output=True,
        env={**os.environ, **threads},
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def profile(directory: Path) -> None:
    watched = cProfile.Profile(time.process_time)
    watched.runcall(write_report, directory)
    pstats.Stats(watched).sort_stats("cumulative").print_stats(45)


def write_page(found: list[dict[str, str | float]]) -> None:
    """Put the table into the page on studies."""
    lines = [
        "| study | scores | seconds | of processors | page |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {len(METHODS)} methods, {one['shape']} | {one['scores']:,} | {one['seconds']} | "
        f"{one['cpu_seconds']} | {one['page_megabytes']} MB |"
        for one in found
    ]
    load = max(float(one["load"]) for one in found)
    lines += [
        "",
        f"The machine has {found[0]['cores']} cores and had a load of up to {load}: above 1,",
    ]
    lines += [
        "others were at work too, and seconds of processors say more than those of the clock."
    ]
    write_between("docs/studies.md", "size", "report_size", "\n".join(lines))


if __name__ == "__main__":
    main()
