"""What the README claims: every sentence with a number or a comparison, and every command."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import polars
import pytest
from PIL import Image

from benchmarks import readme, turning_digit
from benchmarks.does_it_work import STUDIES, by_seed, mean, rows_of
from benchmarks.pages import put_between
from tests.helpers.command import run_here
from tests.helpers.paths import ROOT

README = (ROOT / "README.md").read_text()
MOST_WORDS = 200
TABLE = {study.title: study for study in STUDIES if study.is_there()}
MILD, FAR, GAS = "MNIST, LeNet, 19 corruptions", "MNIST, LeNet, nine affine shifts", "Gas sensors"


def prose(page: str) -> list[str]:
    """Return the words outside code, tables, comments, pictures and the targets of links."""
    for left_out in (
        r"```.*?```",
        r"<!--.*?-->",
        r"<picture>.*?</picture>",
        r"^\|.*?$",
        r"\]\(.*?\)",
    ):
        page = re.sub(left_out, " ", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"[^\s#*\[\]·|-]\S*", page)


def test_it_is_short() -> None:
    assert len(prose(README)) <= MOST_WORDS


def test_words_are_counted_outside_code_and_tables() -> None:
    page = "# Two words\n\n```sh\nmake demo\n```\n| a | b |\n\n[one](two/three.md) <!-- x: y -->"
    assert prose(page) == ["Two", "words", "one"]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/which_method.md"])
def test_its_figures_are_those_of_the_rows(page: str) -> None:
    text = written = (ROOT / page).read_text()
    figures = {"picture": readme.picture, "demo": readme.demo, "errors": readme.errors}
    for name, figure in figures.items():
        if f"<!-- {name}: " in text:
            written = put_between(written, name, "readme", figure())
    assert text == written
    assert "written by benchmarks/readme.py" in text


@pytest.mark.parametrize("name", turning_digit.INKS)
def test_the_picture_is_drawn_from_the_rows(name: str) -> None:
    file = turning_digit.FIGURES / f"turning-{name}.svg"
    assert file.read_text() == turning_digit.picture(name)
    assert file.name in README


def test_the_picture_s_right_end_by_hand() -> None:
    """Both directions at level 9, three seeds: the mean of six values."""
    rows = polars.read_parquet(turning_digit.ROWS).filter(
        polars.col("shift").is_in(["rot_left", "rot_right"]), level=9, method="shift_temperature"
    )
    sure = rows.filter(metric="confidence")["value"]
    assert len(sure) == 6
    assert f"says {100 * sum(sure) / 6:.0f} %" in README


def test_the_digit_is_turned_by_the_shift(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (real_data / "mnist").exists():
        pytest.skip("MNIST is not there")
    monkeypatch.setenv("FALCONCAL_DATA", str(real_data))
    with Image.open(turning_digit.DIGIT) as kept:
        assert kept.tobytes() == turning_digit.turned_digit().tobytes()


def test_a_table_cell_by_hand() -> None:
    """Macro ECE: the mean over levels, then over shifts, then over seeds."""
    rows = rows_of(TABLE[FAR]).filter(
        polars.col("shift").str.contains("^(rot|x|y|shear)"), metric="ece", method="falcon"
    )
    means = [
        sum(part["value"]) / len(part)
        for part in rows.drop_nulls("level").partition_by("seed", "shift")
    ]
    assert len(means) == 9 * 3
    assert f"| {sum(means) / len(means):.3f} |" in README


def test_shift_temperature_changes_no_prediction() -> None:
    rows = rows_of(TABLE[FAR]).filter(metric="accuracy")
    keys = ["seed", "shift", "level"]
    plain, ours = (
        rows.filter(method=name).sort(keys)["value"] for name in ("dropout", "shift_temperature")
    )
    assert plain.equals(ours)


def error(title: str, method: str) -> float:
    study = next(study for name, study in TABLE.items() if name.startswith(title))
    found = readme.macro_ece(study, method)
    assert found is not None
    return found


def test_on_mild_shifts_it_lowers_a_confidence_that_was_right() -> None:
    study = TABLE[MILD]
    under = rows_of(study).filter(
        polars.col("shift").str.contains(study.shifts), polars.col("level") > 0
    )
    sure = {
        method: mean(by_seed(under.filter(method=method), "confidence"))
        for method in ("dropout", "shift_temperature")
    }
    assert sure["shift_temperature"] < sure["dropout"]
    assert error(MILD, "shift_temperature") > error(MILD, "plain")


def test_what_the_decision_page_says_of_each_case() -> None:
    columns = [name for name in readme.COLUMNS if name != "plain"]
    best = {
        title: min(columns, key=lambda method: error(title, method))
        for title in (FAR, MILD, GAS, "Electricity", "CIFAR-10, a small")
    }
    assert best[FAR] == best["Electricity"] == best["CIFAR-10, a small"] == "shift_temperature"
    assert best[MILD] == "temperature"
    assert error(MILD, "temperature") < error(MILD, "plain")
    assert best[GAS] == "falcon"
    assert error(FAR, "temperature") > error(FAR, "plain")  # on the page why.md
    assert error(FAR, "shift_temperature") <= error(FAR, "falcon_shift_temperature")
    digits = {name: readme.macro_ece(TABLE[next(iter(TABLE))], name) for name in readme.COLUMNS}
    known = {name: value for name, value in digits.items() if value is not None}
    assert min(known, key=known.__getitem__) == "falcon_shift_temperature"


def test_crafted_shifts_do_not_vouch_for_drifting_tables() -> None:
    """They leave most of plain's error on the sensors; labelled later rows leave less."""
    later = rows_of(TABLE[next(name for name in TABLE if name.startswith(GAS))]).filter(
        polars.col("level") > 0, metric="ece"
    )
    means = {
        method: mean(later.filter(method=method)["value"].to_list())
        for method in ("dropout", "shift_temperature", "shift_temperature_drifted_monotone")
    }
    assert means["shift_temperature"] > 0.7 * means["dropout"]
    assert means["shift_temperature_drifted_monotone"] < means["shift_temperature"]


def test_python_is_as_old_as_it_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 or newer" in README
    assert f"Licence: {project['license']}" in README


def commands() -> list[str]:
    block = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    return [line.partition("#")[0].strip() for text in block for line in text.splitlines()]


def test_its_commands_are_these() -> None:
    assert commands() == ["make demo", "make test", "falconcal score predictions.csv"]


@pytest.mark.end_to_end
def test_make_demo_is_a_command_that_runs(tmp_path: Path) -> None:
    made = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (line,) = [one for one in made.stdout.splitlines() if "falconcal run" in one]
    words = shlex.split(line)
    assert words[0].endswith("falconcal")
    assert words[1:] == ["run", "digits", "--threads", "1", "--out", "runs/digits"]
    done = run_here("run", "digits", "--smoke", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Report: ")


@pytest.mark.end_to_end
def test_a_file_of_predictions_is_judged(tmp_path: Path) -> None:
    lines = ["label,p_0,p_1", *["0,0.9,0.1"] * 30, *["1,0.6,0.4"] * 10]
    (tmp_path / "predictions.csv").write_text("\n".join(lines))
    done = run_here(*shlex.split(commands()[-1])[1:], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "score").is_dir()
