"""How benchmarks measure: in CPU time, repeatedly, with the spread.

A figure is kept as the list of its repetitions; a page shows their median, and the lowest and the
highest beside it.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

REPETITIONS = 3
Figures = dict[str, list[float]]


def cpu_time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def repeated(measure: Callable[[], dict[str, float]]) -> Figures:
    """Measure three times over, each from the start."""
    found = [measure() for _ in range(REPETITIONS)]
    return {name: [one[name] for one in found] for name in found[0]}


def shown(values: list[float]) -> str:
    """Return the median, and between which the repetitions lie; nothing of what has none."""
    if not values:
        return ""
    median = f"{round(statistics.median(values), 4):g}"
    return median if len(values) == 1 else f"{median} ({min(values):g} to {max(values):g})"


def read_figures(file: Path) -> Figures:
    content: Figures = json.loads(file.read_text())
    return content


def write_figures(file: Path, figures: Figures) -> None:
    """Keep the repetitions, one line per figure."""
    lines = [f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in figures.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
