"""Events: what happens to the runs of a study, in this process or another one."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from falconcal.io.output_folder import RunKey
from falconcal.training import EpochRecord

EventKind = Literal[
    "planned", "complete", "begun", "note", "epoch", "measuring", "done", "failed", "lost"
]
ENDS = ("done", "failed", "lost")  # "lost": the process of the run ended; it is started again


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    run: RunKey
    kind: EventKind
    text: str = ""  # a note, what is measured, or a reason
    epochs: int = 0  # of all trainings of the run together, when it begins
    record: EpochRecord | None = None
    seconds: float = 0.0
    trace: str = ""  # traceback of a failure
    measured: int = 0  # levels that are measured, of so many
    levels: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, message: bytes) -> "Event":
        values = json.loads(message)
        record = values.pop("record")
        run = RunKey(**values.pop("run"))
        return cls(run, **values, record=None if record is None else EpochRecord(**record))


EventHandler = Callable[[Event], None]


@dataclass(frozen=True)
class RunReporter:
    """Sends the events of one run."""

    run: RunKey
    on_event: EventHandler

    def begin(self, epochs: int) -> None:
        self.on_event(Event(self.run, "begun", epochs=epochs))

    def note(self, text: str) -> None:
        self.on_event(Event(self.run, "note", text))

    def epoch(self, record: EpochRecord) -> None:
        self.on_event(Event(self.run, "epoch", record=record))

    def measuring(self, shift: str, level: int, measured: int = 0, levels: int = 0) -> None:
        text = f"{shift}, level {level}"
        self.on_event(Event(self.run, "measuring", text, measured=measured, levels=levels))

    def end(self, seconds: float) -> None:
        self.on_event(Event(self.run, "done", seconds=seconds))
