"""The command as a user meets it: its output and its exit code, where it matters from a process."""

import dataclasses
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated, Literal

import polars
import pytest
from pydantic import Field

import falconcal
from falconcal.cli.catalogue_tables import CATALOGUE, method_settings
from falconcal.core.settings import NonNegative, settings
from falconcal.methods import METHODS
from tests.helpers.command import COMMAND, run, run_here
from tests.helpers.paths import STRIPES
from tests.helpers.stripes import TRUST

STUDY = STRIPES


@pytest.mark.end_to_end
def test_version() -> None:
    assert run("--version").stdout.strip() == f"falconcal {falconcal.__version__}"


@pytest.mark.end_to_end
def test_help_shows_the_commands_and_examples() -> None:
    shown = run("--help").stdout
    assert all(command in shown for command in ("run", "report", "list"))
    assert "falconcal run digits" in run_here("run", "--help").stdout
    assert "falconcal report runs/digits" in run_here("report", "--help").stdout
    assert "falconcal tune digits --method falcon" in run_here("tune", "--help").stdout


def test_no_words_at_all_show_the_help() -> None:
    shown = run_here()
    assert "Usage" in shown.stdout + shown.stderr


@pytest.mark.parametrize("kind", CATALOGUE)
def test_list_has_a_line_on_everything(kind: str) -> None:
    answer = run_here("list", kind)
    assert answer.returncode == 0
    lines = answer.stdout.splitlines()[1:]
    assert len(lines) == len(CATALOGUE[kind]())
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.end_to_end
def test_a_study_from_run_to_report(tmp_path: Path) -> None:
    first = run("run", str(STUDY), *TRUST, "--out", "out", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "epoch 12 of 12" in first.stdout
    assert "Report: out/report.html" in first.stdout
    out = tmp_path / "out"
    for name in ("rows.parquet", "summary.md", "report.html"):
        assert (out / name).stat().st_size > 0
    assert list((out / "figures").glob("*.svg"))
    before = (out / "rows.parquet").read_bytes()

    again = run_here("run", str(STUDY), *TRUST, "--out", "out", folder=tmp_path)
    assert again.returncode == 0
    assert again.stdout.count("already complete") == 2
    assert (out / "rows.parquet").read_bytes() == before

    other = run_here(
        "run", str(STUDY), *TRUST, "--out", "out", "--set", "falcon.epochs=3", folder=tmp_path
    )
    assert other.returncode == 1
    assert "methods.falcon.epochs: 12 there, 3 now" in other.stderr
    assert (out / "rows.parquet").read_bytes() == before

    (out / "report.html").unlink()
    report = run_here("report", "out", folder=tmp_path)
    assert report.returncode == 0
    assert (out / "report.html").exists()


@pytest.mark.end_to_end
def test_only_the_methods_asked_for(tmp_path: Path) -> None:
    words = ("run", str(STUDY), *TRUST, "--methods", "dropout", "--out", str(tmp_path))
    assert run_here(*words).returncode == 0
    assert set(polars.read_parquet(tmp_path / "rows.parquet")["method"]) == {"dropout"}


@pytest.mark.end_to_end
def test_ctrl_c_keeps_complete_runs_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = ["run", str(STUDY), *TRUST, "--out", str(tmp_path), "--set", "falcon.epochs=100000"]
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    complete = tmp_path / "runs" / "default" / "dropout" / "seed-0" / "run.json"
    deadline = time.monotonic() + 90
    while not complete.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in complaint
    assert "Complete runs" in complaint
    assert "To resume: falconcal run" in complaint
    assert complete.exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["rn"], 2, "No such command"),
        (["run"], 2, "Missing argument"),
        (["run", "digit"], 2, "Did you mean 'digits'?"),
        (["run", "digits", "--methods", "falkon"], 2, "Did you mean 'falcon'?"),
        (["run", "digits", "--set", "falcon.epoch=1"], 2, "Did you mean 'epochs'?"),
        (["run", "digits", "--set", "falcon.epochs=0"], 2, "got 0"),
        (["run", "digits", "--seeds", "0"], 2, "seeds"),
        (["run", "digits", "--seeds", "two"], 2, "seeds"),
        (["run", "none.toml"], 2, "cannot read study"),
        (["run", "digits", "--out", "/proc/nowhere"], 1, "cannot write to the output folder"),
        (["report", "nowhere"], 1, "nowhere"),
        (["list", "metods"], 2, "Did you mean 'methods'"),
        (["list", "os:path"], 2, "unknown list"),
    ],
)
def test_mistakes_get_a_message_a_code_and_no_traceback(
    words: list[str], code: int, message: str, tmp_path: Path
) -> None:
    answer = run_here(*words, folder=tmp_path)
    assert answer.returncode == code, answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not list(tmp_path.iterdir())


def test_list_shows_the_settings_of_methods() -> None:
    answer = run_here("list", "methods", "--settings")
    assert answer.returncode == 0, answer.stderr
    sections = dict(
        part.split("\n", 1) for part in re.split(r"\n(?=\w)", answer.stdout.rstrip("\n"))
    )
    assert [title.partition(":")[0] for title in sections] == list(METHODS)
    for (title, text), method in zip(sections.items(), METHODS.values(), strict=True):
        shown = re.findall(r"^  (\w+): .+, (?:default .+|required)$", text, re.MULTILINE)
        assert shown == [field.name for field in dataclasses.fields(method)], title  # type: ignore[arg-type]
    falcon = next(text for title, text in sections.items() if title.startswith("falcon:"))
    assert '  keep: "last" | "best", default "last"' in falcon
    assert "  patience: int | none, default none" in falcon
    assert "  epochs: int, default" in falcon


def test_settings_of_a_method_are_described_by_the_strings_below_them() -> None:
    @settings
    class Plain:
        rate: NonNegative = 0.5
        """How fast."""

    @settings
    class Further(Plain):
        kinds: Annotated[tuple[str, ...], Field(strict=False)]
        """Which kinds
        there are."""
        mode: Literal["a", "b"] | None = None

    assert method_settings(Further) == [
        ("rate", "float", "0.5", "How fast."),
        ("kinds", "list of str", "", "Which kinds\nthere are."),
        ("mode", '"a" | "b" | none', "none", ""),
    ]


def test_settings_are_those_of_methods() -> None:
    answer = run_here("list", "shifts", "--settings")
    assert answer.returncode == 2
    assert "falconcal list methods --settings" in answer.stderr
