"""The layout of a study's output folder, for the code that writes it and the code that reads it.

DIR/study.json              the settings that all runs of the folder share
DIR/runs/VARIANT/METHOD/seed-N/
    settings.json  weights.safetensors  history.parquet  scores.parquet  run.json
    sets.parquet            where the study asks for conformal sets
DIR/checkpoints/            of runs that are not complete, and epochs to be judged; then removed
DIR/measured/               scores that falconcal measure has not yet added to their runs
DIR/failures/               why runs failed; removed when they are complete
DIR/tensorboard/VARIANT/METHOD/seed-N/  event files, with --tensorboard
DIR/reference/              the reference model, where an epoch is chosen by validation data
DIR/examples/SHIFT.png      what the shifts look like
DIR/rows.parquet  rows.csv  comparisons.parquet  summary.md  summary.json  report.html
DIR/figures/*.svg
DIR/paper/tables.tex, tables.md  tables for a paper, with --paper
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from falconcal.errors import UsageError

CLEAN = "clean"  # the shift, in rows and scores, of examples that nothing was done to
DEFAULT_VARIANT = "default"  # the variant of a study that has none
REFERENCE_VARIANT = "reference"  # of the run that only trains the reference; it has no rows
WEIGHTS_FILE = "weights.safetensors"
SETS_FILE = "sets.parquet"  # of a run, where the study asks for conformal sets
FAILURES_FOLDER = "failures"
MEASURED_FOLDER = "measured"
MEASURED_LATER = "measured_later"  # in study.json: shifts and outliers that its study file lacks
RUN_FILES = (
    "settings.json",
    WEIGHTS_FILE,
    "history.parquet",
    "scores.parquet",
    "run.json",
)


@dataclass(frozen=True, order=True)
class RunKey:
    """The key of a run: method, variant and seed."""

    variant: str
    method: str
    seed: int

    @property
    def series(self) -> str:
        """The name under which runs that differ only by seed are shown."""
        return self.method if self.variant == DEFAULT_VARIANT else f"{self.method} ({self.variant})"

    def __str__(self) -> str:
        return f"{self.series}, seed {self.seed}"

    def folder(self, directory: Path) -> Path:
        return directory / "runs" / self.variant / file_name(self.method) / f"seed-{self.seed}"

    def complete(self, directory: Path) -> bool:
        return all((self.folder(directory) / name).is_file() for name in RUN_FILES)


def advice(file: Path) -> str:
    """Return what to do about a damaged file of an output folder."""
    if file.name in RUN_FILES:
        return (
            f"restore it, or remove the folder {file.parent}, which holds only this run, and run "
            "the study again: the other runs are kept"
        )
    return "restore it, or run the study again into the same folder: complete runs are kept"


def model_file(path: Path) -> Path:
    """Return the file of a model, given the file itself or the folder of a run."""
    return path / WEIGHTS_FILE if path.is_dir() else path


def file_name(name: str) -> str:
    """Return a name that the file system takes: package.module:Name without its colon."""
    return name.replace(":", ".")


def check_names(kind: str, names: Iterable[str]) -> None:
    """Refuse names such as ``a:b`` and ``a.b``, whose files would have the same name."""
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
