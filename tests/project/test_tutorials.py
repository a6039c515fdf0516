"""The tutorials, step by step as a newcomer follows them, in an empty folder."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import polars
import pytest

from tests.helpers.command import run_here
from tests.helpers.paths import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
STEP = re.compile(r"^```(python|toml|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def do(kind: str, text: str, folder: Path) -> str:
    """Do one step; return what it says."""
    if kind == "python":
        printed = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            exec(compile(text, "tutorial", "exec"), {"__name__": "tutorial"})
        return printed.getvalue()
    if kind == "toml":
        (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
        return ""
    said = ""
    for line in text.splitlines():
        done = run_here(*shlex.split(line)[1:], folder=folder)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return said


@pytest.mark.end_to_end
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_it_runs_from_its_first_line_to_its_last(page: Path, tmp_path: Path) -> None:
    steps = STEP.findall(page.read_text())
    assert steps
    said = "".join(do(kind, text, tmp_path) for kind, text in steps)
    if any(kind == "sh" for kind, _ in steps):
        assert re.search(r"\S+\.html", said.splitlines()[-1]), said
    if page.stem == "own_drift":
        assert "Measured in May, dropout says" in " ".join(said.split())
        check_what_the_drift_shows(tmp_path / "runs" / "pumps")
    if page.stem == "own_model":
        check_what_the_model_shows(said)


def check_what_the_model_shows(said: str) -> None:
    """The sentences under the tutorial's lines, from what they print at no noise, some and much."""
    found = re.findall(r"right (\S+), says (\S+)", said)
    right, says = ([float(one) for one in column] for column in zip(*found, strict=True))
    for one in (slice(0, 3), slice(3, 6)):  # plain, then FALCON
        assert right[one] == sorted(right[one], reverse=True)
        assert says[one] == sorted(says[one])
    assert all(falcon < plain for plain, falcon in zip(says[:3], says[3:], strict=True))
    for level in (1, 2):  # under noise
        assert right[3 + level] < says[3 + level]
        assert says[3 + level] - right[3 + level] < says[level] - right[level]
    assert 0 < right[0] - right[3] < 0.08


def check_what_the_drift_shows(run: Path) -> None:
    """The sentences under the tutorial's command, from the rows."""
    rows = polars.read_parquet(run / "rows.parquet").filter(shift="later", level=3)
    right, sure = (
        dict(rows.filter(metric=metric).select("method", "value").iter_rows())
        for metric in ("accuracy", "confidence")
    )
    crafted, drifted = "shift_temperature", "shift_temperature_drifted"
    assert right["dropout"] < sure[drifted] < sure["dropout"] < sure[crafted]


def test_they_are_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert len(TUTORIALS) == 4
    for page in TUTORIALS:
        assert f"tutorials/{page.name}" in navigation
