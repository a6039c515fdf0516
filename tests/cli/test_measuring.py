"""The command ``falconcal measure``, and what it prints while it works."""

import io
from pathlib import Path

import polars
import pytest
from rich.console import Console

from falconcal.cli.progress import MeasuringLines
from falconcal.studies.finished_runs import MeasurementProgress
from tests.helpers.command import run, run_here
from tests.helpers.paths import ROOT

STUDY = """
name = "small"
dataset = "digits"
model = "mlp"
examples = 60
levels = 2
shifts = ["shear"]
[methods.dropout]
epochs = 1
[methods.dropout_temperature]
method = "temperature"
base = "dropout"
"""


@pytest.mark.end_to_end
def test_runs_are_trained_first_and_measured_later(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(STUDY)
    arguments = ("--out", "out", "--seeds", "2", "--workers", "2")
    trained = run("run", "small.toml", "--measure", "later", *arguments, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "falconcal measure out" in trained.stdout
    assert not (tmp_path / "out" / "report.html").exists()
    missing = run_here("report", "out", folder=tmp_path)
    assert missing.returncode == 1
    assert "falconcal measure out" in missing.stderr
    first = run_here("measure", "out", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "shear, level 1, 4 runs: 50% done, " in first.stdout
    assert "Summary" in first.stdout
    further = run_here("measure", "out", "--shifts", "fgsm,affine", folder=tmp_path)
    assert further.returncode == 0, further.stderr
    rows = polars.read_parquet(tmp_path / "out" / "rows.parquet")
    assert len(set(rows["shift"])) == 11  # the nine, fgsm and clean
    assert "xyzoom" in (tmp_path / "out" / "report.html").read_text()
    again = run_here("run", "small.toml", *arguments, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "already complete" in again.stdout


@pytest.mark.end_to_end
def test_a_wrong_request_is_a_sentence_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(STUDY)
    made = run_here("run", "small.toml", "--out", "out", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    for words, expected in (
        (("--shifts", "sheer"), "Did you mean 'shear'"),
        (("--shifts", "shear"), "tested under shear already"),
        (("--shifts", "fgsm", "--methods", "falcon"), "unknown method"),
        ((), "nothing is left to measure"),
    ):
        refused = run_here("measure", "out", *words, folder=tmp_path)
        assert refused.returncode == 2, refused.stderr
        assert expected in refused.stderr
        assert "Traceback" not in refused.stderr
    elsewhere = run_here("measure", str(ROOT / "docs"), "--shifts", "fgsm", folder=tmp_path)
    assert elsewhere.returncode == 2


def test_a_line_comes_with_every_shift_and_at_least_every_minute() -> None:
    now, console = [0.0], Console(file=io.StringIO(), width=200)
    lines = MeasuringLines(console, lambda: now[0])
    for batch in range(1, 61):  # ten seconds each
        now[0] = 10.0 * batch
        name = "shear" if batch <= 40 else "fgsm"
        lines(MeasurementProgress(name, 1, 3, batch / 30, 2))
    printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(printed) >= 600 / 60
    assert printed[0] == "shear, level 1, 3 runs: 2% done, 9:50 left"
    assert sum(line.startswith("fgsm") for line in printed) >= 3
