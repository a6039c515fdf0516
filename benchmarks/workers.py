"""Four methods on digits: two workers against one, by the clock.

    python -m benchmarks.workers results/cost/workers.json

The command as it stands, ``falconcal run``, with a fresh folder each time, the two kinds
interleaved in one run, the best of several rounds. One worker has all threads, two share them, as
they do without ``--threads``; the rows of both are compared with ``--threads 1`` in a round that is
not timed. Only on a machine with nothing else to do does the figure say anything.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import polars

from benchmarks.pages import write_between

METHODS = ("dropout", "falcon", "mixup", "evidential")
GOAL = 1.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="changes", action="append", default=[], help="as of run")
    parser.add_argument("--page", action="store_true", help="write the page from the file alone")
    arguments = parser.parse_args()
    if not arguments.page:
        found = measure(arguments.rounds, arguments.changes)
        print(json.dumps(found, indent=1))
        arguments.file.parent.mkdir(parents=True, exist_ok=True)
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
    if not arguments.changes:  # else it was a trial of this script
        write_page(json.loads(arguments.file.read_text()))


def measure(rounds: int, changes: list[str]) -> dict[str, float]:
    """Return the seconds of each kind, and what was there to run on."""
    load = os.getloadavg()[0]
    same = rows(1, changes).equals(rows(2, changes))
    assert same, "the rows of two workers differ from those of one"
    best = {1: float("inf"), 2: float("inf")}
    for _ in range(rounds):
        for workers in best:
            best[workers] = min(best[workers], seconds(workers, changes))
    return {
        "one": round(best[1], 1),
        "two": round(best[2], 1),
        "times_faster": round(best[1] / best[2], 2),
        "cores": os.cpu_count() or 1,
        "load_before": round(load, 2),
    }


def seconds(workers: int, changes: list[str]) -> float:
    with TemporaryDirectory() as folder:
        before = time.perf_counter()
        run(Path(folder), workers, changes)
        return time.perf_counter() - before


def rows(workers: int, changes: list[str]) -> polars.DataFrame:
    with TemporaryDirectory() as folder:
        run(Path(folder), workers, changes, "--threads", "1")
        return polars.read_parquet(Path(folder) / "rows.parquet")


def run(folder: Path, workers: int, changes: list[str], *more: str) -> None:
    words = ["run", "digits_methods", "--methods", ",".join(METHODS), "--out", str(folder)]
    words += ["--workers", str(workers), *more]
    for change in changes:
        words += ["--set", change]
    subprocess.run([sys.executable, "-m", "falconcal", *words], check=True, capture_output=True)


def write_page(found: dict[str, float]) -> None:
    """Put the figures into the page on cost."""
    lines = [
        f"| four methods on digits, {found['cores']} cores | seconds |",
        "| --- | ---: |",
        f"| `--workers 1` | {found['one']} |",
        f"| `--workers 2` | {found['two']} |",
        f"| times faster, goal at least {GOAL} | {found['times_faster']} |",
    ]
    write_between("docs/cost.md", "workers", "workers", "\n".join(lines))


if __name__ == "__main__":
    main()
