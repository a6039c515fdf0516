"""Every example runs, for one epoch, as its first lines say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.end_to_end
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_calibration_errors(example: Path) -> None:
    if "import lightning" in example.read_text():
        pytest.importorskip("lightning")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(example), "1"],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ECE" in done.stdout


def test_the_examples_are_listed_where_people_look() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    for example in EXAMPLES:
        assert f"examples/{example.name}" in page
