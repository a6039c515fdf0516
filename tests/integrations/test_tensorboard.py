"""Event files for TensorBoard, read back by TensorBoard itself."""

import json
from pathlib import Path

import polars
import pytest
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.errors import UserError
from falconcal.integrations.tensorboard import (
    EventFiles,
    event_folder,
    need_tensorboard,
    with_tensorboard,
)
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.studies.events import Event
from falconcal.studies.reference import REFERENCE_RUN
from falconcal.studies.runner import do_runs
from falconcal.training import EpochRecord
from tests.helpers.small_studies import TEXT, Silent, everything
from tests.helpers.stripes import TRUST, read_own

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

RUN = RunKey(DEFAULT_VARIANT, "falcon", 0)
Curve = list[tuple[int, float]]
pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def curves(directory: Path, run: RunKey) -> dict[str, Curve]:
    """Return what TensorBoard reads of a run: steps and values by name."""
    (_,) = event_folder(directory, run).iterdir()  # one file, so nothing is shown twice
    events = EventAccumulator(str(event_folder(directory, run)))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tracked")
    ensemble = '[methods.ensemble]\nsize = 2\nbase = {method = "dropout", epochs = 2}\n'
    study = read_own(f"{TEXT}\n{ensemble}", "test", ["falcon.epochs=3"])
    with with_tensorboard(Silent(), directory, wanted=True) as progress:
        do_runs(study, directory, progress, ["falcon", "ensemble"])
    return directory


@pytest.mark.end_to_end
def test_training_is_there_by_epoch(folder: Path) -> None:
    found = curves(folder, RUN)
    history = polars.read_parquet(RUN.folder(folder) / "history.parquet")
    terms = set(history["term"])
    assert {"clean/cross_entropy", "clean/entropy", "calibration/calibration"} <= terms
    assert any(term.startswith("validation/") for term in terms)
    for term in terms:
        expected = history.filter(term=term).select("epoch", "value").rows()
        assert [step for step, _ in found[term]] == [1, 2, 3]
        assert dict(found[term]) == pytest.approx(dict(expected), rel=1e-6)


@pytest.mark.end_to_end
def test_metrics_are_there_by_level_and_of_whole_shifts(folder: Path) -> None:
    found = curves(folder, RUN)
    rows = polars.read_parquet(folder / "rows.parquet").filter(method="falcon")
    levels = rows.filter(shift="shear", metric="ece").sort("level").select("level", "value").rows()
    assert len(levels) > 2
    assert dict(found["ece/shear"]) == pytest.approx(dict(levels), rel=1e-6)
    whole = rows.filter(shift="shear", metric="micro_ece")["value"].item()
    assert dict(found["shifts/micro_ece/shear"]) == pytest.approx({0: whole}, rel=1e-6)
    clean = rows.filter(shift="clean", metric="accuracy")["value"].item()
    assert dict(found["accuracy/clean"]) == pytest.approx({0: clean}, rel=1e-6)


@pytest.mark.end_to_end
def test_settings_are_there_as_text(folder: Path) -> None:
    events = EventAccumulator(str(event_folder(folder, RUN)))
    events.Reload()
    (event,) = events.Tensors("settings/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert json.loads(text)["settings"]["epochs"] == 3


@pytest.mark.end_to_end
def test_members_of_an_ensemble_follow_one_another(folder: Path) -> None:
    found = curves(folder, RunKey(DEFAULT_VARIANT, "ensemble", 0))
    steps = [step for step, _ in found["clean/cross_entropy"]]
    assert steps == [1, 2, 3, 4]


def test_epochs_are_there_while_a_run_trains_and_go_when_it_begins_anew(tmp_path: Path) -> None:
    files = EventFiles(tmp_path)
    for value in (9.0, 1.0):  # the first is interrupted
        for run in (RUN, REFERENCE_RUN):
            files.on_event(Event(run, "begun"))
            for epoch in (1, 2, 1, 2):  # two members
                record = EpochRecord(epoch, 2, {"clean/loss": value}, {"criterion": 0.5})
                files.on_event(Event(run, "epoch", record=record))
        steps = [1, 2, 3, 4]
        expected = {
            "clean/loss": [(step, value) for step in steps],
            "validation/criterion": [(step, 0.5) for step in steps],
        }
        assert curves(tmp_path, RUN) == expected
        files.close()
    assert not (tmp_path / "tensorboard" / REFERENCE_RUN.variant).exists()
    resumed = EventFiles(tmp_path)
    resumed.begin(RUN)
    resumed.epoch(RUN, EpochRecord(3, 4, {"clean/loss": 2.0}))
    resumed.close()
    assert curves(tmp_path, RUN) == {"clean/loss": [(3, 2.0)]}


@pytest.mark.end_to_end
def test_runs_that_were_complete_get_their_files_and_stay_as_they_are(tmp_path: Path) -> None:
    study = read_own(TEXT, "test", ["dropout.epochs=1"])
    do_runs(study, tmp_path, Silent(), ["dropout"])
    before = everything(tmp_path / "runs")
    assert not (tmp_path / "tensorboard").exists()
    for _ in range(2):
        with with_tensorboard(Silent(), tmp_path, wanted=True) as progress:
            do_runs(study, tmp_path, progress, ["dropout"])
        found = curves(tmp_path, RunKey(DEFAULT_VARIANT, "dropout", 0))
        assert [step for step, _ in found["clean/cross_entropy"]] == [1]
    assert everything(tmp_path / "runs") == before


def test_without_tensorboard_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falconcal.integrations.tensorboard.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(UserError, match=r"pip install 'falconcal\[tensorboard\]'"):
        need_tensorboard()


@pytest.mark.end_to_end
def test_the_command_asks_for_tensorboard_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stripes.toml").write_text(TEXT)
    monkeypatch.setattr("falconcal.integrations.tensorboard.find_spec", lambda name: None)  # noqa: ARG005
    outcome = CliRunner().invoke(app, ["run", "stripes.toml", *TRUST, "--smoke", "--tensorboard"])
    assert isinstance(outcome.exception, UserError)
    assert not (tmp_path / "runs").exists()
