"""A study of later months: levels of one's own in a line of TOML, and a sample to fit on."""

from pathlib import Path

import numpy
import polars
import pytest

from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.recalibration import Temperature
from falconcal.report import write_report
from falconcal.studies.run_files import read_json
from falconcal.studies.runner import do_runs
from falconcal.studies.study import Study
from falconcal.studies.study_reading import read_study
from tests.helpers.small_studies import Silent

STUDY = """
name = "pumps"
dataset = {{name = "csv", path = "{folder}/january.csv", label = "state"}}
model = "mlp"
shifts = ["later"]
drift.later = [{{test = "{folder}/march.csv"}}, {{test = "{folder}/april.csv"}}]
drifted = {{shift = "later", level = 1, examples = 40}}
[methods.dropout]
epochs = 8
learning_rate = 0.01
[methods.temperature]
base = "dropout"
[methods.temperature_drifted]
method = "temperature"
base = "dropout"
drifted_examples = 30
"""


def write_month(folder: Path, month: str, rows: int, moved: float, seed: int) -> None:
    random = numpy.random.default_rng(seed)
    states = random.integers(0, 2, rows)
    heat = states * 2 - 1 + random.normal(0, 0.7, rows) + moved
    noise = random.normal(0, 1, rows)
    lines = [
        f"{a:.4f},{b:.4f},{('good', 'worn')[state]}"
        for a, b, state in zip(heat, noise, states, strict=True)
    ]
    (folder / f"{month}.csv").write_text("heat,noise,state\n" + "\n".join(lines) + "\n")


@pytest.fixture
def months(tmp_path: Path) -> Path:
    for seed, (month, rows, moved) in enumerate(
        (("january", 900, 0.0), ("march", 60, 1.5), ("april", 50, 3.0))
    ):
        write_month(tmp_path, month, rows, moved, seed)
    return tmp_path


def study_of(folder: Path, *changes: str) -> Study:
    return read_study(STUDY.format(folder=folder), "pumps", changes)


@pytest.mark.end_to_end
def test_later_months_are_levels_and_the_sample_is_fitted_on_and_never_tested(
    months: Path,
) -> None:
    study = study_of(months)
    do_runs(study, months / "out", Silent())
    rows = polars.read_parquet(months / "out" / "rows.parquet")
    sizes = rows.filter(shift="later", metric="accuracy", method="dropout", seed=0)
    assert sizes.sort("level")["examples"].to_list() == [90, 60 - 40, 50]
    assert sizes.sort("level")["value"][2] < sizes.sort("level")["value"][0]
    record = read_json(
        RunKey(DEFAULT_VARIANT, "temperature_drifted", 0).folder(months / "out") / "run.json"
    )
    assert record["fitted_on"] == record["kin"] == ["later"]
    plain = RunKey(DEFAULT_VARIANT, "temperature", 0).folder(months / "out") / "run.json"
    assert "fitted_on" not in read_json(plain)
    last = rows.filter(shift="later", metric="ece", level=2, seed=0)
    errors = dict(last.select("method", "value").rows())
    assert errors["temperature_drifted"] < errors["temperature"]
    write_report(months / "out")  # with intervals, though every level has examples of its own
    assert "later" in (months / "out" / "summary.md").read_text()


def test_a_level_inherits_the_settings_of_the_dataset(months: Path) -> None:
    study = study_of(months)
    (later,) = study.find_shifts(["later"])
    test = study.own_drift.sample(_part(study))
    assert test is not None
    assert len(test) == 40
    assert list(later.levels) == [0, 1, 2]
    assert test.classes == ("good", "worn")


def _part(study: Study):  # type: ignore[no-untyped-def]
    from falconcal.studies.building import load_study_dataset

    return load_study_dataset(study).test


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('drifted={shift="sooner", level=1}', "expected a name of the table drift, got 'sooner'"),
        ('drifted={shift="later", level=3}', "later has levels 1 to 2, got 3"),
        ('drift={shear=["digits"]}', "shear is a shift of falconcal"),
        ("drift={later=[]}", "at least one level"),
        ('drift={later=["nowhere"]}', "nowhere"),
        ('drift={later=[{tset="x"}]}', "tset"),
        ('drifted={shift="later", level=1, rows=3}', "rows"),
        ("temperature.drifted_examples=0", "drifted_examples"),
    ],
)
def test_a_drift_that_cannot_be_is_refused_before_anything_runs(
    months: Path, change: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        study_of(months, change)


def test_drifted_examples_need_the_table_that_says_which(months: Path) -> None:
    text = STUDY.format(folder=months).replace("drifted = {shift", "# {shift")
    with pytest.raises(UsageError, match="drifted_examples needs the study's table drifted"):
        read_study(text, "pumps")


def test_one_value_of_the_sample_is_changed_from_the_command_line(months: Path) -> None:
    study = study_of(months, "drifted.examples=10")
    assert study.own_drift.drifted is not None
    assert study.own_drift.drifted.examples == 10
    assert study.resolved()["drifted"]["examples"] == 10


def test_a_study_without_drift_is_stored_as_before() -> None:
    from falconcal.studies import find_study

    assert not {"drift", "drifted"} & set(find_study("digits").resolved())


def test_a_level_that_does_not_fit_is_found_before_training(months: Path) -> None:
    (months / "march.csv").write_text("heat,state\n1.0,good\n2.0,worn\n")
    with pytest.raises(UserError, match="expected the columns of training"):
        do_runs(study_of(months), months / "out", Silent())
    assert Temperature().drifted_examples is None
