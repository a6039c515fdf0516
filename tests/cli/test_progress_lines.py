"""Lines of progress without a terminal: at least one a minute, with the time that is left."""

import io
import threading

import pytest
from rich.console import Console

from falconcal.cli.progress import PlainLines, TrialLines, calling, make_progress
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.studies.events import Event, RunReporter
from falconcal.training import EpochRecord

RUN, OTHER = (RunKey(DEFAULT_VARIANT, name, 0) for name in ("falcon", "dropout"))


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def epoch(number: int, epochs: int = 20) -> EpochRecord:
    return EpochRecord(number, epochs, {"clean/cross_entropy": 1.0}, {}, None, None)


def test_a_run_that_trains_nothing_says_no_epochs(clock: Clock, console: Console) -> None:
    lines = PlainLines(console, clock)
    report = RunReporter(RUN, lines)
    report.begin(0)
    report.epoch(epoch(2))  # of the training that is judged
    clock.now = 51.0
    lines.print_if_due()
    assert printed(console) == [
        f"[1/1] {RUN}: nothing is trained", f"[1/1] {RUN}: fitting, time left not known yet"
    ]  # fmt: skip


def test_a_silent_training_says_its_epoch_and_the_time_left(clock: Clock, console: Console) -> None:
    lines = PlainLines(console, clock)
    for run in (RUN, OTHER):
        lines(Event(run, "planned"))
    report = RunReporter(RUN, lines)
    report.begin(20)
    clock.now = 49.0
    lines.print_if_due()
    assert len(printed(console)) == 1  # that it begins
    clock.now = 51.0
    lines.print_if_due()
    assert printed(console)[-1] == f"[1/2] {RUN}: epoch 1 of 20, time left not known yet"
    clock.now = 100.0
    report.epoch(epoch(1))  # not one of the ten that are printed
    clock.now = 130.0
    lines.print_if_due()
    # 19 epochs of 100 seconds, 30 of which have passed: 1870 seconds
    assert printed(console)[-1] == f"[1/2] {RUN}: epoch 2 of 20, about 31:10 left"
    count = len(printed(console))
    lines.print_if_due()
    assert len(printed(console)) == count  # the next is due in a minute


def test_a_silent_measurement_says_what_it_measures(clock: Clock, console: Console) -> None:
    lines = PlainLines(console, clock)
    lines(Event(RUN, "planned"))
    report = RunReporter(RUN, lines)
    report.begin(1)
    report.measuring("clean", 0, 0, 10)
    clock.now = 60.0
    report.measuring("shear", 3, 3, 10)
    lines.print_if_due()
    # three of ten levels in 60 seconds: 140 for the other seven
    assert printed(console)[-1] == f"[1/1] {RUN}: measuring shear, level 3, about 2:20 left"
    report.end(60.0)
    clock.now = 200.0
    count = len(printed(console))
    lines.print_if_due()
    assert len(printed(console)) == count  # nothing is active


def test_trials_that_take_long_are_counted(clock: Clock, console: Console) -> None:
    lines = TrialLines(console, 8, clock)
    lines.begin(2)
    clock.now = 55.0
    lines.print_if_due()
    assert printed(console) == ["2 of 8 trials have ended, time left not known yet"]
    clock.now = 100.0
    lines({"method": "falcon", "trial": 2, "state": "complete"})
    clock.now = 160.0
    lines.print_if_due()
    # one trial in 160 seconds, five are left
    assert printed(console)[-1] == "3 of 8 trials have ended, about 13:20 left"


def test_a_thread_looks_whether_a_line_is_due_until_the_command_ends(console: Console) -> None:
    called = threading.Event()
    with calling(called.set, 0.001):
        assert called.wait(10)
        before = threading.active_count()
    assert threading.active_count() == before - 1
    with make_progress(console) as progress:
        assert isinstance(progress, PlainLines)
        assert threading.active_count() == before
