"""The tutorials, step by step as a newcomer follows them, in an empty folder."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.command import run_here
from tests.helpers.paths import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
STEP = re.compile(r"^```(python|toml|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def do(kind: str, text: str, folder: Path) -> str:
    """Do one step; return what its command says."""
    if kind == "python":
        with contextlib.chdir(folder):
            exec(compile(text, "tutorial", "exec"), {"__name__": "tutorial"})
        return ""
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


def test_they_are_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert len(TUTORIALS) == 4
    for page in TUTORIALS:
        assert f"tutorials/{page.name}" in navigation
