"""How a study or a prediction goes on: bars on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from falconcal.layout import RunKey
from falconcal.studies.runner import Progress as Reporter
from falconcal.training import EpochRecord


@contextmanager
def make_progress(console: Console) -> Iterator[Reporter]:
    """Give a reporter that suits the console."""
    if not console.is_terminal:
        yield PlainLines(console)
        return
    columns = (
        TextColumn("[bold]{task.fields[run]}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield Bars(bars)


@contextmanager
def counting(console: Console, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more are done; without a terminal nothing is shown."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task(title.replace("[", r"\["), total=total)
        yield lambda more: bar.advance(task, more)


class PlainLines:
    """A line when a run begins, ten on its way, one when it ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.title = ""

    def begin(self, run: RunKey, number: int, total: int, epochs: int) -> None:
        self.title = f"[{number}/{total}] {run}"
        self._say(f"training for {epochs} epochs")

    def note(self, text: str) -> None:
        self._say(text)

    def epoch(self, record: EpochRecord) -> None:
        if record.epoch % max(1, record.epochs // 10) == 0 or record.ended:
            self._say(describe(record))

    def scoring(self, shift: str, level: int) -> None:
        if shift == "clean" and level == 0:
            self._say("measuring under shift")

    def end(self, run: RunKey, seconds: float) -> None:  # noqa: ARG002
        self._say(f"done in {seconds:.0f} s")

    def skip(self, run: RunKey, number: int, total: int) -> None:
        self.title = f"[{number}/{total}] {run}"
        self._say("complete already")

    def _say(self, text: str) -> None:
        self.console.print(f"{self.title}: {text}", highlight=False, markup=False, soft_wrap=True)


class Bars:
    """One bar a run: its epochs, then its levels."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task = TaskID(0)

    def begin(self, run: RunKey, number: int, total: int, epochs: int) -> None:
        title = f"[{number}/{total}] {run}".replace("[", r"\[")
        self.task = self.bars.add_task("training", total=epochs, run=title)

    def note(self, text: str) -> None:
        self.bars.update(self.task, description=text)

    def epoch(self, record: EpochRecord) -> None:
        self.bars.update(self.task, completed=record.epoch, description=describe(record))

    def scoring(self, shift: str, level: int) -> None:
        self.bars.update(self.task, description=f"measuring {shift}, level {level}")

    def end(self, run: RunKey, seconds: float) -> None:  # noqa: ARG002
        self.bars.update(self.task, description=f"done in {seconds:.0f} s")

    def skip(self, run: RunKey, number: int, total: int) -> None:
        title = f"[{number}/{total}] {run}".replace("[", r"\[")
        self.bars.add_task("complete already", total=1, completed=1, run=title)


def describe(record: EpochRecord) -> str:
    """Return an epoch in a few words."""
    terms = ", ".join(f"{name.split('/')[1]} {value:.3g}" for name, value in record.terms.items())
    early = ", no better epoch came: training ends" if record.ended == "patience" else ""
    return f"epoch {record.epoch} of {record.epochs}, {terms}{early}"
