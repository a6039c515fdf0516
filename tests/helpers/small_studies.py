"""A study of stripes as text, what listens to its runs in silence, and all files of a folder."""

from pathlib import Path

from falconcal.io.output_folder import RunKey
from falconcal.studies.events import Event
from tests.helpers.paths import STRIPES

TEXT = STRIPES.read_text()


class Silent:
    """A progress that keeps what it is called with."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.begun: list[RunKey] = []
        self.skipped: list[RunKey] = []
        self.stop_at = stop_at

    def __call__(self, event: Event) -> None:
        if event.kind == "begun":
            self.begun.append(event.run)
        if event.kind == "complete":
            self.skipped.append(event.run)
        if event.kind == "epoch" and len(self.begun) == self.stop_at:
            raise KeyboardInterrupt


def everything(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
