"""TensorBoard: event files of each run, written while it trains and again when it is stored.

DIR/tensorboard/VARIANT/METHOD/seed-N holds the losses and the validation metrics by epoch, every
metric by level of each shift (the step is the level), the metrics of whole shifts, and the
settings. The event files of a complete run depend only on the files that it stored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import polars

from falconcal.core import distributed
from falconcal.errors import UserError
from falconcal.evaluation.score_rows import scores_to_rows
from falconcal.io.output_folder import RunKey
from falconcal.studies.events import Event, EventHandler
from falconcal.studies.reference import REFERENCE_RUN
from falconcal.studies.run_files import read_json, read_table, to_json
from falconcal.training import EpochRecord, History

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Scalar = tuple[str, float, int]  # name, value, step


def need_tensorboard() -> None:
    """Raise an error that names the extra where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UserError(
            "--tensorboard needs TensorBoard, which is an extra: "
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
        """Write what happened to a run; the reference model is not a run of the study."""
        if event.run == REFERENCE_RUN:
            return
        if event.kind == "begun":
            self.begin(event.run)
        elif event.record is not None and event.run in self.open:
            self.epoch(event.run, event.record)
        elif event.kind in ("done", "complete"):
            self.complete(event.run)

    def begin(self, run: RunKey) -> None:
        """Begin new event files; those of an interrupted run would be shown beside them."""
        self.drop(run)
        self.open[run], self.steps[run] = self._writer(run), 0

    def epoch(self, run: RunKey, record: EpochRecord) -> None:
        """Add an epoch; the epochs of an ensemble's members are counted one after the other."""
        self.steps[run] = max(self.steps[run] + 1, record.epoch)
        history = History([record]).table()
        for name, value in history.select("term", "value").rows():
            self.open[run].add_scalar(name, value, self.steps[run])
        self.open[run].flush()

    def complete(self, run: RunKey) -> None:
        """Replace the event files of a run by those made from what it stored."""
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
        """Close all files; those of interrupted runs stay until the run is resumed."""
        for writer in self.open.values():
            writer.close()
        self.open.clear()

    def _writer(self, run: RunKey) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(event_folder(self.directory, run))


def event_folder(directory: Path, run: RunKey) -> Path:
    """Return the folder of a run's event files; TensorBoard shows its path as the name."""
    return directory / "tensorboard" / run.folder(Path()).relative_to("runs")


def scalars(folder: Path) -> Iterator[Scalar]:
    """Yield the values of a stored run: training by epoch, metrics by level and of whole shifts."""
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
    """Give an event handler that also writes event files, if wanted, in the first process only."""
    if not wanted or not distributed.is_first_process():
        yield on_event
        return
    files = EventFiles(directory)

    def handle(event: Event) -> None:
        files.on_event(event)
        on_event(event)

    try:
        yield handle
    finally:
        files.close()
