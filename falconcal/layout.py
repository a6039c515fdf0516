"""The output folder of a study: where everything lies, the same for who writes and who reads.

DIR/study.json              the settings that all runs of the folder share
DIR/runs/VARIANT/METHOD/seed-N/
    settings.json  weights.safetensors  history.parquet  scores.parquet  run.json
DIR/checkpoints/            of runs that are not complete, gone once they are
DIR/failures/               why runs failed, gone once they are complete
DIR/tensorboard/VARIANT/METHOD/seed-N/  event files, when asked for
DIR/reference/              the model against which validation data was perturbed, if any
DIR/examples/SHIFT.png      what the shifts look like
DIR/rows.parquet  rows.csv  comparisons.parquet  summary.md  summary.json  report.html
DIR/figures/*.svg
DIR/paper/tables.tex, tables.md  for a paper, when asked for
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from falconcal.errors import UsageError

PLAIN = "default"  # the variant of a study that has none
REFERENCE_VARIANT = "reference"  # of the run that trains the reference alone; it has no rows
WEIGHTS = "weights.safetensors"
FAILURES = "failures"
RUN_FILES = (
    "settings.json",
    WEIGHTS,
    "history.parquet",
    "scores.parquet",
    "run.json",
)


@dataclass(frozen=True, order=True)
class RunKey:
    """Which run: a method, a variant of its settings, a seed."""

    variant: str
    method: str
    seed: int

    @property
    def series(self) -> str:
        """The name under which runs that differ by seed alone are shown."""
        return self.method if self.variant == PLAIN else f"{self.method} ({self.variant})"

    def __str__(self) -> str:
        return f"{self.series}, seed {self.seed}"

    def folder(self, directory: Path) -> Path:
        return directory / "runs" / self.variant / file_name(self.method) / f"seed-{self.seed}"

    def complete(self, directory: Path) -> bool:
        return all((self.folder(directory) / name).is_file() for name in RUN_FILES)


def advice(file: Path) -> str:
    """Return what to do about a damaged file of an output folder: one run at a time."""
    if file.name in RUN_FILES:
        return (
            f"restore it, or remove the folder {file.parent}, which holds nothing else, and run "
            "the study again: the other runs stay"
        )
    return "restore it, or run the study again into the same folder: complete runs stay"


def model_file(path: Path) -> Path:
    """Return the file of a model, which a run has in its folder."""
    return path / WEIGHTS if path.is_dir() else path


def file_name(name: str) -> str:
    """Return a name for the file system: package.module:Name is one too, but for its colon."""
    return name.replace(":", ".")


def check_names(kind: str, names: Iterable[str]) -> None:
    """Refuse names that differ, but not on the file system: one's files would replace the other's.

    So no two of ``a:b`` and ``a.b`` can stand side by side.
    """
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(file_name(name), name)
        if other != name:
            raise UsageError(
                f"the {kind}s {other!r} and {name!r} would have the same files, "
                f"{file_name(name)}: give one of them another name."
            )


def example_file(directory: Path, shift: str) -> Path:
    return directory / "examples" / f"{file_name(shift)}.png"
