"""What holds for all tests: one thread, fixed random numbers, no downloads, their own cache."""

import multiprocessing.process
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from falconcal.data import Dataset
from tests.helpers.chromium import NOTE
from tests.helpers.short_fits import short_fits
from tests.helpers.watched_process import COUNTS

torch.set_num_threads(1)
# the same examples every time, so that a failure comes from the change; make test-slow sets
# HYPOTHESIS_PROFILE=searching for new ones
settings.register_profile("steady", derandomize=True)
settings.register_profile("searching", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
os.environ["FALCONCAL_OFFLINE"] = "1"  # a test that downloads does so from a server of its own


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was not tested because there is no browser, and how much was fuzzed."""
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
    """Keep the tests out of the user's cache."""
    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


class UnmarkedProcessError(Exception):
    """A test without the marker ``end_to_end`` starts a process of Python."""


@pytest.fixture(autouse=True)
def _no_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep ``make test-unit`` quick: a test that starts Python is marked as ``end_to_end``."""
    if any(request.node.get_closest_marker(name) for name in ("end_to_end", "slow")):
        return
    start_program = subprocess.Popen.__init__

    def start(self: Any, args: Any, *more: Any, **options: Any) -> None:
        if sys.executable in args:
            refuse()
        start_program(self, args, *more, **options)

    def refuse(*_: object) -> None:
        raise UnmarkedProcessError(f"mark {request.node.name} with pytest.mark.end_to_end")

    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", refuse)


@pytest.fixture(name="short_fits")
def _short_fits() -> Iterator[None]:
    """For tests that compare bits or shapes of calibrated models, not how good the fit is."""
    with short_fits():
        yield


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
    """Each device of this machine: with a GPU these tests run there too."""
    return torch.device(request.param)
