"""NPY and NPZ: arrays of numbers or text, their declared size checked before memory is used.

NumPy's own loader is not used: it allocates whatever a header declares, and advises to load pickled
objects where it finds them. Nothing is ever unpickled here.
"""

import lzma
import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy
from numpy.lib import format as npy

from falconcal.errors import UserError
from falconcal.io.regular_files import check_memory, check_regular, error_line

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
PACKINGS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1100}  # largest ratio of compression
UNPACKED_BYTES = 2**24  # at a time


@dataclass(frozen=True)
class Declared:
    """What the header of an array declares."""

    shape: tuple[int, ...]
    fortran: bool  # columns after each other, not rows
    dtype: numpy.dtype
    head: int  # bytes before the first number

    @property
    def size(self) -> int:
        """Bytes of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays of an NPZ file; refuse a name that occurs twice."""
    with _understood(path), _archive(path) as archive:
        names = [_name(member) for member in archive.namelist()]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{path}: expected each name once, got the array {twice!r} twice.")
    return names


def declared_array(path: Path, name: str) -> Declared:
    """Return what an array of an NPZ file declares, checked against the size of the file."""
    with _member(path, name) as (_, declared):
        return declared


def read_array(path: Path, name: str) -> numpy.ndarray:
    """Return a whole array of an NPZ file."""
    with _member(path, name) as (file, declared):
        check_memory(_where(path, name), declared.size)
        return _read(file, declared)


def array_rows(path: Path, name: str, count: int) -> Iterator[numpy.ndarray]:
    """Yield ``count`` rows of an array of an NPZ file at a time; the rest is not in memory."""
    with _member(path, name) as (file, declared):
        if declared.fortran and len(declared.shape) > 1:
            raise UserError(
                f"{_where(path, name)}: expected rows in order: save "
                "numpy.ascontiguousarray(inputs)."
            )
        for start in range(0, declared.shape[0], count):
            shape = (min(count, declared.shape[0] - start), *declared.shape[1:])
            yield _numbers(file, math.prod(shape), declared.dtype).reshape(shape)


def mapped_array(path: Path) -> numpy.ndarray:
    """Return an array of an NPY file as a memory map."""
    check_regular(path)
    with _understood(path):
        with path.open("rb") as file:
            declared = _declared(file, _where(path))
        _check_size(declared, path.stat().st_size - declared.head)
        if declared.size == 0:
            return numpy.empty(declared.shape, declared.dtype)
        shape = declared.shape[::-1] if declared.fortran else declared.shape
        mapped: numpy.ndarray = numpy.memmap(path, declared.dtype, "r", declared.head, shape)
        return mapped.transpose() if declared.fortran else mapped


def read_stream(file: IO[bytes], path: Path) -> numpy.ndarray:
    """Return an array in the NPY format from an open file, such as a compressed one."""
    with _understood(path):
        declared = _declared(file, _where(path))
        check_memory(_where(path), declared.size)
        return _read(file, declared)


def read_packed_array(path: Path) -> numpy.ndarray:
    """Return a whole array of an NPY file, which may be packed with xz."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        return read_stream(file, path)


@contextmanager
def _understood(path: Path, name: str | None = None) -> Iterator[None]:
    """Turn every error of a library into a ``UserError`` that names the file."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"expected the file {path}, found none: correct the path.") from None
    except MemoryError:
        raise UserError(
            f"{_where(path, name)}: it does not fit into memory: make the file smaller, or use a "
            "machine with more memory."
        ) from None
    except Exception as error:  # zipfile, zlib, tokenize and numpy raise many kinds
        kind = "NPZ" if path.suffix.lower() == ".npz" else "NPY"
        raise UserError(
            f"{path}: cannot be read as {kind}: {_reason(error)}. Is it complete, and written by "
            "numpy from numbers or text?"
        ) from None


def _reason(error: Exception) -> str:
    """Return the message of a library without its advice to load pickled objects."""
    if "pickle" in str(error):
        return "it holds pickled objects, which are never loaded"
    return error_line(error) or type(error).__name__


def _where(path: Path, name: str | None = None) -> str:
    return f"{path}" if name is None else f"{path}, array {name!r}"


def _name(member: str) -> str:
    return member.removesuffix(".npy")


def _archive(path: Path) -> zipfile.ZipFile:
    check_regular(path)
    if path.stat().st_size == 0:
        raise UserError(f"{path}: cannot be read as NPZ: expected arrays, got an empty file.")
    return zipfile.ZipFile(path)


@contextmanager
def _member(path: Path, name: str) -> Iterator[tuple[IO[bytes], Declared]]:
    """Give a file at the first number of an array, and what the array declares, checked."""
    with _understood(path, name), _archive(path) as archive:
        found = next((one for one in archive.infolist() if _name(one.filename) == name), None)
        if found is None:
            raise UserError(f"{path}: there is no array {name!r}.")
        _check_packing(path, found)
        with archive.open(found) as file:
            declared = _declared(file, _where(path, name))
            _check_size(declared, found.file_size - declared.head, exactly=True)
            yield file, declared


def _check_packing(path: Path, found: zipfile.ZipInfo) -> None:
    """Refuse a member that declares more bytes than it can hold."""
    if found.compress_type not in PACKINGS:
        raise ValueError(f"{found.filename} is compressed in a way that NumPy does not use")
    most = PACKINGS[found.compress_type] * found.compress_size
    if found.compress_size > path.stat().st_size or found.file_size > most:
        raise ValueError(
            f"{found.filename} declares {found.file_size:,} bytes, more than the file can hold"
        )


def _declared(file: IO[bytes], where: str) -> Declared:
    """Read the header of an array."""
    start = file.read(len(npy.MAGIC_PREFIX) + 2)
    if not start:
        raise ValueError("it is empty")
    if not start.startswith(npy.MAGIC_PREFIX):
        raise ValueError(f"expected {where} to be an array, got other bytes")
    version = (start[-2], start[-1])
    if version not in HEADERS:
        raise ValueError(f"version {version} of the format is not known")
    shape, fortran, dtype = HEADERS[version](file)
    _check_dtype(dtype, where)
    if min(shape, default=0) < 0:
        raise ValueError(f"expected no negative length, got shape {shape}")
    return Declared(shape, fortran, dtype, file.tell())


def _check_dtype(dtype: numpy.dtype, where: str) -> None:
    if dtype.hasobject:
        raise UserError(
            f"{where}: expected numbers or text, got pickled Python objects, which are never "
            "loaded: save it with a dtype of numbers or text."
        )
    if dtype.kind == "V" or dtype.itemsize == 0:
        raise UserError(f"{where}: expected numbers or text, got dtype {dtype}.")


def _check_size(declared: Declared, there: int, *, exactly: bool = False) -> None:
    if declared.size > there or (exactly and declared.size != there):
        raise ValueError(
            f"it declares shape {_short(declared.shape)} of {declared.dtype}, {declared.size:,} "
            f"bytes, and has {there:,}"
        )


def _short(shape: tuple[int, ...]) -> str:
    return str(shape) if len(shape) <= 8 else f"of {len(shape)} axes"


def _read(file: IO[bytes], declared: Declared) -> numpy.ndarray:
    """Return the whole array in this machine's byte order, and at most float64."""
    flat = _numbers(file, math.prod(declared.shape), declared.dtype)
    if flat.dtype.kind == "f" and flat.dtype.itemsize > 8:
        flat = flat.astype(numpy.float64)  # the longest that torch and polars have
    flat = flat.astype(flat.dtype.newbyteorder("="), copy=False)
    if declared.fortran:
        return flat.reshape(declared.shape[::-1]).transpose()
    return flat.reshape(declared.shape)


def _numbers(file: IO[bytes], count: int, dtype: numpy.dtype) -> numpy.ndarray:
    """Return the next numbers of a file, (count,)."""
    flat = numpy.empty(count, dtype)
    target, filled = memoryview(flat.view(numpy.uint8)), 0  # type: ignore[arg-type]
    while filled < len(target):
        data = file.read(min(UNPACKED_BYTES, len(target) - filled))
        if not data:
            raise EOFError(f"it ends {len(target) - filled:,} bytes too early")
        target[filled : filled + len(data)] = data
        filled += len(data)
    return flat
