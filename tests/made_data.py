"""Tiny data in the official layouts: files that the readers take for the real ones."""

import gzip
import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy


def bytes_of(*shape: int, seed: int = 0, below: int = 256) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(0, below, shape, dtype=numpy.uint8)


def cyclic(count: int, classes: int = 10) -> numpy.ndarray:
    """Return labels of which every class has some."""
    return (numpy.arange(count) % classes).astype(numpy.uint8)


def idx(array: numpy.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


def write_mnist(folder: Path, train: int = 5030, test: int = 20, ending: str = ".gz") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        # rows that repeat, so that packing them takes no time
        images = numpy.resize(bytes_of(20, 28, 28), (count, 28, 28))
        images[:, 0, 0] = numpy.arange(count) % 251  # by which an image is known again
        for kind, data in (("images-idx3", images), ("labels-idx1", cyclic(count))):
            packed = gzip.compress(idx(data), 1) if ending else idx(data)
            (folder / f"{part}-{kind}-ubyte{ending}").write_bytes(packed)


def cifar_records(count: int, seed: int = 0) -> numpy.ndarray:
    """Return records of the binary version: label, then planes of red, green and blue."""
    planes = numpy.resize(bytes_of(10, 3072, seed=seed), (count, 3072))
    return numpy.concatenate([cyclic(count)[:, None], planes], 1)


def write_cifar10(folder: Path, train: int = 1010, test: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(cifar_records(train, number).tobytes())
    (folder / "test_batch.bin").write_bytes(cifar_records(test).tobytes())


GROUPS = ("alt.birds", "rec.boats", "sci.stars")


def newsgroup_text(group: int, number: int) -> str:
    """Return a text with a head; its group shows in one word, its number in how often."""
    subject = ("wing", "sail", "light")[group]
    return f"From: somebody\n\nThe {subject}'s {subject} " + f"WORD{number % 5}, " * (
        1 + number % 5
    )


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def newsgroup_members(part: str, count: int) -> dict[str, bytes]:
    return {
        f"20news-bydate-{part}/{GROUPS[number % 3]}/{1000 + number}": newsgroup_text(
            number % 3, number
        ).encode("latin-1")
        for number in range(count)
    }


def write_newsgroups(folder: Path) -> dict[str, Any]:
    members = {**newsgroup_members("train", 60), **newsgroup_members("test", 30)}
    write_archive(folder / "20news-bydate.tar.gz", members)
    lines = [f"{word} " + " ".join(f"{index}.5" for _ in range(100)) for index, word in VECTORS]
    (folder / "glove.6B.100d.txt").write_text("\n".join(lines) + "\n")
    return {"path": str(folder), "vectors": str(folder), "training": 40, "length": 8}


VECTORS = list(enumerate(("the", "wing", "sail", "light", "from")))


def _at(write: Callable[[Path], None]) -> Callable[[Path], dict[str, Any]]:
    def made(folder: Path) -> dict[str, Any]:
        write(folder)
        return {"path": str(folder)}

    return made


# settings under which each dataset that reads files is there
MADE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "mnist": _at(write_mnist),
    "fashion_mnist": _at(write_mnist),
    "cifar10": _at(write_cifar10),
    "sequential_mnist": _at(write_mnist),
    "newsgroups": write_newsgroups,
}
