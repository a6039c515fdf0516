"""The examples of CONTRIBUTING.md, put where it says, are found without any further edit."""

import re
import shutil
from pathlib import Path

import polars
import pytest

from tests.helpers.command import run
from tests.helpers.paths import ROOT

# the section, the file that takes its code, and the file and the first line of the table
PLACES = {
    "A method": ("methods/confidence_penalty.py", "methods/__init__.py", "METHODS: "),
    "A shift": ("shifts/gamma.py", "shifts/__init__.py", "SHIFTS: "),
    "A metric": ("metrics/proper_scores.py", "metrics/__init__.py", "METRICS: "),
    "A dataset": ("data/sets/clouds.py", "data/__init__.py", "DATASETS: "),
}
# what the entry needs, at its place among the sorted imports
IMPORTS = {
    "A method": "from falconcal.methods.confidence_penalty import ConfidencePenalty",
    "A shift": "from falconcal.shifts.gamma import gamma_shifts",
    "A metric": "from falconcal.metrics.proper_scores import top_label_brier",
    "A dataset": "from falconcal.data.sets import clouds",
}
STUDY = """
name = "mine"
title = "Clouds that get darker"
dataset = "clouds"
model = "mlp"
batch_size = 50
seeds = 1
shifts = ["gamma"]

[methods.dropout]
epochs = 2

[methods.confidence_penalty]
epochs = 2
"""


def example(section: str) -> tuple[str, str]:
    """Return the code of a section and its entry."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"\n### {section}\n")[2]
    code = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    entry = re.search(r"^The entry: `(.*?)`", text, re.MULTILINE)
    assert code is not None
    assert entry is not None
    return code[1], entry[1]


def add(section: str, package: Path) -> None:
    """Put the code of a section at the end of its file, and its entry into its table."""
    file, table_file, table = PLACES[section]
    code, entry = example(section)
    with (package / file).open("a") as end:
        end.write(f"\n\n{code}")
    lines = (package / table_file).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(table))
    lines.insert(start + 1, f"    {entry},")
    imports = [number for number, line in enumerate(lines) if line.startswith("from falconcal.")]
    later = (number for number in imports if lines[number] > IMPORTS[section])
    lines.insert(next(later), IMPORTS[section])
    (package / table_file).write_text("\n".join(lines))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extended")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "falconcal", folder / "falconcal", ignore=ignored)
    for section in PLACES:
        add(section, folder / "falconcal")
    (folder / "mine.toml").write_text(STUDY)
    return folder


@pytest.mark.end_to_end
def test_the_list_has_all_four(extended: Path) -> None:
    listed = run("list", folder=extended)
    assert listed.returncode == 0, listed.stderr
    names = {line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")}
    assert {"confidence_penalty", "gamma", "top_label_brier", "clouds"} <= names


@pytest.mark.end_to_end
def test_a_study_trains_measures_and_reports_them(extended: Path) -> None:
    ran = run("run", "mine.toml", "--smoke", "--out", "mine", folder=extended)
    assert ran.returncode == 0, ran.stderr
    rows = polars.read_parquet(extended / "mine" / "rows.parquet")
    mine = rows.filter(method="confidence_penalty", shift="gamma", metric="top_label_brier")
    assert len(mine) > 0
    report = (extended / "mine" / "report.html").read_text()
    assert [word for word in ("confidence_penalty", "gamma", "clouds") if word not in report] == []
    assert '<th scope="row">Top-label Brier score</th>' in report
