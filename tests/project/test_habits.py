"""The habits of the project: what continuous integration runs, fixtures with their origin."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import UnmarkedProcessError
from tests.helpers.paths import FIXTURES, ROOT

SETTINGS = [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "mkdocs.yml"]


def test_every_fixture_says_where_it_comes_from() -> None:
    text = (FIXTURES / "README.md").read_text()
    for path in FIXTURES.iterdir():
        name = f"{path.name}/" if path.is_dir() else path.name
        assert path.name == "README.md" or f"| `{name}` |" in text


def test_what_tests_share_is_in_the_helpers() -> None:
    """A module of tests that another imports is run, and named in failures, twice."""
    modules = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    shared = re.compile(r"^\s*(?:from|import) (?:tests)?\.[\w.]*\btest_\w+", flags=re.MULTILINE)
    assert [path.name for path in modules if shared.search(path.read_text())] == []


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_of_other_tools_can_be_read(path: Path) -> None:
    assert yaml.safe_load(path.read_text())


def test_continuous_integration_begins_with_the_oldest_python() -> None:
    if not (ROOT / ".github").exists():
        pytest.skip("the source archive has no workflows")
    job = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["tests"]
    versions = job["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={versions[0]}"
    assert job["steps"][-1] == {"run": ".ci/run"}


def test_an_unmarked_test_cannot_start_python() -> None:
    with pytest.raises(UnmarkedProcessError, match="end_to_end"):
        subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.end_to_end
def test_a_marked_test_can() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
