"""Text in files that may be packed: plain, gzip, bzip2 or xz, and members of a tar or zip archive.

Nothing is unpacked to disk.
"""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import numpy

from falconcal.errors import UserError
from falconcal.io.regular_files import check_regular, error_line

UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
DAMAGED = (
    OSError, EOFError, ValueError, KeyError, zlib.error, lzma.LZMAError, tarfile.TarError,
    zipfile.BadZipFile,
)  # fmt: skip


def read_packed_text(path: Path) -> str:
    """Return the text of a file, unpacked by what its name ends in."""
    check_regular(path)
    with _understood(path):
        data = path.read_bytes()
        return UNPACK.get(path.suffix, bytes)(data).decode("utf-8")


def text_members(path: Path, ending: str) -> dict[str, str]:
    """Return the texts of an archive whose names end so, by their names without folders."""
    check_regular(path)
    with _understood(path):
        pairs = _zip_members(path) if path.suffix == ".zip" else _tar_members(path)
        return {
            PurePosixPath(name).name: read().decode("utf-8")
            for name, read in pairs
            if name.endswith(ending)
        }


def read_number_lines(text: str, source: object, width: int) -> tuple[list[str], numpy.ndarray]:
    """Return the first word of every line, and the numbers after it: (N,), (N, width) float64.

    The numbers stand one after the other, or each has its column before it as in LIBSVM's form,
    ``1:0.5``; columns that are not there are 0.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    numbers = numpy.zeros((len(lines), width))
    for row, (_, *cells) in enumerate(lines):
        pairs = (cell.rpartition(":") for cell in cells)
        try:
            for place, (column, _, number) in enumerate(pairs, start=1):
                numbers[row, _column(column, place, width)] = float(number)
        except ValueError as error:
            raise UserError(
                f"{source}, line {row + 1}: expected {width} numbers, plain or as column:number: "
                f"{error}."
            ) from None
    return [line[0] for line in lines], numbers


def _column(column: str, place: int, width: int) -> int:
    """Return where a number belongs, from 0."""
    found = int(column) if column else place
    if not 1 <= found <= width:
        raise ValueError(f"got column {found}")
    return found - 1


def _zip_members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, lambda name=name: archive.read(name)  # type: ignore[misc]


def _tar_members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise UserError(
            f"{path}: cannot be unpacked and read as text: {error_line(error)}. Fetch it again."
        ) from None
