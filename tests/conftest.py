"""Shared by the tests: one thread, the authors' outputs, and tiny data that a network can learn."""

import os
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import settings
from torch import nn

from falconcal.data import Bounds, Dataset, Examples
from falconcal.data.dataset import Modality
from tests.chromium import NOTE
from tests.watched import COUNTS

torch.set_num_threads(1)
# the same examples every time, so that a failure is the change's own; new ones with
# HYPOTHESIS_PROFILE=searching, which make test-slow sets
settings.register_profile("steady", derandomize=True)
settings.register_profile("searching", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
os.environ["FALCONCAL_OFFLINE"] = "1"  # a test that downloads does so from a server of its own
FIXTURES = Path(__file__).parent / "fixtures"
CLASSES = ("left", "middle", "right")


def reference(name: str) -> dict[str, numpy.ndarray]:
    """Return the outputs of the authors' code of one kind."""
    with numpy.load(FIXTURES / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not tested for want of a browser, and how much was fuzzed."""
    for target, words in COUNTS.items():
        terminalreporter.line(f"fuzzed {target}: {words}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    missing = [reason for reason in reasons if NOTE in reason]
    if missing:
        terminalreporter.section("NOT TESTED IN A BROWSER", sep="!", red=True, bold=True)
        terminalreporter.line(f"{len(missing)} tests skipped: {missing[0]}", red=True, bold=True)


@pytest.fixture(autouse=True)
def _same_randomness() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the user's cache alone."""
    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def real_data() -> Path:
    """The folder of real files, for the tests that need them."""
    folder = os.environ.get("FALCONCAL_DATA")
    if not folder:
        pytest.skip("FALCONCAL_DATA names no folder of data")
    return Path(folder)


def stripes(count: int, seed: int = 0) -> Examples:
    """Return 28x28 images with a bright stripe to the left, in the middle or to the right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = torch.rand(count, 1, 28, 28, generator=generator) * 0.3
    for index, label in enumerate(labels.tolist()):
        images[index, :, :, 4 + 8 * label : 8 + 8 * label] += 0.6
    return Examples(images, labels, Bounds(0.0, 1.0), CLASSES)


@pytest.fixture
def tiny() -> Dataset:
    from tests.stripes import load_stripes

    return load_stripes()


def small_network(outputs: int = 3, seed: int = 0) -> nn.Sequential:
    """Return a network that learns the stripes in a few steps."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(49, 16),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(16, outputs),
    )


def data_for(name: str) -> Dataset:
    """Return a few examples of the kind that a network takes."""
    generator = torch.Generator().manual_seed(0)
    modality: Modality = "image"
    inputs = torch.rand(6, 3 if "resnet" in name else 1, 28, 28, generator=generator)
    if name.startswith("text"):
        modality, inputs = "text", torch.randint(50, (6, 12), generator=generator)
        inputs[0, 0] = 49
    if name.startswith("signal"):
        modality, inputs = "signal", torch.randn(6, 64, 3, generator=generator)
    bounds = Bounds(0.0, 1.0) if modality == "image" else None
    part = Examples(inputs, torch.arange(6) % 4, bounds, tuple("abcd"))
    vectors = torch.randn(50, 100, generator=generator) if modality == "text" else None
    return Dataset("few", modality, tuple("abcd"), bounds, part, part, part, vectors=vectors)


def _devices() -> list[str]:
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return found + (["mps"] if torch.backends.mps.is_available() else [])


@pytest.fixture(params=_devices())
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device at hand: a machine with a GPU runs these tests there too."""
    return torch.device(request.param)
