"""The built wheel in an environment of its own: the command, the studies and the templates."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def environment(folder: Path, *install: str) -> Path:
    """Make an environment, install into it, and return its folder of commands."""
    venv.create(folder, symlinks=True)
    commands = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python")]
    words = ["install", "--quiet", "--disable-pip-version-check", *install]
    subprocess.run([*pip, *words], check=True)
    return commands


@pytest.mark.end_to_end
def test_the_wheel_holds_studies_templates_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "falconcal/studies/digits.toml" in names
    assert "falconcal/report/templates/report.html.jinja" in names
    assert "falconcal/report/templates/score.html.jinja" in names
    assert "falconcal/py.typed" in names
    assert not any(name.startswith("tests") for name in names)


@pytest.mark.end_to_end
def test_the_wheel_runs_a_study_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    """Its own environment borrows the dependencies of this one by path, so that none is fetched."""
    commands = environment(tmp_path / "venv", "--no-deps", str(wheel))
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # a path file lends the packages, not the editable install, whose own path file is not read
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run_digits(commands, tmp_path)


@pytest.mark.slow
def test_pip_install_alone_gives_a_command_that_works(tmp_path: Path) -> None:
    constraints = str(ROOT / "constraints.txt")
    commands = environment(tmp_path / "venv", "--constraint", constraints, str(ROOT))
    _run_digits(commands, tmp_path)


def _run_digits(commands: Path, folder: Path) -> None:
    where = "import falconcal; print(falconcal.__file__)"
    python = [str(commands / "python"), "-c", where]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        python, check=True, capture_output=True, text=True, cwd=folder, env=alone
    ).stdout
    assert str(folder) in found
    words = ["run", "digits", "--out", "out", "--methods", "dropout", "--smoke"]
    answer = subprocess.run(
        [commands / "falconcal", *words],
        capture_output=True, text=True, cwd=folder, check=False, env=alone,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert (folder / "out" / "report.html").exists()
