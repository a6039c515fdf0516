"""Compare two checkouts: does the smoke size of every study give the same rows, to the bit?

    python -m benchmarks.same_rows BEFORE AFTER [--python PYTHON] [--studies digits,sensors]

runs each study in both folders, one after the other, with one thread and one Python, and prints
one row per study. Rows, scores of examples, weights and training histories are compared; times,
versions and commits are not. The data is found through FALCONCAL_DATA; the study of ImageNet gets
made images. A study whose data is missing is listed with what the command said.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars
import safetensors.numpy

from benchmarks.pages import table
from tests.helpers.official_layouts import write_imagenet

HEADING = ["study", "runs", "rows", "scores", "weights", "histories", "differences"]
TIMES = ("seconds", "cpu_seconds", "version", "commit")  # columns that may differ
NAMES_SHOWN = 4  # of differing metrics or files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="folder of a checkout")
    parser.add_argument("after", type=Path, help="folder of another checkout")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--studies", help="names with commas between; all by default")
    arguments = parser.parse_args()
    names = arguments.studies.split(",") if arguments.studies else _studies(arguments.after)
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    rows = [_row(name, checkouts, arguments.python) for name in names]
    print(table(HEADING, rows))


def _studies(checkout: Path) -> list[str]:
    return sorted(path.stem for path in (checkout / "falconcal" / "studies").glob("*.toml"))


def _row(study: str, checkouts: list[Path], python: str) -> list[str]:
    """Run a study in both checkouts and return its row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changes = _changes(study, folder)
        for home, checkout in zip("01", checkouts, strict=True):
            problem = _run(study, changes, checkout, folder / home, python)
            if problem:
                return [study, *[""] * 5, f"not run in {checkout.name}: {problem}"]
        row = [study, *compare(folder / "0", folder / "1")]
    print(" | ".join(row), file=sys.stderr, flush=True)
    return row


def _changes(study: str, folder: Path) -> list[str]:
    if study != "imagenet":
        return []
    made = write_imagenet(folder / "imagenet")
    return [word for key, value in made.items() for word in ("--set", f"dataset.{key}={value}")]


def _run(study: str, changes: list[str], checkout: Path, out: Path, python: str) -> str:
    """Run the smoke size of a study; return what went wrong, if anything did."""
    words = [python, "-m", "falconcal", "run", study, "--smoke", "--out", str(out), *changes]
    settings = {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "FALCONCAL_OFFLINE": "1"}
    done = subprocess.run(
        words, cwd=out.parent, env={**os.environ, **settings}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else (done.stderr.strip() or done.stdout).splitlines()[-1]


def compare(before: Path, after: Path) -> list[str]:
    """Return how much was compared, and what differs."""
    runs = sorted(path.parent.relative_to(before) for path in before.glob("runs/*/*/*/run.json"))
    others = {path.parent.relative_to(after) for path in after.glob("runs/*/*/*/run.json")}
    problems = [f"runs: {len(runs)} and {len(others)}"] if set(runs) != others else []
    first, second = (_table(folder / "rows.parquet") for folder in (before, after))
    problems += _different_rows(first, second)
    counts = dict.fromkeys(("scores", "weights", "history"), 0)
    for run in sorted(others.intersection(runs)):
        for kind, count, same in _files(before / run, after / run):
            counts[kind] += count
            problems += [] if same else [f"{kind} of {run.relative_to('runs')}"]
    differing = "; ".join(problems[:NAMES_SHOWN]) or "none"
    return [str(len(runs)), str(len(first)), *map(str, counts.values()), differing]


def _table(path: Path) -> polars.DataFrame:
    """Return a stored table without times, in an order of its own."""
    found = polars.read_parquet(path)
    kept = [name for name in found.columns if name not in TIMES]
    found = found.select(kept).with_columns(polars.col(polars.Categorical).cast(polars.String))
    return found.sort([name for name in kept if name != "value"])


def _different_rows(first: polars.DataFrame, second: polars.DataFrame) -> list[str]:
    if first.columns != second.columns or len(first) != len(second):
        return [f"rows: {len(first)} of {first.columns} and {len(second)} of {second.columns}"]
    if first.equals(second, null_equal=True):
        return []
    apart = [
        str(one["metric"])
        for one, other in zip(first.to_dicts(), second.to_dicts(), strict=True)
        if repr(one) != repr(other)
    ]
    return [f"rows: {name} ({apart.count(name)})" for name in sorted(set(apart))]


def _files(before: Path, after: Path) -> Iterator[tuple[str, int, bool]]:
    """Give the kind, the number of values and the equality of each stored file of a run."""
    for kind in ("scores", "history"):
        first, second = (_table(run / f"{kind}.parquet") for run in (before, after))
        same = first.columns == second.columns and first.equals(second, null_equal=True)
        yield kind, len(first), same
    weights = [safetensors.numpy.load_file(run / "weights.safetensors") for run in (before, after)]
    same = weights[0].keys() == weights[1].keys() and all(
        value.tobytes() == weights[1][name].tobytes() for name, value in weights[0].items()
    )
    yield "weights", sum(value.size for value in weights[0].values()), same


if __name__ == "__main__":
    main()
