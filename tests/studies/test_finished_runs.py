"""Finished runs measured under further shifts: as if the study had named them; kills do no harm."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars
import pytest
import torch
from torch import nn

from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import RunKey
from falconcal.recalibration import CalibratedModel
from falconcal.report import load_results
from falconcal.shifts import SHIFT_GROUPS, affine_shifts, corruption_shifts, expand_groups
from falconcal.studies import Study, finished_runs
from falconcal.studies.finished_runs import MeasurementProgress, measure_runs
from falconcal.studies.measurement_request import Measurement
from falconcal.studies.run import StudyContext
from falconcal.studies.run_files import load_weights, save_weights, write_table
from falconcal.studies.run_models import RunModels, same_weights
from falconcal.studies.runner import do_runs
from falconcal.studies.store import Store
from falconcal.studies.study_reading import stored_study
from tests.helpers.small_studies import TEXT, Silent, everything
from tests.helpers.stripes import make_small, read_own

# the stripes are too easy to determine a temperature
pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning"),
]
CALIBRATED = """
[methods.falcon_temperature]
method = "temperature"
base = "falcon"
[methods.shift_temperature]
base = "dropout"
perturbed = ["wave"]
check_families = false
stored = 20
[methods.scaled]
method = "temperature"
base = "shift_temperature"
"""
SHORT = ["*.epochs=2", "*.keep=last", "levels=2"]
SHEAR_ALONE = ['shifts=["shear"]', "selection_shifts=[]"]
FURTHER = 'shifts=["shear", "xshift", "fgsm"]'


def study(*changes: str) -> Study:
    return read_own(TEXT + CALIBRATED, "test", [*SHORT, *SHEAR_ALONE, *changes])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of a study with one shift."""
    folder = tmp_path_factory.mktemp("made") / "out"
    assert not do_runs(study("seeds=2"), folder, Silent())
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def measured(directory: Path, *shifts: str, **changes: Any) -> finished_runs.MeasurementOutcome:
    request = Measurement(directory, shifts, trust_code=("tests",), **changes)
    return measure_runs(request, lambda _: None)


def scores(directory: Path) -> dict[RunKey, polars.DataFrame]:
    return {
        run: polars.read_parquet(run.folder(directory) / "scores.parquet")
        for run in Store(directory).runs()
    }


def test_runs_get_the_scores_that_a_study_with_these_shifts_gives(
    folder: Path, tmp_path: Path
) -> None:
    sets = 'outliers=["uniform_noise"]'
    do_runs(study("seeds=2", FURTHER, sets), tmp_path / "whole", Silent())
    outcome = measured(folder, "xshift", "fgsm", outliers=("uniform_noise",))
    assert outcome == finished_runs.MeasurementOutcome([], True)
    expected, found = scores(tmp_path / "whole"), scores(folder)
    assert len(found) == 10
    assert found.keys() == expected.keys()
    for run, table in found.items():
        assert table.equals(expected[run]), run
    rows, whole = (
        polars.read_parquet(one / "rows.parquet") for one in (folder, tmp_path / "whole")
    )
    assert rows.equals(whole)
    assert load_results(folder).tested_shifts == ("shear", "xshift", "fgsm")
    assert load_results(folder).outliers == ("uniform_noise",)
    assert (folder / "examples" / "xshift.png").is_file()
    assert not (folder / "measured").exists()


def test_the_study_goes_on_in_the_folder_and_new_runs_are_measured_under_all(folder: Path) -> None:
    measured(folder, "xshift")
    silent = Silent()
    assert not do_runs(study("seeds=3"), folder, silent)
    assert {run.seed for run in silent.begun} == {2}
    assert {run.seed for run in silent.skipped} == {0, 1}
    shifts = [set(table["shift"].cast(polars.String)) for table in scores(folder).values()]
    assert len(shifts) == 15
    assert all(names == {"clean", "shear", "xshift"} for names in shifts)
    assert load_results(folder).tested_shifts == ("shear", "xshift")
    assert not do_runs(study("seeds=3", 'shifts=["shear", "xshift"]'), folder, Silent())
    with pytest.raises(UserError, match=r"shifts: .* there"):
        do_runs(study('shifts=["yshift"]'), folder, Silent())


def test_new_calibrators_are_not_fitted_on_what_was_added(folder: Path) -> None:
    for method in ("shift_temperature", "scaled"):
        shutil.rmtree(folder / "runs" / "default" / method)
    measured(folder, "wave")
    notes: list[str] = []
    do_runs(study("seeds=2"), folder, lambda event: notes.append(event.text))
    assert "not fitted on wave, which the study tests" in notes


def test_some_runs_can_be_measured_first(folder: Path) -> None:
    before = everything(folder)
    outcome = measured(folder, "xshift", methods=("dropout",), seeds=1)
    assert len(outcome.notes) == 1
    assert "--shifts xshift" in outcome.notes[0]
    assert outcome.complete  # the report is as it was: xshift is not in it yet
    assert load_results(folder).tested_shifts == ("shear",)
    changed = {name for name, content in everything(folder).items() if before.get(name) != content}
    assert {Path(name).name for name in changed} <= {"scores.parquet", ".lock"}
    assert len([name for name in changed if name.endswith("scores.parquet")]) == 1
    assert not measured(folder, "xshift").notes
    assert load_results(folder).tested_shifts == ("shear", "xshift")


class Killed(BaseException):
    """The process ends here."""


def kill(*_: Any) -> None:
    raise Killed


@pytest.mark.parametrize("writes", [0, 3, 10, 17, 20, 25, 29, 30])
def test_a_killed_command_goes_on_where_it_was(
    folder: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written last before the end, nothing is lost, doubled or half written."""
    written: list[Path] = []

    def counted(path: Path, table: polars.DataFrame) -> None:
        if len(written) == writes:
            raise Killed
        written.append(path)
        write(path, table)

    write = write_table
    with monkeypatch.context() as patched:
        patched.setattr(finished_runs, "write_table", counted)
        try:
            measured(folder, "xshift", "yshift")
        except Killed:
            assert load_results(folder).tested_shifts == ("shear",)
        else:
            assert len(written) == 30  # two shifts of ten runs, then each run's scores
            return
    scored: list[str] = []
    request = Measurement(folder, ("xshift", "yshift"), trust_code=("tests",))
    measure_runs(request, lambda progress: scored.append(progress.name))
    assert ("xshift" in scored) == (writes < 10)  # what is stored is not measured again
    assert ("yshift" in scored) == (writes < 20)
    for table in scores(folder).values():
        counts = table.group_by(polars.col("shift").cast(polars.String)).len()
        assert dict(counts.iter_rows()) == {"clean": 30, "shear": 60, "xshift": 60, "yshift": 60}
    assert load_results(folder).tested_shifts == ("shear", "xshift", "yshift")


def test_an_end_before_the_rows_are_written_is_made_up_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("collect_rows", "write_study_pictures"):
        with monkeypatch.context() as patched:
            patched.setattr(finished_runs, step, kill)
            with pytest.raises(Killed):
                measured(folder, "xshift")
        assert load_results(folder).tested_shifts == ("shear",)
    measured(folder, "xshift")
    assert load_results(folder).tested_shifts == ("shear", "xshift")


def test_scores_that_wait_are_dropped_where_the_run_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(finished_runs, "_conclude", kill)
        with pytest.raises(Killed):
            measured(folder, "xshift")
    run = RunKey("default", "dropout", 0)
    assert Store(folder).measured_file(run, "xshift").is_file()
    shutil.rmtree(run.folder(folder))
    do_runs(study(), folder, Silent(), methods=["dropout"])
    assert not Store(folder).measured_file(run, "xshift").exists()
    assert Store(folder).measured_file(RunKey("default", "falcon", 0), "xshift").is_file()


def test_calibrated_runs_hold_their_base_runs_own_module(folder: Path) -> None:
    context = StudyContext(study("seeds=2"), Store(folder))
    models = RunModels(context)
    for seed in range(2):
        dropout, falcon, temperature, shift, scaled = (
            models.of(RunKey("default", name, seed))
            for name in ("dropout", "falcon", "falcon_temperature", "shift_temperature", "scaled")
        )
        for model, base in ((temperature, falcon), (shift, dropout), (scaled, shift)):
            assert isinstance(model, CalibratedModel)
            assert model.model is base


def test_a_base_of_other_weights_is_not_shared(folder: Path) -> None:
    context = StudyContext(study("seeds=2"), Store(folder))
    base, calibrated = RunKey("default", "falcon", 0), RunKey("default", "falcon_temperature", 0)
    file = base.folder(folder) / "weights.safetensors"
    other = load_weights(file, make_small(context.dataset))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    save_weights(file, other)
    models = RunModels(context)
    model = models.of(calibrated)
    assert isinstance(model, CalibratedModel)
    assert model.model is not models.of(base)
    assert not same_weights(model.model, models.of(base))


def test_same_weights_needs_the_same_kind_and_names() -> None:
    linear = nn.Linear(2, 2)
    assert same_weights(linear, linear)
    assert not same_weights(linear, nn.Linear(2, 2, bias=False))
    assert not same_weights(nn.Sequential(linear), nn.ModuleList([linear]))


def test_what_is_measured_later_is_scored_as_at_once(made: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    assert not do_runs(study("seeds=2"), later, Silent(), measure_later=True)
    assert all(
        set(table["shift"].cast(polars.String)) == {"clean"} for table in scores(later).values()
    )
    with pytest.raises(UserError, match="falconcal measure"):
        load_results(later)
    assert not do_runs(study("seeds=2"), later, Silent())  # complete runs stay as they are
    assert not measured(later, methods=("falcon",)).complete
    assert measured(later).complete
    assert all(table.equals(scores(made)[run]) for run, table in scores(later).items())
    first, second = (polars.read_parquet(one / "rows.parquet") for one in (later, made))
    assert first.equals(second)
    assert "measured_later" not in json.loads((later / "study.json").read_text())
    with pytest.raises(UsageError, match="nothing is left to measure"):
        measured(later)


def test_progress_counts_levels_of_all_shifts(folder: Path) -> None:
    reported: list[MeasurementProgress] = []
    request = Measurement(folder, ("xshift",), ("uniform_noise",), trust_code=("tests",))
    measure_runs(request, reported.append)
    assert [(one.name, one.level, one.done) for one in reported] == [
        ("xshift", 1, 1.0),
        ("xshift", 2, 2.0),
        ("uniform_noise", 1, 3.0),
    ]
    assert {(one.runs, one.levels) for one in reported} == {(10, 3)}


@pytest.mark.parametrize(
    ("shifts", "changes", "words"),
    [
        (("sheer",), {}, "Did you mean 'shear'"),
        (("shear",), {}, "tested under shear already"),
        ((), {}, "nothing is left to measure"),
        (("xshift",), {"methods": ("falcn",)}, "Did you mean 'falcon'"),
        (("xshift",), {"variants": ("other",)}, "unknown variant"),
        ((), {"outliers": ("uniform",)}, "uniform_noise"),
        ((), {"outliers": ("shear",)}, "among the shifts of the study"),
        (("wave",), {}, r"shift_temperature, seed 0 was fitted on wave|scaled, seed 0"),
        (("wave | shear",), {}, "was fitted on wave"),
        (("xshift",), {"trust_code": ()}, "trust"),
    ],
)
def test_what_cannot_be_measured_is_refused_and_nothing_is_written(
    folder: Path, shifts: tuple[str, ...], changes: dict[str, Any], words: str
) -> None:
    before = everything(folder)
    request = Measurement(folder, shifts, **{"trust_code": ("tests",), **changes})
    with pytest.raises(UsageError, match=words):
        measure_runs(request, lambda _: None)
    assert {name: one for name, one in everything(folder).items() if ".lock" not in name} == {
        name: one for name, one in before.items() if ".lock" not in name
    }


def test_a_folder_without_finished_runs_is_refused(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="with finished runs, got"):
            measured(directory, "shear")


def test_other_test_data_are_refused(folder: Path) -> None:
    file = RunKey("default", "dropout", 0).folder(folder) / "scores.parquet"
    table = polars.read_parquet(file)
    table.with_columns(label=(polars.col("label") + 1) % 3).write_parquet(file)
    with pytest.raises(UserError, match="has the data changed"):
        measured(folder, "xshift")


def test_directions_of_falcon_are_not_tested(tmp_path: Path) -> None:
    changed = study('falcon.directions=["adversarial", "contrast"]')
    do_runs(changed, tmp_path, Silent(), methods=["falcon"])
    with pytest.raises(UsageError, match="directions holds contrast"):
        measured(tmp_path, "contrast")


def test_groups_stand_for_their_shifts() -> None:
    assert SHIFT_GROUPS["corruptions"] == tuple(corruption_shifts())
    assert len(SHIFT_GROUPS["corruptions"]) == 19
    assert expand_groups(["shear", "affine", "fgsm"]) == (
        "shear",
        *(name for name in affine_shifts() if name != "shear"),
        "fgsm",
    )


def test_a_stored_study_is_the_study_that_was_run(folder: Path) -> None:
    stored = stored_study(Store(folder).settings(), "study.json", ["tests"])
    ran = study("seeds=2")
    assert stored.resolved() == ran.resolved()
    assert stored.method("scaled") == ran.method("scaled")
