"""Freed memory is kept while a model trains, and changes no bit of it."""

import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pytest

from falconcal import SHIFTS, L2Dropout, evaluate
from falconcal.core import freed_memory
from falconcal.core.freed_memory import freed_memory_kept
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network, stripes

KEEPS = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


def trained(reuse: str) -> tuple[str, int]:
    """Return a digest of the weights of a small LSTM, and the pages that its training asked for."""
    command = [sys.executable, "-m", "tests.helpers.train_in_memory", reuse]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    digest, pages = answer.stdout.split()
    return digest, int(pages)


@pytest.mark.end_to_end
@pytest.mark.skipif(not KEEPS, reason="a C library without these settings")
def test_weights_are_the_same_to_the_bit_and_pages_are_asked_for_once() -> None:
    (kept, few), (given_back, many) = trained("on"), trained("off")
    assert kept == given_back
    assert few < many / 2


class Recorded:
    """A C library that takes a threshold up to a limit and records what it is asked."""

    def __init__(self, limit: int) -> None:
        self.limit, self.calls = limit, list[tuple[str, ...]]()

    def mallopt(self, option: int, value: int) -> int:
        taken = option != freed_memory.M_MMAP_THRESHOLD or value <= self.limit
        self.calls.append(("set" if taken else "refused", str(option), str(value)))
        return int(taken)

    def malloc_trim(self, _: int) -> int:
        self.calls.append(("given back",))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Recorded]:
    recorded = Recorded(request.param)
    monkeypatch.setattr(freed_memory, "_c_library", lambda: recorded)
    freed_memory._raise_thresholds.cache_clear()
    yield recorded
    freed_memory._raise_thresholds.cache_clear()


@pytest.mark.parametrize("library", [2**31, 2**25], indirect=True)
def test_an_older_library_gets_the_largest_threshold_that_it_takes(library: Recorded) -> None:
    with freed_memory_kept():
        assert ("set", "-1", str(2**31 - 1)) in library.calls
        assert library.calls[-1] == ("set", "-3", str(min(2**30, library.limit)))
    assert library.calls.pop() == ("given back",)
    before = len(library.calls)
    with freed_memory_kept():
        assert len(library.calls) == before  # thresholds are set once


@pytest.mark.parametrize("library", [2**31], indirect=True)
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
def test_training_keeps_memory_unless_the_setting_is_off(library: Recorded, reuse: bool) -> None:
    data = stripes(6)
    L2Dropout(epochs=1, reuse_memory=reuse).fit(small_network(), data.batches(3), data.batches())
    assert bool(library.calls) == reuse


@pytest.mark.parametrize("library", [2**31], indirect=True)
def test_scores_under_shift_keep_memory_and_give_it_back(library: Recorded) -> None:
    evaluate(small_network(), stripes(6), [SHIFTS["contrast"]])
    assert ("set", "-1", str(2**31 - 1)) in library.calls
    assert library.calls[-1] == ("given back",)


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    freed_memory._c_library.cache_clear()
    with freed_memory_kept():
        assert freed_memory._c_library() is None
    freed_memory._c_library.cache_clear()
