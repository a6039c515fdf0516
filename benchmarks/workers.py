"""Four methods and three seeds on digits: two workers against one, by the clock.

    python -m benchmarks.workers results/cost/workers.json

The command ``falconcal run`` from its start to its report, with a fresh folder each
time, the kinds interleaved in one run, the best of the rounds. Two workers with a thread each
against one with a thread, which gives the same rows, and against one with all threads, which is
the default of the command. The figures mean something only on an otherwise idle machine.
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
SEEDS = 3
GOAL = 1.6
ONE, TWO, ALL = (1, 1), (2, 1), (1, os.cpu_count() or 1)  # workers, threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
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
    best = dict.fromkeys((ONE, TWO, ALL), float("inf"))
    for _ in range(rounds):
        found = {kind: run(*kind, changes) for kind in best}
        best = {kind: min(best[kind], seconds) for kind, (seconds, _) in found.items()}
        assert found[ONE][1].equals(found[TWO][1]), "the rows of two workers are others"
    return {
        "one": round(best[ONE], 1),
        "two": round(best[TWO], 1),
        "one_with_all_threads": round(best[ALL], 1),
        "times_faster": round(best[ONE] / best[TWO], 2),
        "times_faster_than_all_threads": round(best[ALL] / best[TWO], 2),
        "rounds": rounds,
        "cores": os.cpu_count() or 1,
        "load_before": round(load, 2),
    }


def run(workers: int, threads: int, changes: list[str]) -> tuple[float, polars.DataFrame]:
    """Return the seconds of the command, and its rows."""
    with TemporaryDirectory() as folder:
        words = ["run", "digits_methods", "--methods", ",".join(METHODS), "--out", folder]
        words += ["--seeds", str(SEEDS), "--workers", str(workers), "--threads", str(threads)]
        words += [word for change in changes for word in ("--set", change)]
        before = time.perf_counter()
        subprocess.run([sys.executable, "-m", "falconcal", *words], check=True, capture_output=True)
        return time.perf_counter() - before, polars.read_parquet(Path(folder) / "rows.parquet")


def write_page(found: dict[str, float]) -> None:
    """Put the figures into the page on cost."""
    rival, met = found["times_faster"], "met" if found["times_faster"] >= GOAL else "missed"
    lines = [
        f"| four methods, {SEEDS} seeds, {found['cores']} cores | seconds | two workers, times |",
        "| --- | ---: | ---: |",
        f"| `--workers 2 --threads 1` | {found['two']} | |",
        f"| `--workers 1 --threads 1` | {found['one']} | {rival}, goal {GOAL}: {met} |",
        f"| `--workers 1`, all threads | {found['one_with_all_threads']} "
        f"| {found['times_faster_than_all_threads']} |",
    ]
    write_between("docs/cost.md", "workers", "workers", "\n".join(lines))


if __name__ == "__main__":
    main()
