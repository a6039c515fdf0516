"""A training that is killed ends, once started again, as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from falconcal import Falcon, L2Dropout, checkpointing
from falconcal.data import Batches, Dataset
from falconcal.errors import UserError
from falconcal.training import EpochRecord, History, on_epoch
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network
from tests.helpers.stopping import StoppedError, Stopping

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def shuffled(tiny: Dataset) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return a loader whose order comes from the global random numbers."""
    data = TensorDataset(tiny.train.inputs, tiny.train.labels)
    return DataLoader(data, batch_size=25, shuffle=True)


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(6), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(64, 3),
    )  # fmt: skip


def fit(train: Batches, tiny: Dataset, stop_after: int = 10**6, **changed: object) -> nn.Module:
    """Train five epochs of FALCON, or stop by an error once some batches are done."""
    settings = {"epochs": 5, "keep": "best", "bounds": tiny.bounds, **changed}
    model, validation = convolutional(), tiny.validation.batches()
    stopping = Stopping(train, stop_after)  # in every case, so that all draw the same numbers
    return Falcon(**settings).fit(model, stopping, validation)  # type: ignore[arg-type]


@pytest.mark.end_to_end
@pytest.mark.parametrize("loader", ["own", "torch"])
@pytest.mark.parametrize(("stop_after", "average"), [(1, None), (9, 0.9), (14, None)])
def test_an_interrupted_training_ends_with_the_same_bits(
    tiny: Dataset, tmp_path: Path, loader: str, stop_after: int, average: float | None
) -> None:
    def batches() -> Batches:
        return tiny.train.batches(25) if loader == "own" else shuffled(tiny)

    undisturbed, history = History(), History()
    with undisturbed.recording():
        expected = fit(batches(), tiny, average=average).state_dict()
    with checkpointing(tmp_path, every_minutes=0), pytest.raises(StoppedError):
        # looking at the first batches takes two
        fit(batches(), tiny, stop_after + 2, average=average)
    with checkpointing(tmp_path, every_minutes=0), history.recording():
        found = fit(batches(), tiny, average=average).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert list(history) == list(undisturbed)


@pytest.mark.end_to_end
@pytest.mark.parametrize("stop_after", [1, 9, 14])
def test_a_loader_with_random_numbers_of_its_own_goes_on_with_them(
    tiny: Dataset, tmp_path: Path, stop_after: int
) -> None:
    class Loader(DataLoader[tuple[torch.Tensor, ...]]):
        numbers: Iterator[int]
        last: int

        def __iter__(self):  # type: ignore[no-untyped-def]
            for batch in super().__iter__():
                if next(self.numbers) == self.last:
                    raise StoppedError
                yield batch

    def trained(last: int) -> dict[str, torch.Tensor]:
        data = TensorDataset(tiny.train.inputs, tiny.train.labels)
        own = torch.Generator().manual_seed(7)
        loader = Loader(data, batch_size=25, shuffle=True, generator=own)
        loader.numbers, loader.last = count(), last
        method = Falcon(epochs=5, bounds=tiny.bounds)
        return method.fit(convolutional(), loader, tiny.validation.batches()).state_dict()

    expected = trained(-1)
    with checkpointing(tmp_path, every_minutes=0), pytest.raises(StoppedError):
        trained(stop_after + 2)  # looking at the first batches takes two
    with checkpointing(tmp_path, every_minutes=0):
        found = trained(-1)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_complete_training_is_not_trained_again(tiny: Dataset, tmp_path: Path) -> None:
    with checkpointing(tmp_path):
        first = fit(tiny.train.batches(), tiny).state_dict()
    seen: list[EpochRecord] = []
    with checkpointing(tmp_path), on_epoch(seen.append):
        second = fit(tiny.train.batches(), tiny).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(seen) == 5
    assert len(list(tmp_path.iterdir())) == 1


def test_a_training_that_ended_early_stays_ended(tiny: Dataset, tmp_path: Path) -> None:
    trained = []
    for _ in range(2):
        history = History()
        with checkpointing(tmp_path), history.recording():
            model = fit(tiny.train.batches(30), tiny, epochs=30, patience=1)
        trained.append((model.state_dict(), list(history)))
    (first, records), (second, again) = trained
    assert records[-1].ended == "patience"
    assert records == again
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_each_training_inside_has_its_own_file(tiny: Dataset, tmp_path: Path) -> None:
    with checkpointing(tmp_path, every_epochs=2):
        for seed in (0, 1):
            L2Dropout(epochs=3, seed=seed).fit(
                small_network(), tiny.train.batches(), tiny.validation.batches()
            )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["training-1.safetensors", "training-2.safetensors"]


def test_a_checkpoint_of_other_settings_is_refused(tiny: Dataset, tmp_path: Path) -> None:
    with checkpointing(tmp_path):
        fit(tiny.train.batches(), tiny)
    # of many settings the one that differs is named
    words = (
        r"another training: settings was {'entropy_weight': [\d.]+}, now {'entropy_weight': 3.0}"
    )
    with checkpointing(tmp_path), pytest.raises(UserError, match=words):
        fit(tiny.train.batches(), tiny, entropy_weight=3.0)


@pytest.mark.end_to_end
@pytest.mark.parametrize("damage", ["cut", "foreign", "empty"])
def test_a_damaged_checkpoint_is_named(tiny: Dataset, tmp_path: Path, damage: str) -> None:
    with checkpointing(tmp_path):
        fit(tiny.train.batches(), tiny)
    file = tmp_path / "training-1.safetensors"
    content = {"cut": file.read_bytes()[:-100], "foreign": b"hello" * 50, "empty": b""}[damage]
    file.write_bytes(content)
    with checkpointing(tmp_path), pytest.raises(UserError, match=r"training-1\.safetensors"):
        fit(tiny.train.batches(), tiny)


def test_wrong_intervals_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="every 1 epoch or more"),
        checkpointing(tmp_path, every_epochs=0),
    ):
        pass


@pytest.mark.end_to_end
def test_kill_nine_at_any_moment(tmp_path: Path) -> None:
    """A process that is killed again and again ends with the weights of one that is not."""
    script = ROOT / "tests" / "helpers" / "train_for_killing.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path / "checkpoints"), str(tmp_path / "out")]
    for _ in range(2):
        process = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "checkpoints").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, check=True)
    from safetensors.torch import load_file

    from tests.helpers.train_for_killing import train

    found, expected = load_file(tmp_path / "out"), train().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
