"""The pages of results say what the kept rows say."""

from pathlib import Path

import polars

from benchmarks import mnist_results
from benchmarks.mnist_tables import Kept

ROOT = Path(__file__).parents[1]


def test_the_results_on_mnist_are_written_from_what_is_kept() -> None:
    assert (ROOT / "RESULTS.md").read_text() == mnist_results.page()


def test_the_headline_on_mnist_is_that_of_the_rows() -> None:
    """By hand: the mean over the nine shifts of every seed, then over seeds."""
    kept = Kept(ROOT / "results" / "mnist" / "main")
    rows = kept.rows.filter(method="falcon", metric="micro_ece", variant="default")
    tested = rows.filter(polars.col("shift").is_in(kept.study["shifts"]))
    assert len(tested) == 9 * len(kept.values("falcon", "accuracy"))
    mean = sum(tested["value"]) / len(tested)
    (line,) = [one for one in mnist_results.page().splitlines() if one.startswith("| falcon |")][:1]
    assert f"| {mean:.3f} ± " in line
