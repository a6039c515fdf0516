"""Every bad input of the table: its exit code, its words, no traceback, and nothing left behind."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bad_inputs import PAGE, page
from tests.helpers.bad_inputs.home import write_home
from tests.helpers.bad_inputs.table import cases
from tests.helpers.bad_inputs.trying import Case, ask, snapshot
from tests.helpers.docs_tables import REWRITE
from tests.helpers.paths import ROOT

CASES = cases()
# a few as processes of their own
SEPARATE = [
    case
    for case in CASES
    if case.title in ("rn", "run", "score", "predict", "report")
    or str(case) in ("Files: score, CSV: noise", "Files: run, study: noise")
]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Watched:
    """A folder that is to stay as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.before = folder, snapshot(folder)

    def changes(self) -> set[str]:
        """Return what has changed since the last time that anybody asked."""
        before, self.before = self.before, snapshot(self.folder)
        return {path for path, _ in before.items() ^ self.before.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return Watched(folder)


def wrong(case: Case, home: Watched) -> str:
    """Return what is wrong with the answer to a bad input, nothing if it is as it should be."""
    try:
        answer = ask(case, home.folder)
    except BaseException as error:  # also what leaves the process, with a success
        return f"traceback of {error!r}"
    if changes := home.changes():
        return f"left behind: {changes}"
    if answer.code != case.code:
        return f"exit code {answer.code}, not {case.code}: {answer.message}"
    as_expected = case.words in answer.message and "Traceback" not in answer.message
    return "" if as_expected else f"{case.words!r} is not in: {answer.message}"


@pytest.mark.end_to_end
@pytest.mark.parametrize("surface", dict.fromkeys(case.surface for case in CASES))
def test_bad_inputs_get_a_code_and_words_and_leave_nothing(surface: str, home: Watched) -> None:
    tried = [case for case in CASES if case.surface == surface]
    found = {case.title: wrong(case, home) for case in tried}
    gc.collect()  # a file that was left open is a fault, too
    assert {title: reason for title, reason in found.items() if reason} == {}


@pytest.mark.end_to_end
@pytest.mark.parametrize("case", SEPARATE, ids=str)
def test_in_a_process_of_its_own_it_is_the_same(case: Case, home: Watched) -> None:
    root = ROOT
    answer = subprocess.run(
        [sys.executable, "-m", "falconcal", *case.arguments],
        capture_output=True, text=True, check=False, cwd=home.folder, timeout=120,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert not home.changes()
    assert answer.returncode == case.code, answer.stderr
    assert case.words in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.stderr


@pytest.mark.end_to_end
@pytest.mark.parametrize("command", ["score", "predict"])
def test_what_a_file_says_cannot_steer_the_terminal(
    command: str, home: Watched, tmp_path: Path
) -> None:
    """Colours, titles and the like come from nobody but us."""
    (tmp_path / "p.csv").write_text("a\x1b]0;title\x07,b\x1b[31m\n1,2\n")
    model = [str(home.folder / "good" / "model.safetensors")] if command == "predict" else []
    answer = ask(Case("", "", 2, "", (command, *model, "p.csv")), tmp_path)
    assert answer.code == 2
    assert "title" in answer.message
    assert not re.search("[\x00-\x09\x0b-\x1f]", answer.message)


def test_the_table_is_as_large_as_the_docs_say() -> None:
    assert len(CASES) >= 200
    assert PAGE.read_text() == page(), f"write it again: {REWRITE}"
