"""The IDX format of MNIST: a magic number, the size of each axis, then bytes; plain or gzip'd.

https://yann.lecun.com/exdb/mnist (as archived): two zero bytes, 8 for unsigned bytes, the number of
axes, and for each axis its size in four bytes, the highest first.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy

from falconcal.errors import UserError

UNSIGNED_BYTE = 8


def read_idx(path: Path, axes: int) -> numpy.ndarray:
    """Return the bytes of a file with that many axes: (N, ...) uint8."""
    data = _contents(path)
    head = 4 + 4 * axes
    if len(data) < head or data[:4] != bytes((0, 0, UNSIGNED_BYTE, axes)):
        raise UserError(
            f"{path}: expected IDX data of {axes} axes, magic number {UNSIGNED_BYTE * 256 + axes}, "
            f"got the bytes {data[:4].hex(' ')}: is it the right file?"
        )
    shape = struct.unpack(f">{axes}I", data[4:head])
    # a bytearray, because torch takes only what may be written to
    values = numpy.frombuffer(bytearray(data), numpy.uint8, offset=head)
    if len(values) != numpy.prod(shape, dtype=object):
        raise UserError(
            f"{path}: expected {'x'.join(map(str, shape))} bytes after its head, got "
            f"{len(values)}: it is damaged or cut off, fetch it again."
        )
    return values.reshape(shape)


def _contents(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}: cannot be unpacked, it is damaged or cut off ({error}): fetch it again."
        ) from None
