"""What people have stored keeps working: files of before the modules moved are still read."""

import shutil
from pathlib import Path

import polars
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import falconcal
from falconcal.cli import app
from falconcal.core.settings import as_dict
from falconcal.data import Dataset
from falconcal.methods import make_method
from falconcal.report import load_results
from falconcal.training import History
from tests.helpers.paths import FIXTURES

STORED = FIXTURES / "stored"
MODELS = sorted(path for path in (STORED / "models").glob("*") if path.stem != "probabilities")
DRAWN = {"svi"}  # what is drawn for a row has another key since
# The files were written on a machine with another CPU, which rounds sums of float32 another way;
# the steep pieces of isotonic regression make 3e-6 of that. Batches in another order move the
# weights of the checkpoint by 2e-3.
OTHER_CPU = 1e-5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stored files, which is the current folder: the study names its data there."""
    shutil.copytree(STORED, tmp_path / "stored")
    monkeypatch.chdir(tmp_path / "stored")
    return tmp_path / "stored"


def rows() -> Dataset:
    return falconcal.load_dataset("npz", path=str(STORED / "data.npz"), bounds=[0.0, 1.0])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_stored_model_answers_as_it_did(path: Path) -> None:
    saved = falconcal.load(path)
    assert saved.metadata.method is not None
    assert saved.metadata.method["method"] == path.stem
    expected = safetensors.torch.load_file(STORED / "models" / "probabilities.safetensors")
    found = falconcal.predict(saved.model, rows().test).probs
    if path.stem not in DRAWN:
        torch.testing.assert_close(found, expected[path.stem], rtol=0, atol=OTHER_CPU)


@pytest.mark.end_to_end
def test_a_stored_folder_is_complete_and_its_rows_are_the_same(folder: Path) -> None:
    before = (folder / "run" / "rows.parquet").read_bytes()
    times = {path: path.stat().st_mtime_ns for path in (folder / "run" / "runs").rglob("*")}
    arguments = ["run", "stored.toml", "--out", "run", "--methods", "dropout,falcon,temperature"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert {path: path.stat().st_mtime_ns for path in times} == times
    methods = ["dropout", "falcon", "temperature"]
    old = polars.read_parquet(before).filter(polars.col("method").is_in(methods))
    new = polars.read_parquet(folder / "run" / "rows.parquet")
    same = polars.col("metric") != "smooth_ece"  # its grid closes its cells on the right since
    assert new.filter(same).equals(old.filter(same))
    assert (new["value"] - old["value"]).abs().max() < 1e-4  # type: ignore[operator]
    assert len(load_results(folder / "run").runs) == 3


@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
def test_a_stored_checkpoint_goes_on_to_the_same_weights(folder: Path) -> None:
    data, history = rows(), History()
    falcon = make_method({"method": "falcon", "epochs": 3, "entropy_weight": 1.0})
    model = falconcal.make_model("mlp", data)
    with falconcal.checkpointing(folder / "checkpoint", every_epochs=1), history.recording():
        falcon.fit(model, data.training_batches(40, 0), data.validation.batches(40))
    assert len(history) == 3
    expected = safetensors.torch.load_file(folder / "checkpoint_whole.safetensors")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=OTHER_CPU, msg=name)


@pytest.mark.end_to_end
def test_a_stored_search_goes_on(folder: Path) -> None:
    pytest.importorskip("optuna")
    before = (folder / "tune" / "trials.jsonl").read_text()
    arguments = ["tune", "stored.toml", "--method", "falcon", "--trials", "2", "--out", "tune"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert (folder / "tune" / "trials.jsonl").read_text() == before


def test_settings_that_were_stored_are_still_read() -> None:
    settings = falconcal.load(STORED / "models" / "falcon_ensemble.safetensors").metadata.method
    assert settings is not None
    assert as_dict(make_method(settings))["size"] == 2
