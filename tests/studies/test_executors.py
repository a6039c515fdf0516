"""Runs at scale: what waits for what, several processes, failures, and kill -9 at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import polars
import pytest
from rich.console import Console
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.cli.progress import LiveTable, duration
from falconcal.errors import UsageError
from falconcal.studies import schedule
from falconcal.studies.events import Event
from falconcal.studies.executors.local_workers import in_processes, local_executor
from falconcal.studies.reference import REFERENCE_RUN
from falconcal.studies.run import StudyContext, epochs_of
from falconcal.studies.runner import RunTracker, do_runs
from falconcal.studies.schedule import ATTEMPTS, Schedule, dependencies, runs_of
from falconcal.studies.store import Store
from falconcal.training import EpochRecord
from tests.helpers.failing_runs import DEADLY, TROUBLE, RecordedEvents, key, same_rows
from tests.helpers.paths import ROOT
from tests.helpers.processes import alive, wait_for
from tests.helpers.run_for_killing import CALIBRATED, killable
from tests.helpers.small_studies import TEXT, Silent
from tests.helpers.stripes import DEATHS, TRUST, read_own

# the stripes are so easy that nothing is left to calibrate
pytestmark = pytest.mark.filterwarnings(
    "ignore::falconcal.recalibration.temperature.CalibrationWarning"
)


# the schedule


def test_a_run_comes_after_those_it_needs_and_the_others_in_their_order() -> None:
    a, b, c = key("a"), key("b"), key("c")
    plan = Schedule({a: {c}, b: set(), c: set()})
    for expected in (b, c):
        assert plan.next() == expected
        plan.start(expected)
    assert plan.next() is None
    plan.end(c)
    assert plan.next() == a


def test_what_builds_on_a_failed_run_fails_with_it_and_nothing_else() -> None:
    a, b, c, d = key("a"), key("b"), key("c"), key("d")
    plan = Schedule({a: set(), b: {a}, c: {b}, d: set()})
    plan.start(a)
    failed = plan.fail(a, "no")
    assert set(failed) == {a, b, c}
    assert "builds on b, seed 0" in failed[c]
    assert plan.waiting == [d]


def test_a_lost_run_is_next_again_a_few_times_at_most() -> None:
    a, b = key("a"), key("b")
    plan = Schedule({b: set(), a: set()})
    for attempt in range(1, ATTEMPTS + 1):
        plan.start(a)
        assert plan.lose(a) == (attempt < ATTEMPTS)
    assert plan.waiting == [b]


def test_a_run_that_is_lost_again_and_again_has_failed_and_what_builds_on_it(
    tmp_path: Path,
) -> None:
    a, b, events = key("a"), key("b"), RecordedEvents()
    plan = Schedule({a: set(), b: {a}})
    tracker = RunTracker(plan, Store(tmp_path), events)
    for _ in range(ATTEMPTS):
        plan.start(a)
        tracker(Event(a, "lost", "its process was ended by SIGKILL"))
    assert [event.kind for event in events] == ["lost", "lost", "failed", "failed"]
    assert plan.failed[a] == "its process was ended by SIGKILL, 3 times"
    assert "builds on a, seed 0" in plan.failed[b]
    assert len(list((tmp_path / "failures").rglob("*.txt"))) == 2
    again = Schedule({a: set()})
    again.start(a)
    RunTracker(again, Store(tmp_path), events)(Event(a, "done"))
    assert len(list((tmp_path / "failures").rglob("*.txt"))) == 1


def test_the_reference_is_a_run_of_its_own_only_where_no_other_is_the_same(tmp_path: Path) -> None:
    def needs(*changes: str, only: list[str] | None = None) -> schedule.Needs:
        study = read_own(CALIBRATED, "test", changes)
        return dependencies(StudyContext(study, Store(tmp_path)), runs_of(study, only))

    falcon, dropout, scaled = key("falcon"), key("dropout"), key("scaled")
    assert needs() == {scaled: {falcon, dropout}, dropout: set(), falcon: {dropout}}
    own = needs("dropout.keep=best")
    assert next(iter(own)) == REFERENCE_RUN
    assert own[dropout] == {REFERENCE_RUN}
    assert needs(only=["falcon"]) == {REFERENCE_RUN: set(), falcon: {REFERENCE_RUN}}
    assert needs("falcon.keep=last") == {scaled: {falcon}, dropout: set(), falcon: set()}


def test_events_survive_the_way_between_processes() -> None:
    record = EpochRecord(2, 3, {"clean/loss": 0.5}, {"accuracy": 1.0}, 2, "patience")
    for event in (Event(key("a"), "epoch", record=record), Event(key("b"), "failed", "é", 3)):
        assert Event.from_bytes(event.to_bytes()) == event


def test_epochs_of_all_members_count() -> None:
    text = TEXT + '[methods.many]\nmethod = "ensemble"\nbase = "dropout"\nsize = 3\n'
    text += '[methods.scaled]\nmethod = "temperature"\nbase = "many"\n'
    study = read_own(text, "test")
    assert [epochs_of(study.method(name)) for name in ("dropout", "many", "scaled")] == [12, 36, 36]


# failures


@pytest.mark.end_to_end
def test_a_failing_run_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TEXT + TROUBLE)
    words = ["run", str(tmp_path / "study.toml"), *TRUST, "--out", str(tmp_path / "out")]
    only = ["--methods", "raising,raising_temperature,diverging,dropout"]
    answer = CliRunner().invoke(app, [*words, *only], env={"COLUMNS": "200"})
    assert answer.exit_code == 1
    for words_of_it in ("KeyError: 'of no use'", "training diverged", "builds on raising, seed 0"):
        assert words_of_it in answer.output
    assert "3 runs failed" in answer.output
    assert "To try again: falconcal" in answer.output
    assert "Traceback" not in answer.output
    assert set(polars.read_parquet(tmp_path / "out" / "rows.parquet")["method"]) == {"dropout"}
    assert (tmp_path / "out" / "report.html").exists()
    (trace,) = (tmp_path / "out" / "failures").rglob("raising/*.txt")
    assert "in fit" in trace.read_text()

    again = CliRunner().invoke(app, [*words, "--methods", "diverging", "--set",
                                     "diverging.learning_rate=0.01"])  # fmt: skip
    assert again.exit_code == 0, again.output
    assert not list((tmp_path / "out" / "failures").rglob("diverging/*.txt"))


def test_where_nothing_is_complete_there_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TEXT + TROUBLE)
    words = ["run", str(tmp_path / "study.toml"), *TRUST, "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, [*words, "--methods", "raising"])
    assert answer.exit_code == 1
    assert "1 run failed" in answer.output
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.end_to_end
@pytest.mark.parametrize("words", [["--workers", "0"], ["--threads", "0"], ["--workers", "two"]])
def test_wrong_numbers_are_refused(words: list[str], tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["run", "digits", "--out", str(tmp_path / "out"), *words])
    assert answer.exit_code != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.end_to_end
def test_torchrun_and_workers_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(UsageError, match="remove --workers"):
        local_executor(2)


# processes


@pytest.mark.end_to_end
def test_workers_give_the_rows_of_one_process_whatever_dies_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEATHS, str(tmp_path))
    study, events = read_own(CALIBRATED + TROUBLE + DEADLY, "test"), RecordedEvents()
    only = ["scaled", "dropout", "falcon", "dying", "raising"]
    failed = do_runs(
        study, tmp_path / "two", events, only, make_executor=in_processes(2, threads=1)
    )
    assert failed == {key("raising"): "KeyError: 'of no use'"}
    (lost,) = (event for event in events if event.kind == "lost")
    assert (lost.run, "SIGKILL" in lost.text) == (key("dying"), True)
    done = events.order("done")
    assert done.index("dropout") < done.index("falcon") < done.index("scaled")
    assert Event(key("scaled"), "note", "calibrating the model of falcon, seed 0") in events

    alone = do_runs(study, tmp_path / "one", Silent(), [*only[:4]])
    assert not alone
    assert same_rows(tmp_path / "one", tmp_path / "two")


class Runner:
    """The runner in a process of its own, to be killed."""

    def __init__(self, folder: Path, workers: int, seeds: int) -> None:
        words = ["-m", "tests.helpers.run_for_killing", str(folder), str(workers), str(seeds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE
        )

    def wait_for(self, kind: str) -> None:
        assert self.process.stdout is not None
        while self.process.stdout.readline().decode().strip() != kind:
            assert self.process.poll() is None, "it has ended"

    def kill(self) -> None:
        """End it as a power cut would; whatever it has started is to end too."""
        assert self.process.poll() is None, "it has ended"
        started = children(self.process.pid)
        self.process.kill()
        self.process.communicate()
        wait_for(lambda: not any(map(alive, started)), seconds=120)  # one may be about to begin


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            found += [int(stat.parent.name)] if int(fields[1]) == pid else []
    return found


NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@pytest.mark.end_to_end
@NEEDS_PROC
def test_a_killed_runner_leaves_no_process_and_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "killed", workers=2, seeds=1)
    runner.wait_for("epoch")
    assert len(children(runner.process.pid)) >= 2
    runner.kill()
    left = Store(tmp_path / "killed")
    assert left.has_checkpoint(key("dropout")) or left.complete(key("dropout"))
    assert not do_runs(killable(1), tmp_path / "killed", Silent())
    do_runs(killable(1), tmp_path / "whole", Silent())
    assert same_rows(tmp_path / "whole", tmp_path / "killed")
    assert not (tmp_path / "killed" / "checkpoints").exists()


@NEEDS_PROC
@pytest.mark.slow
def test_killed_at_twenty_random_moments_it_ends_with_the_rows_of_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    moments, seeds = random.Random(0), 30
    for number in range(20):
        runner = Runner(tmp_path / "killed", workers=1 + number % 2, seeds=seeds)
        runner.wait_for("begun")
        time.sleep(moments.uniform(0, 1.5))
        runner.kill()
    assert not do_runs(killable(seeds), tmp_path / "killed", Silent())
    do_runs(killable(seeds), tmp_path / "whole", Silent())
    assert same_rows(tmp_path / "whole", tmp_path / "killed")


@NEEDS_PROC
@pytest.mark.slow
def test_ctrl_c_ends_the_workers_too(tmp_path: Path) -> None:
    runner = Runner(tmp_path, workers=2, seeds=5)
    runner.wait_for("epoch")
    started = children(runner.process.pid)
    runner.process.send_signal(signal.SIGINT)
    runner.process.communicate(timeout=60)
    wait_for(lambda: not any(map(alive, started)))
    assert (tmp_path / "checkpoints").exists() or Store(tmp_path).runs()


# the table


def test_the_table_tells_state_epoch_loss_and_time_left() -> None:
    now = [0.0]
    shown = LiveTable(Console(width=80, height=30, quiet=True), clock=lambda: now[0])
    for name in ("a", "b", "c", "d"):
        shown(Event(key(name), "complete" if name == "d" else "planned"))
    shown(Event(key("a"), "begun", epochs=10))
    for epoch in (1, 2, 3, 4):
        now[0] += 20.0
        terms = {"clean/one": 0.5, "clean/two": 0.25, "other/three": 7.0}
        shown(Event(key("a"), "epoch", record=EpochRecord(epoch, 10, terms)))
    now[0] += 5.0
    shown(Event(key("b"), "begun", epochs=10))
    shown(Event(key("b"), "failed", "no"))
    text = drawn(shown)
    assert "training 4/10 0.75 1:55" in text  # six epochs of 20 s less the 5 s since
    assert "b, seed 0 failed" in text
    assert "c, seed 0 waiting" in text
    assert "1 training, 1 failed, 1 waiting, 1 complete" in text
    shown(Event(key("a"), "measuring", "shear, level 1"))
    assert "a, seed 0 measuring 4/10" in drawn(shown)
    shown(Event(key("a"), "done", seconds=3725.0))
    assert "took 1:02:05" in drawn(shown)


def test_a_long_table_shows_what_is_on_its_way() -> None:
    shown = LiveTable(Console(width=80, height=12, quiet=True))
    for seed in range(50):
        shown(Event(key("a", seed), "planned"))
    shown(Event(key("a", 49), "begun", epochs=10))
    text = drawn(shown)
    assert "a, seed 49 training" in text
    assert text.count("seed") == 5
    assert "1 training, 49 waiting" in text


def test_durations_are_written_as_clocks_do() -> None:
    assert [duration(seconds) for seconds in (0, 59.6, 3600)] == ["0:00", "1:00", "1:00:00"]


def drawn(shown: LiveTable) -> str:
    """Return the table as text with single spaces."""
    console = Console(width=80)
    with console.capture() as capture:
        console.print(shown.draw())
    return " ".join(capture.get().split())
