"""Studies whose runs fail or die, and what is compared after them."""

from pathlib import Path

import polars

from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.studies.events import Event

TROUBLE = """
[methods.raising]
method = "tests.helpers.stripes:Raising"
[methods.raising_temperature]
method = "temperature"
base = "raising"
[methods.diverging]
method = "dropout"
learning_rate = 1e38
"""


DEADLY = """
[methods.dying]
method = "tests.helpers.stripes:Dying"
epochs = 12
learning_rate = 0.01
deaths = 1
"""


def key(method: str, seed: int = 0) -> RunKey:
    return RunKey(DEFAULT_VARIANT, method, seed)


class RecordedEvents(list[Event]):
    """Keeps the events that it is called with."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def order(self, kind: str) -> list[str]:
        return [event.run.method for event in self if event.kind == kind]


def same_rows(one: Path, other: Path) -> bool:
    rows = [polars.read_parquet(folder / "rows.parquet") for folder in (one, other)]
    return rows[0].equals(rows[1])
