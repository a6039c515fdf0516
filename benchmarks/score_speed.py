"""How long `falconcal score` takes for a million rows, in a process of its own.

    python -m benchmarks.score_speed results/score/speed.json

One thread; CPU seconds of the whole command, from its start to the page, three times over.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import polars

from benchmarks.pages import table, write_between
from benchmarks.timing import Figures, repeated, shown, write_figures

ROWS, CLASSES = 1_000_000, 10
LIMIT_SECONDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    arguments = parser.parse_args()
    found = repeated(measured)
    print(page(found))
    if arguments.file is not None:
        write_figures(arguments.file, found)
        write_between("docs/score.md", "score speed", "score_speed", page(found))


def measured() -> dict[str, float]:
    """Return the CPU seconds of scoring each kind of file."""
    with tempfile.TemporaryDirectory() as folder:
        frame = made_rows()
        files = {
            f"CSV, {CLASSES} classes": ("classes.csv", frame),
            f"Parquet, {CLASSES} classes": ("classes.parquet", frame),
            "CSV, one probability": ("one.csv", one_probability(frame)),
        }
        return {name: scored(Path(folder), *file) for name, file in files.items()}


def made_rows() -> polars.DataFrame:
    """Return calibrated predictions: labels drawn from the probabilities."""
    generator = numpy.random.default_rng(0)
    odds = numpy.exp(2 * generator.normal(size=(ROWS, CLASSES)))
    probs = odds / odds.sum(1, keepdims=True)
    labels = (probs.cumsum(1) > generator.random((ROWS, 1))).argmax(1)
    columns = {f"p_{number}": probs[:, number] for number in range(CLASSES)}
    return polars.DataFrame({"label": labels, **columns})


def one_probability(frame: polars.DataFrame) -> polars.DataFrame:
    return frame.select(
        (polars.col("label") == 0).cast(polars.Int8).alias("label"),
        polars.col("p_0").alias("probability"),
    )


def scored(folder: Path, name: str, frame: polars.DataFrame) -> float:
    """Write a file, score it in a process of its own, and return its CPU seconds."""
    file = folder / name
    if file.suffix == ".csv":
        frame.write_csv(file)
    else:
        frame.write_parquet(file)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "falconcal", "score", str(file), "--out", str(folder / file.stem)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return round(spent, 1)


def page(found: Figures) -> str:
    rows = [[name, shown(values)] for name, values in found.items()]
    return (
        f"Scoring {ROWS:,} rows, the page included, takes so many CPU seconds (one thread; median "
        f"of three, lowest and highest); the aim was {LIMIT_SECONDS}:\n\n"
        + table(["file", "CPU seconds"], rows)
    )


if __name__ == "__main__":
    main()
