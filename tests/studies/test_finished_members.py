"""An ensemble of a study's own finished runs: what it waits for, what it is, what it costs."""

import json
import shutil
from pathlib import Path

import polars
import pytest
import torch

from falconcal import Ensemble, UserError, load
from falconcal.errors import UsageError
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.models.predict import predict
from falconcal.report import write_report
from falconcal.studies import Study
from falconcal.studies.base_runs import seeds_of
from falconcal.studies.executors.local_workers import local_executor
from falconcal.studies.finished_runs import measure_runs
from falconcal.studies.measurement_request import Measurement
from falconcal.studies.run import StudyContext
from falconcal.studies.run_files import load_weights
from falconcal.studies.runner import do_runs
from falconcal.studies.schedule import Schedule, dependencies, runs_of
from falconcal.studies.store import Store
from tests.helpers.small_data import small_network
from tests.helpers.small_studies import TEXT, Silent, everything
from tests.helpers.stripes import load_stripes, read_own

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning")
JOINED = """
[methods.deep_ensemble]
method = "ensemble"
members = "finished"
base = "dropout"
size = 2
[methods.scaled_ensemble]
method = "temperature"
base = "deep_ensemble"
"""
SHORT = ["*.epochs=2", "*.keep=last", "levels=1", 'shifts=["shear"]', "selection_shifts=[]"]
ENSEMBLE = RunKey(DEFAULT_VARIANT, "deep_ensemble", 0)


def study(*changes: str) -> Study:
    return read_own(TEXT + JOINED, "test", [*SHORT, "seeds=2", *changes])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of the study."""
    folder = tmp_path_factory.mktemp("made")
    assert do_runs(study(), folder, Silent()) == {}
    return folder


@pytest.mark.parametrize(
    ("seeds", "size", "left"), [(1, 2, 0), (2, 2, 1), (3, 2, 1), (6, 2, 3), (6, 3, 2)]
)
def test_only_whole_ensembles_are_run_and_what_is_calibrated_after_them(
    seeds: int, size: int, left: int
) -> None:
    made = study(f"seeds={seeds}", f"deep_ensemble.size={size}")
    runs = runs_of(made)
    for name in ("deep_ensemble", "scaled_ensemble"):
        assert [run.seed for run in runs if run.method == name] == list(range(left))
    assert seeds_of(made, "dropout") == seeds


def test_an_ensemble_waits_for_the_seeds_of_its_own_members(tmp_path: Path) -> None:
    made = study("seeds=4")
    context = StudyContext(made, Store(tmp_path))
    needs = dependencies(context, runs_of(made))
    for seed, members in ((0, (0, 1)), (1, (2, 3))):
        run = RunKey(DEFAULT_VARIANT, "deep_ensemble", seed)
        assert needs[run] == {RunKey(DEFAULT_VARIANT, "dropout", member) for member in members}
        assert needs[RunKey(DEFAULT_VARIANT, "scaled_ensemble", seed)] == {run}
    schedule = Schedule(needs)
    failed = schedule.fail(RunKey(DEFAULT_VARIANT, "dropout", 3), "no memory")
    assert {(run.method, run.seed) for run in failed} == {
        ("dropout", 3), ("deep_ensemble", 1), ("scaled_ensemble", 1),
    }  # fmt: skip


@pytest.mark.end_to_end
def test_it_averages_the_probabilities_of_the_finished_models(made: Path) -> None:
    inputs = load_stripes().test.inputs
    folders = [RunKey(DEFAULT_VARIANT, "dropout", seed).folder(made) for seed in range(2)]
    members = [load_weights(one / "weights.safetensors", small_network()) for one in folders]
    with torch.no_grad():
        expected = sum(member(inputs).softmax(1) for member in members) / 2
    stored = load(ENSEMBLE.folder(made) / "weights.safetensors", trust_code=["tests"])
    found = predict(stored.model, load_stripes().test).log_probs.exp()
    torch.testing.assert_close(found, expected, check_dtype=False)


@pytest.mark.end_to_end
def test_it_records_its_members_and_what_their_training_cost(made: Path) -> None:
    record = json.loads((ENSEMBLE.folder(made) / "run.json").read_text())
    assert record["members"] == ["dropout, seed 0", "dropout, seed 1"]
    members = [RunKey(DEFAULT_VARIANT, "dropout", seed).folder(made) for seed in range(2)]
    spent = [json.loads((one / "run.json").read_text())["training_seconds"] for one in members]
    assert record["training_seconds"] > sum(spent)
    history = polars.read_parquet(ENSEMBLE.folder(made) / "history.parquet")
    assert history["epoch"].unique().to_list() == [1, 2]


@pytest.mark.end_to_end
def test_nothing_is_trained_and_running_again_adds_the_next_ensemble(
    made: Path, tmp_path: Path
) -> None:
    epochs = []
    silent = Silent()

    def listen(event: object) -> None:
        silent(event)  # type: ignore[arg-type]
        if getattr(event, "kind", "") == "epoch":
            epochs.append(getattr(event, "run", None))

    do_runs(study("seeds=1"), tmp_path, Silent(), ["dropout"])
    do_runs(study(), tmp_path, listen, ["dropout", "deep_ensemble"])
    assert silent.begun == [RunKey(DEFAULT_VARIANT, "dropout", 1), ENSEMBLE]
    assert set(epochs) == {RunKey(DEFAULT_VARIANT, "dropout", 1)}
    name = "scores.parquet"
    whole, added = (ENSEMBLE.folder(folder) / name for folder in (made, tmp_path))
    assert polars.read_parquet(added).equals(polars.read_parquet(whole))
    before = everything(tmp_path / "runs")
    do_runs(study("seeds=4"), tmp_path, Silent(), ["dropout", "deep_ensemble"])
    after = everything(tmp_path / "runs")
    assert {path: after[path] for path in before} == before
    assert RunKey(DEFAULT_VARIANT, "deep_ensemble", 1) in Store(tmp_path).runs()


@pytest.mark.end_to_end
def test_workers_give_the_same_rows(made: Path, tmp_path: Path) -> None:
    executor = local_executor(2, torch.get_num_threads())
    assert do_runs(study(), tmp_path, Silent(), make_executor=executor) == {}
    rows = [polars.read_parquet(folder / "rows.parquet") for folder in (made, tmp_path)]
    assert rows[1].equals(rows[0])


@pytest.mark.end_to_end
def test_it_is_measured_under_further_shifts_as_if_the_study_had_named_them(
    made: Path, tmp_path: Path
) -> None:
    first, named = tmp_path / "first", tmp_path / "named"
    shutil.copytree(made, first)
    trust = ("tests",)
    measure_runs(Measurement(first, shifts=("xshift",), trust_code=trust), lambda _: None)
    do_runs(study('shifts=["shear", "xshift"]', "levels=1"), named, Silent())
    scores = [
        polars.read_parquet(ENSEMBLE.folder(folder) / "scores.parquet") for folder in (first, named)
    ]
    assert scores[0].equals(scores[1])
    write_report(first)


@pytest.mark.end_to_end
def test_without_its_members_it_fails_and_names_them(tmp_path: Path) -> None:
    failed = do_runs(study(), tmp_path, Silent(), ["deep_ensemble"])
    assert "got none of dropout, seed 0, dropout, seed 1: run the base" in failed[ENSEMBLE]


def test_it_is_refused_with_too_few_seeds_where_it_was_asked_for() -> None:
    with pytest.raises(UsageError, match=r"raise --seeds, or lower deep_ensemble\.size"):
        runs_of(study("seeds=1"), ["dropout", "deep_ensemble"])
    assert {run.method for run in runs_of(study("seeds=1"))} == {"dropout", "falcon"}


def test_its_base_is_a_method_of_the_study() -> None:
    with pytest.raises(UsageError, match='members = "finished" expects'):
        study("deep_ensemble.base={method='focal', epochs=2}")


def test_python_joins_models_and_refuses_to_train_finished_ones() -> None:
    data, models = load_stripes(), [small_network(seed=seed) for seed in range(3)]
    method = Ensemble(size=3, members="finished")
    joined = method.join(models)
    assert [*joined.members] == models  # type: ignore[misc]
    assert not joined.training
    with pytest.raises(UserError, match="expected 3 models, as size says, got 2"):
        method.join(models[:2])
    with pytest.raises(UserError, match="takes models that are trained already"):
        method.fit(models[0], data.train.batches(10), data.validation.batches())
