"""What holds for all tests: one thread, the same random numbers, no downloads, a cache apart."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from falconcal.data import Dataset
from tests.helpers.chromium import NOTE
from tests.helpers.watched_process import COUNTS

torch.set_num_threads(1)
# the same examples every time, so that a failure is the change's own; new ones with
# HYPOTHESIS_PROFILE=searching, which make test-slow sets
settings.register_profile("steady", derandomize=True)
settings.register_profile("searching", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
os.environ["FALCONCAL_OFFLINE"] = "1"  # a test that downloads does so from a server of its own


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


@pytest.fixture
def tiny() -> Dataset:
    from tests.helpers.stripes import load_stripes

    return load_stripes()


def _devices() -> list[str]:
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return found + (["mps"] if torch.backends.mps.is_available() else [])


@pytest.fixture(params=_devices())
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device at hand: a machine with a GPU runs these tests there too."""
    return torch.device(request.param)
