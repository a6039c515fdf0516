"""What ``falconcal score`` does: read one file or several, measure, print, write the page."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from falconcal.cli.terminal import (
    errors,
    output,
    print_text,
    show_score,
    show_side_by_side,
)
from falconcal.errors import UsageError, UserError
from falconcal.evaluation.assessment import assess
from falconcal.evaluation.side_by_side import assess_together
from falconcal.inference.prediction_files import PredictionFile, read_predictions, same_examples
from falconcal.io.atomic import as_path
from falconcal.report.pages.score_page import check_folder, write_score_page
from falconcal.report.pages.side_by_side_page import write_side_by_side

STANDARD_INPUT = "standard input"
MAGIC = {b"PK": ".npz", b"PAR1": ".parquet", b"\x93NUMPY": ".npy", b"{": ".json"}
CHUNK = 2**20


def check_together(files: Sequence[Path], directory: Path, groups: str | None) -> None:
    """Refuse what cannot be scored, before anything is read."""
    check_folder(directory)
    if len(set(files)) < len(files):
        raise UsageError("expected different files, got one of them twice.")
    if len(files) > 1 and groups is not None:
        raise UsageError("--groups is for one file: score the files one by one.")


def read_files(files: Sequence[Path], *, json: bool, **options: Any) -> list[PredictionFile]:
    """Read all files, and say which form each of them has; a bad file is a wrong use."""
    read = []
    for file in files:
        with _wrong_use(), _readable_file(file) as path:
            read.append(read_predictions(path, **options))
        print_text(f"{_title(file, read)}: {read[-1].found}.", errors if json else output)
    return read


def score_one(read: PredictionFile, directory: Path, *, metric: str, bins: int, json: bool) -> None:
    """Measure one file, print the figures and write the page."""
    _announce(len(read.record), json)
    found = assess(read.record, bins=bins, groups=read.groups, metric=metric)
    if json:
        sys.stdout.write(found.to_json())
    else:
        show_score(found)  # before the figures, which may fail
    page = write_score_page(
        found, directory, title=read.path.name, classes=read.classes, source=read.found
    )
    print_text(f"Page: {page}", errors if json else output)


def score_several(
    read: Sequence[PredictionFile], directory: Path, *, bins: int, json: bool
) -> None:
    """Compare several files with the first, print the figures and write the page."""
    with _wrong_use():
        records = same_examples(read)
    _announce(len(records[0]), json)
    names = _names([file.path for file in read])
    both = assess_together(dict(zip(names, records, strict=True)), bins=bins)
    if json:
        sys.stdout.write(both.to_json())
    else:
        show_side_by_side(both)
    sources = [f"{name}: {file.found}" for name, file in zip(names, read, strict=True)]
    page = write_side_by_side(both, directory, title=" and ".join(names), sources=sources)
    print_text(f"Page: {page}", errors if json else output)


def _announce(examples: int, json: bool) -> None:
    print_text(f"Measuring {examples:,} examples ...", errors if json else output)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the names of the files, with their folders where names are alike."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _title(file: Path, read: Sequence[PredictionFile]) -> str:
    return STANDARD_INPUT if str(file) == "-" else str(read[-1].path)


@contextmanager
def _wrong_use() -> Iterator[None]:
    """Let a file that cannot be used end the command as wrong use does, with exit code 2."""
    try:
        yield
    except UserError as error:
        raise UsageError(str(error)) from None


@contextmanager
def _readable_file(file: Path) -> Iterator[Path]:
    """Give the file itself, or a copy of standard input that errors call by that name."""
    if str(file) != "-":
        yield as_path(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = _copied_input(Path(folder))
        try:
            yield path
        except UserError as error:
            raise UsageError(str(error).replace(str(path), STANDARD_INPUT)) from None


def _copied_input(folder: Path) -> Path:
    """Write standard input to a file whose extension its first bytes tell."""
    source = sys.stdin.buffer
    start = source.read(CHUNK)
    ending = next((end for magic, end in MAGIC.items() if start.startswith(magic)), ".csv")
    path = folder / f"standard-input{ending}"
    with path.open("wb") as file:
        while start:
            file.write(start)
            start = source.read(CHUNK)
    return path
