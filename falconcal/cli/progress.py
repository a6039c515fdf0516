"""Progress of a study or a prediction: a live table or a bar on a terminal, else plain lines.

Off a terminal, lines with the time that is left come at least every minute: a thread looks
whether one is due, since a training may say nothing for longer than that.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from falconcal.cli.terminal import print_text, show_trial
from falconcal.io.output_folder import RunKey
from falconcal.studies.events import Event, EventHandler
from falconcal.training import EpochRecord

if TYPE_CHECKING:
    from falconcal.studies.finished_runs import MeasurementProgress


@contextmanager
def make_progress(console: Console) -> Iterator[EventHandler]:
    """Give an event handler that shows progress in the way that suits the console."""
    if not console.is_terminal:
        lines = PlainLines(console)
        with calling(lines.print_if_due):
            yield lines
        return
    runs = LiveTable(console)
    with Live(get_renderable=runs.draw, console=console, refresh_per_second=4) as live:
        yield runs
        live.refresh()


@contextmanager
def calling(work: Callable[[], None], seconds: float = 1.0) -> Iterator[None]:
    """Call a function every so many seconds inside, in a thread of its own."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def progress_bar(
    console: Console, title: str, total: int | None
) -> Iterator[Callable[[int], None]]:
    """Give a function that advances a bar by a number; without a terminal nothing is shown."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task(title.replace("[", r"\["), total=total)
        yield lambda more: bar.advance(task, more)


class PlainLines:
    """One line when a run begins, about ten while it trains, one when it ends.

    ``print_if_due`` prints how far all active runs are where no line has come for a while.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.lines: dict[RunKey, RunLine] = {}
        self.measured: set[RunKey] = set()
        self.printed = clock()

    def __call__(self, event: Event) -> None:
        self.lines.setdefault(event.run, RunLine()).on_event(event, self.clock())
        words = self._words(event)
        if words:
            self._print(event.run, words)

    def print_if_due(self) -> None:
        """Print a line per active run, if there was none for almost a minute."""
        now = self.clock()
        if now - self.printed < SECONDS_OF_SILENCE:
            return
        for run, line in list(self.lines.items()):
            if line.state in ("training", "fitting", "measuring"):
                self._print(run, line.status(now))

    def _print(self, run: RunKey, words: str) -> None:
        self.printed = self.clock()
        number = list(self.lines).index(run) + 1
        print_text(f"[{number}/{len(self.lines)}] {run}: {words}", self.console)

    def _words(self, event: Event) -> str:
        if event.kind == "begun":
            self.measured.discard(event.run)
        if event.kind == "epoch":
            trains = self.lines[event.run].epochs > 0
            return _every_tenth(event.record) if trains else ""
        if event.kind == "measuring":
            first = event.run not in self.measured
            self.measured.add(event.run)
            return "measuring under shift" if first else ""
        return describe_event(event)


def _every_tenth(record: EpochRecord | None) -> str:
    assert record is not None
    shown = record.epoch % max(1, record.epochs // 10) == 0 or record.ended
    return describe(record) if shown else ""


def describe_event(event: Event) -> str:
    """Return a short description of what happened to a run."""
    return {
        "complete": "already complete",
        "begun": _describe_begin(event.epochs),
        "note": event.text,
        "measuring": f"measuring {event.text}",
        "done": f"done in {event.seconds:.0f} s",
        "failed": f"failed: {event.text}",
        "lost": f"{event.text}; the run is started again",
    }.get(event.kind, "")


def _describe_begin(epochs: int) -> str:
    if epochs == 0:
        return "nothing is trained"
    return f"training for {epochs} epoch{'s' * (epochs != 1)}"


RUN_STATES = {
    "planned": "waiting",
    "begun": "training",
    "epoch": "training",
    "measuring": "measuring",
    "lost": "waiting",
}  # other kinds of events are states too
ORDER = (
    "training",
    "fitting",
    "measuring",
    "failed",
    "waiting",
    "done",
    "complete",
)  # by importance
SECONDS_BETWEEN_LINES = 30  # while runs are measured
SECONDS_OF_SILENCE = 50.0  # after which a line is due, looked for every second
INTERVALS = 8  # epochs whose mean time predicts the time that is left


class RunLine:
    """One line of the live table."""

    def __init__(self) -> None:
        self.state, self.seconds, self.loss = "waiting", 0.0, ""
        self.epochs = self.done = 0
        self.measuring, self.share, self.began = "", 0.0, 0.0  # what, how much, since when
        self.times: deque[float] = deque(maxlen=INTERVALS + 1)

    def on_event(self, event: Event, now: float) -> None:
        if event.kind == "note":
            return
        self.state = RUN_STATES.get(event.kind, event.kind)
        if event.kind == "begun":
            self.epochs, self.done, self.loss = event.epochs, 0, ""
            self.times = deque([now], maxlen=INTERVALS + 1)
        if self.state == "training" and not self.epochs:
            self.state = "fitting"  # what another run has trained
        if event.record is not None and self.epochs:
            self.done += 1
            self.loss = f"{loss_of(event.record):.4g}"
            self.times.append(now)
        if event.kind == "measuring":
            self.began = now if event.measured == 0 else self.began
            self.measuring = event.text
            self.share = event.measured / max(event.levels, 1)
        self.seconds = event.seconds

    def left(self) -> float | None:
        """Return the seconds that training will still take, by the pace of the last epochs."""
        if self.state != "training" or len(self.times) < 2:
            return None
        pace = (self.times[-1] - self.times[0]) / (len(self.times) - 1)
        return pace * max(0, self.epochs - self.done)

    def status(self, now: float) -> str:
        """Return what an active run does, and how long that will still take."""
        if self.state == "measuring":
            left = (now - self.began) * (1 / self.share - 1) if self.share else None
            return f"measuring {self.measuring}, {_time_left(left)}"
        if self.epochs == 0:
            return f"fitting, {_time_left(None)}"
        left = self.left()
        left = None if left is None else max(0.0, left - (now - self.times[-1]))
        return f"epoch {self.done + 1} of {self.epochs}, {_time_left(left)}"

    def cells(self, now: float) -> tuple[str, str, str, str]:
        epoch = f"{self.done}/{self.epochs}" if self.done else ""
        left = self.left()
        if left is not None:
            left = max(0.0, left - (now - self.times[-1]))
        time_left = "" if left is None else duration(left)
        return self.state, epoch, self.loss, time_left or self._took()

    def _took(self) -> str:
        return f"took {duration(self.seconds)}" if self.state == "done" else ""


def _time_left(seconds: float | None) -> str:
    return "time left not known yet" if seconds is None else f"about {duration(seconds)} left"


class LiveTable:
    """A table with one line per run: state, epoch, loss, time left; it also counts all runs."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.lines: dict[RunKey, RunLine] = {}

    def __call__(self, event: Event) -> None:
        self.lines.setdefault(event.run, RunLine()).on_event(event, self.clock())
        if event.kind in ("note", "failed", "lost"):
            # printed above the table, so that it stays
            print_text(f"{event.run}: {describe_event(event)}", self.console)

    def draw(self) -> Table:
        shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), caption=self._counts())
        shown.add_column("Run", overflow="fold")
        for heading in ("State", "Epoch", "Loss", "Time left"):
            shown.add_column(heading, justify="left" if heading == "State" else "right")
        for run in self._chosen():
            shown.add_row(Text(str(run)), *self.lines[run].cells(self.clock()))
        return shown

    def _chosen(self) -> list[RunKey]:
        """Return as many runs as fit on the screen, active ones first."""
        room = max(1, self.console.size.height - 7)
        ranked = sorted(self.lines, key=lambda run: ORDER.index(self.lines[run].state))
        chosen = set(ranked[:room])
        return [run for run in self.lines if run in chosen]

    def _counts(self) -> str:
        counts = Counter(line.state for line in self.lines.values())
        return ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])


class MeasuringLines:
    """One line when a shift begins, and one at least twice a minute: what is done, time left."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.began = self.printed = clock()
        self.name = ""

    def __call__(self, progress: "MeasurementProgress") -> None:
        now = self.clock()
        if progress.name == self.name and now - self.printed < SECONDS_BETWEEN_LINES:
            return
        self.name, self.printed = progress.name, now
        left = (now - self.began) * (progress.levels / progress.done - 1)
        runs = f"{progress.runs} run{'s' * (progress.runs != 1)}"
        done = f"{progress.done / progress.levels:.0%} done, {duration(left)} left"
        print_text(f"{progress.name}, level {progress.level}, {runs}: {done}", self.console)


class TrialLines:
    """One line per trial that ends; ``print_if_due`` prints how many are left, and how long."""

    def __init__(
        self, console: Console, trials: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console, self.trials, self.clock = console, trials, clock
        self.began = self.printed = clock()
        self.before = self.ended = 0  # trials, before this command and in it

    def begin(self, ended: int) -> None:
        """Take how many trials had ended before the first one begins."""
        self.before, self.began = ended, self.clock()

    def __call__(self, row: dict[str, Any]) -> None:
        self.ended += 1
        self.printed = self.clock()
        show_trial(row)

    def print_if_due(self) -> None:
        """Print how far the search is, if there was no line for almost a minute."""
        now = self.clock()
        if now - self.printed < SECONDS_OF_SILENCE:
            return
        self.printed, done = now, self.before + self.ended
        pace = (now - self.began) / self.ended if self.ended else None
        left = None if pace is None else pace * max(0, self.trials - done)
        print_text(f"{done} of {self.trials} trials have ended, {_time_left(left)}", self.console)


def loss_of(record: EpochRecord) -> float:
    """Return the loss of a method's first objective, the sum of its terms."""
    first = next(iter(record.terms)).split("/")[0]
    return sum(value for name, value in record.terms.items() if name.split("/")[0] == first)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe(record: EpochRecord) -> str:
    """Return a short description of an epoch."""
    terms = ", ".join(f"{name.split('/')[1]} {value:.3g}" for name, value in record.terms.items())
    early = ", no better epoch for a while: training ends" if record.ended == "patience" else ""
    return f"epoch {record.epoch} of {record.epochs}, {terms}{early}"
