"""Every bad input of the table: its exit code, its words, no traceback, and nothing left behind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bad_inputs import PAGE, page
from tests.bad_inputs.home import write_home
from tests.bad_inputs.table import cases
from tests.bad_inputs.trying import Case, ask, snapshot

CASES = cases()
# a few as processes of their own: one for each command
SEPARATE = {case.surface: case for case in CASES if case.arguments and not case.waits_for}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def expected(case: Case) -> object:
    marks = [pytest.mark.xfail(reason=case.waits_for, strict=False)] if case.waits_for else []
    return pytest.param(case, id=str(case)[:80], marks=marks)


@pytest.mark.parametrize("case", [expected(case) for case in CASES])
def test_a_bad_input_gets_a_code_and_words_and_leaves_nothing(case: Case, home: Path) -> None:
    before = snapshot(home)
    answer = ask(case, home)
    assert answer.code == case.code, answer.message
    assert case.words in answer.message
    assert "Traceback" not in answer.message
    assert snapshot(home) == before


@pytest.mark.parametrize("surface", [name for name in SEPARATE if name.startswith("Command")])
def test_in_a_process_of_its_own_it_is_the_same(surface: str, home: Path) -> None:
    case, before = SEPARATE[surface], snapshot(home)
    root = Path(__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-m", "falconcal", *case.arguments],
        capture_output=True, text=True, check=False, cwd=home, timeout=120,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert answer.returncode == case.code, answer.stderr
    assert case.words in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.stderr
    assert snapshot(home) == before


def test_what_a_file_says_cannot_steer_the_terminal(home: Path) -> None:
    """Colours, titles and the like come from nobody but us."""
    folder = home.parent / "steering"
    folder.mkdir()
    (folder / "p.csv").write_text("a\x1b]0;title\x07,b\x1b[31m\n1,2\n")
    case = Case("", "", 2, "", ("score", "p.csv"))
    assert not re.search("[\x00-\x09\x0b-\x1f]", ask(case, folder).message)
    shutil.rmtree(folder)


def test_the_table_is_as_large_as_the_docs_say() -> None:
    assert len(CASES) >= 200
    assert PAGE.read_text() == page()
