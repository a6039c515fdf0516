"""TensorBoard on request: event files of every run, live while it trains, whole once it is stored.

DIR/tensorboard/VARIANT/METHOD/seed-N holds the terms of training and the validation figures by
epoch, every metric by level of each shift (the step is the level), the figures of whole shifts,
and the settings. Of a complete run the files are a pure function of what it stored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import polars

from falconcal.core import distributed
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import scores_to_rows
from falconcal.io.output_folder import RunKey
from falconcal.studies.events import Event, EventHandler
from falconcal.studies.reference import REFERENCE_RUN
from falconcal.studies.run_files import read_json, read_table, to_json
from falconcal.training import EpochRecord, History

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Scalar = tuple[str, float, int]  # name, value, step


def need_tensorboard() -> None:
    """Say what is missing before anything is trained."""
    if find_spec("tensorboard") is None:
        raise UserError(
            "--tensorboard needs TensorBoard, which is in an extra: "
            "pip install 'falconcal[tensorboard]'."
        )


class EventFiles:
    """The event files of the runs of an output folder."""

    def __init__(self, directory: Path) -> None:
        need_tensorboard()
        self.directory = directory
        self.open: dict[RunKey, SummaryWriter] = {}
        self.steps: dict[RunKey, int] = {}

    def on_event(self, event: Event) -> None:
        """Write down what happened to a run; the training of the reference model is none."""
        if event.run == REFERENCE_RUN:
            return
        if event.kind == "begun":
            self.begin(event.run)
        elif event.record is not None and event.run in self.open:
            self.epoch(event.run, event.record)
        elif event.kind in ("done", "complete"):
            self.complete(event.run)

    def begin(self, run: RunKey) -> None:
        """Begin anew: what a run left that was not completed would show beside this one."""
        self.drop(run)
        self.open[run], self.steps[run] = self._writer(run), 0

    def epoch(self, run: RunKey, record: EpochRecord) -> None:
        """Add an epoch; members of an ensemble, which count theirs from 1, go on one another."""
        self.steps[run] = max(self.steps[run] + 1, record.epoch)
        history = History([record]).table()
        for name, value in history.select("term", "value").rows():
            self.open[run].add_scalar(name, value, self.steps[run])
        self.open[run].flush()

    def complete(self, run: RunKey) -> None:
        """Write the files of a complete run from what it stored, in the place of those so far."""
        self.drop(run)
        folder = run.folder(self.directory)
        with self._writer(run) as writer:
            writer.add_text("settings", _block(to_json(read_json(folder / "settings.json"))))
            for name, value, step in scalars(folder):
                writer.add_scalar(name, value, step)

    def drop(self, run: RunKey) -> None:
        """Remove the event files of a run."""
        if run in self.open:
            self.open.pop(run).close()
        for file in event_folder(self.directory, run).glob("events.out.tfevents.*"):
            file.unlink()

    def close(self) -> None:
        """Close what is open; the files of runs that were interrupted stay until they go on."""
        for writer in self.open.values():
            writer.close()
        self.open.clear()

    def _writer(self, run: RunKey) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(event_folder(self.directory, run))


def event_folder(directory: Path, run: RunKey) -> Path:
    """Return where a run's event files lie; TensorBoard names it by the path."""
    return directory / "tensorboard" / run.folder(Path()).relative_to("runs")


def scalars(folder: Path) -> Iterator[Scalar]:
    """Give the figures of a stored run: training by epoch, metrics by level, whole shifts."""
    history = read_table(folder / "history.parquet")
    counted = polars.int_range(1, polars.len() + 1).over("term")
    repeats = history.select("term", "epoch").is_duplicated().any()  # members of an ensemble
    step = counted if repeats else polars.col("epoch")
    yield from history.select("term", "value", step.alias("step")).rows()
    rows = scores_to_rows(read_table(folder / "scores.parquet"))
    for shift, level, metric, value in rows.select("shift", "level", "metric", "value").rows():
        name = f"{metric}/{shift}"
        yield (f"shifts/{name}", value, 0) if level is None else (name, value, level)


def _block(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())  # code, in TensorBoard's Markdown


@contextmanager
def with_tensorboard(
    on_event: EventHandler, directory: Path, wanted: bool
) -> Iterator[EventHandler]:
    """Give an ear that also writes event files, where wanted, in the first process alone."""
    if not wanted or not distributed.is_first_process():
        yield on_event
        return
    files = EventFiles(directory)

    def hear_too(event: Event) -> None:
        files.on_event(event)
        on_event(event)

    try:
        yield hear_too
    finally:
        files.close()
