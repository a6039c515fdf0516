"""Every study runs end to end at its smoke size, where its data is at hand."""

import os
from pathlib import Path

import polars
import pytest
import torch
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.data import load_dataset, subset_all_parts, subset_test
from falconcal.data.subsets import sample_indices
from falconcal.errors import UsageError
from falconcal.inference.model_file import load
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.studies import STUDIES, find_study
from falconcal.studies.building import load_study_dataset
from falconcal.studies.runner import do_runs
from falconcal.studies.schedule import runs_of
from tests.helpers.official_layouts import write_imagenet
from tests.helpers.small_studies import TEXT, Silent
from tests.helpers.stripes import TRUST, load_stripes, read_own

MADE_HERE = {"digits", "sensors", "imagenet"}  # need no files of others


def changes(name: str, folder: Path) -> list[str]:
    """Return what brings made images in ImageNet's layout to the study of it."""
    if name != "imagenet":
        return []
    settings = write_imagenet(folder)
    return [f"dataset.{key}={value}" for key, value in settings.items()]


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_end_to_end_at_its_smoke_size(name: str, tmp_path: Path) -> None:
    if name not in MADE_HERE and not os.environ.get("FALCONCAL_DATA"):
        pytest.skip(f"the data of {name} lies in the folder FALCONCAL_DATA, which is not set")
    study = find_study(name, changes(name, tmp_path / "data"), smoke=True)
    do_runs(study, tmp_path / "out", Silent())
    rows = polars.read_parquet(tmp_path / "out" / "rows.parquet")
    assert set(rows["method"]) == set(study.methods)
    assert set(rows["variant"]) == {run.variant for run in runs_of(study)}
    assert {*study.shifts, *study.selection_shifts, *study.outliers} <= set(rows["shift"])
    assert rows.filter(metric="confidence")["value"].is_between(0, 1).all()
    assert study.examples is not None
    assert rows.filter(shift="clean")["examples"].max() <= study.examples  # type: ignore[operator]
    folder = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(tmp_path / "out")
    assert load(folder / "weights.safetensors").metadata.method is not None


@pytest.mark.parametrize("name", STUDIES)
def test_a_smoke_run_changes_the_size_alone(name: str) -> None:
    whole, small = find_study(name), find_study(name, smoke=True)
    assert list(small.methods) == list(whole.methods)
    assert small.name == whole.name
    assert small.title.startswith("Smoke run, no result: ")
    assert set(small.shifts) <= set(whole.shifts)
    for method in small.methods:
        trained = small.method(method)
        while getattr(trained, "base", None) is not None:
            trained = trained.base  # type: ignore[attr-defined]
        assert trained.epochs == 1  # type: ignore[attr-defined]
    assert (whole.examples, whole.levels) == (None, None)
    assert not {"examples", "levels"} & whole.resolved().keys()


def test_a_study_without_a_table_for_smoke_runs_has_one_all_the_same() -> None:
    small = read_own(TEXT, "test", smoke=True)
    assert (small.examples, small.levels, small.method("falcon").epochs) == (200, 2, 1)  # type: ignore[attr-defined]
    changed = read_own(TEXT, "test", ["examples=7", "falcon.epochs=2"], smoke=True)
    assert (changed.examples, changed.method("falcon").epochs) == (7, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("smoke = 3", r"expected a table \[smoke\] of changes, got 3"),
        ("[smoke]\nexampels = 3", "Did you mean 'examples'"),
        ('[smoke]\n"falcn.share" = 0.5', "Did you mean 'falcon'"),
        ("[smoke]\nexamples = 0", "examples should be greater than or equal to 1"),
    ],
)
def test_a_wrong_table_for_smoke_runs_is_refused(table: str, message: str) -> None:
    text = f"{table}\n{TEXT}" if table.startswith("smoke") else f"{TEXT}\n{table}\n"
    with pytest.raises(UsageError, match=message):
        read_own(text, "test", smoke=True)


def test_levels_are_cut_and_stay_what_they_are() -> None:
    whole, small = read_own(TEXT, "test"), read_own(TEXT, "test", ["levels=3"])
    images = load_stripes().test.first(2).inputs
    for one, other in zip(whole.all_shifts(), small.all_shifts(), strict=True):
        assert list(other.levels) == [0, 1, 2, 3]
        assert torch.equal(other.at(images, 3), one.at(images, 3))  # type: ignore[union-attr]


def test_a_few_examples_are_of_all_classes_and_the_same_every_time() -> None:
    """Though the data lies in the order of the classes, or cycles through them."""
    for whole in (load_dataset("digits"), load_dataset("sensors", windows=2)):
        small, again = subset_all_parts(whole, 60), subset_all_parts(whole, 60)
        for part in ("train", "validation", "test"):
            one, other = getattr(small, part), getattr(again, part)
            assert len(one) == 60
            assert torch.equal(one.inputs, other.inputs)
            assert set(one.labels.tolist()) == set(range(len(whole.classes)))
    assert len(subset_all_parts(whole, 10**6).test) == len(whole.test)


def test_few_test_examples_leave_the_other_parts_whole() -> None:
    whole = load_dataset("digits")
    small = subset_test(whole, 40)
    assert len(small.train) == len(whole.train)
    assert len(small.validation) == len(whole.validation)
    which = sample_indices(len(whole.test), 40)
    assert torch.equal(small.test.labels, whole.test.labels[which])
    assert load_study_dataset(find_study("digits", ["test_examples=40"])).test.labels.equal(
        small.test.labels
    )


def test_outliers_are_cut_to_the_examples_of_the_study() -> None:
    data = load_stripes().test
    (whole,) = read_own(TEXT, "test", ['outliers=["uniform_noise"]']).all_outliers()
    cut = ["examples=7", 'outliers=["uniform_noise"]']
    (few_of_them,) = read_own(TEXT, "test", cut).all_outliers()
    inputs = torch.cat([batch for batch, _ in few_of_them.batches(data, 5)])
    assert torch.equal(inputs, torch.cat([batch for batch, _ in whole.batches(data, 5)])[:7])


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
def test_the_command_keeps_smoke_runs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stripes.toml").write_text(TEXT)
    arguments = ["run", "stripes.toml", *TRUST, "--smoke", "--methods", "dropout"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "Smoke run, no result" in (tmp_path / "runs/smoke/stripes/summary.md").read_text()
    assert not (tmp_path / "runs" / "stripes").exists()
