"""The figures of the example with MiniLM, in the page on training.

    python examples/minilm_newsgroups.py 30 --out results/minilm/rows.json
    python -m benchmarks.minilm_results

The first takes about five minutes on one thread. The second writes the means over seeds, with the
least and the most of them, between its marks in ``docs/training.md``; nothing is measured here.
"""

import json
from collections.abc import Sequence
from statistics import fmean

from benchmarks.pages import ROOT, table, write_between

ROWS = ROOT / "results" / "minilm" / "rows.json"
COLUMNS = {
    "accuracy": "accuracy",
    "ece": "clean ECE",
    "swapped_accuracy": "accuracy, words swapped",
    "swapped_ece": "micro ECE, words swapped",
}


def main() -> None:
    write_between("docs/training.md", "MiniLM", "minilm_results", shown())


def shown() -> str:
    rows = json.loads(ROWS.read_text())
    names = dict.fromkeys(row["method"] for row in rows)
    cells = [
        (
            name,
            *(over_seeds([row[key] for row in rows if row["method"] == name]) for key in COLUMNS),
        )
        for name in names
    ]
    return table(("method", *COLUMNS.values()), cells)


def over_seeds(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
