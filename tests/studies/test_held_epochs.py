"""The reference and the run of plain training are one training, with the results of two."""

from pathlib import Path

import polars
import pytest
import torch
from safetensors.torch import load_file

from falconcal.core.method import Method
from falconcal.io.output_folder import WEIGHTS_FILE
from falconcal.studies import reference
from falconcal.studies import run as one_run
from falconcal.studies.events import Event
from falconcal.studies.reference import PLAIN_RUN, held_epochs
from falconcal.studies.run_files import read_json
from falconcal.studies.runner import do_runs
from falconcal.studies.store import Store
from falconcal.studies.study import Study
from tests.helpers.small_studies import TEXT, Silent
from tests.helpers.stripes import read_own

BEST = "dropout.keep=best"


def study(*changes: str) -> Study:
    return read_own(TEXT, "test", (BEST, *changes))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """Collect the methods that are trained."""
    methods: list[Method] = []
    for module in (reference, one_run):
        train = module.train_method

        def counting(*args: object, train: object = train) -> torch.nn.Module:
            methods.append(args[3])  # type: ignore[arg-type]
            return train(*args)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(module, "train_method", counting)
    return methods


def twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the reference and the run apart, as without held epochs."""
    for module in (reference, one_run):
        monkeypatch.setattr(module, "held_epochs", lambda *_: None)


def check_same(one: Path, other: Path) -> None:
    assert (one / "rows.parquet").read_bytes() == (other / "rows.parquet").read_bytes()
    folders = [PLAIN_RUN.folder(directory) for directory in (one, other)]
    histories = [polars.read_parquet(folder / "history.parquet") for folder in folders]
    assert histories[0].equals(histories[1])
    assert "validation/criterion" in histories[0]["term"].to_list()
    kept = [read_json(folder / "run.json")["kept_epoch"] for folder in folders]
    assert kept[0] == kept[1]
    weights = [load_file(folder / WEIGHTS_FILE) for folder in folders]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


@pytest.mark.end_to_end
@pytest.mark.parametrize("changes", [(), ("dropout.average=0.9",), ("dropout.epochs=23",)])
def test_one_training_gives_what_two_gave(
    tmp_path: Path,
    trained: list[Method],
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...],
) -> None:
    notes: list[Event] = []
    assert do_runs(study(*changes), tmp_path / "once", notes.append, ["dropout"]) == {}
    assert [method.keep for method in trained] == ["last"]  # type: ignore[attr-defined]
    assert any("judging the epochs" in (event.text or "") for event in notes)
    assert not (tmp_path / "once" / "checkpoints").exists()
    assert read_json(PLAIN_RUN.folder(tmp_path / "once") / "run.json")["training_seconds"] > 0
    twice(monkeypatch)
    do_runs(study(*changes), tmp_path / "twice", Silent(), ["dropout"])
    assert len(trained) == 3
    check_same(tmp_path / "once", tmp_path / "twice")


@pytest.mark.end_to_end
def test_an_interrupted_training_is_judged_as_an_undisturbed_one(tmp_path: Path) -> None:
    do_runs(study(), tmp_path / "whole", Silent(), ["dropout"])
    with pytest.raises(KeyboardInterrupt):
        do_runs(study(), tmp_path / "broken", Silent(stop_at=1), ["dropout"])  # the reference
    with pytest.raises(KeyboardInterrupt):
        do_runs(study(), tmp_path / "broken", Silent(stop_at=2), ["dropout"])  # while judging
    do_runs(study(), tmp_path / "broken", Silent(), ["dropout"])
    check_same(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.end_to_end
def test_without_all_held_epochs_the_run_trains_by_itself(
    tmp_path: Path, trained: list[Method]
) -> None:
    class DamageAfterReference(Silent):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if event.kind == "done" and event.run != PLAIN_RUN:
                held = held_epochs(study(), Store(tmp_path / "damaged"))
                assert held is not None
                assert held.complete()
                held.weights(held.epochs).write_bytes(b"")

    do_runs(study(), tmp_path / "damaged", DamageAfterReference(), ["dropout"])
    assert len(trained) == 2
    do_runs(study(), tmp_path / "whole", Silent(), ["dropout"])
    check_same(tmp_path / "damaged", tmp_path / "whole")


@pytest.mark.parametrize(
    "change",
    ["dropout.keep=last", "dropout.patience=3", "dropout.devices=2", "dropout.precision=16-mixed"],
)
def test_what_is_another_training_is_not_shared(tmp_path: Path, change: str) -> None:
    assert held_epochs(study(), Store(tmp_path)) is not None
    assert held_epochs(study(change), Store(tmp_path)) is None


@pytest.mark.end_to_end
def test_other_seeds_train_by_themselves(tmp_path: Path, trained: list[Method]) -> None:
    do_runs(study("seeds=2"), tmp_path, Silent(), ["dropout"])
    assert [method.seed for method in trained] == [0, 1]  # type: ignore[attr-defined]
