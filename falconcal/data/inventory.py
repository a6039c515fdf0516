"""Which files of the datasets are here, and whether they are as published."""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from falconcal.data.data_files import CIFAR10, SOURCES, DataFile
from falconcal.data.fetching import checksum_fits
from falconcal.data.sets import cifar10
from falconcal.errors import unknown_name_error

Verification = Literal["as published", "not as published", "not here"]


@dataclass(frozen=True)
class FileStatus:
    """A file of a dataset: its name, its path if it is here, and the size of the download."""

    dataset: str
    file: str
    path: Path | None
    megabytes: float


def file_statuses() -> list[FileStatus]:
    """Return every file that can be downloaded, with its path if it is here."""
    return [_status(name, source) for name, sources in SOURCES.items() for source in sources]


def fetch_dataset(name: str) -> list[Path]:
    """Return the files of a dataset; those that are not here are downloaded."""
    return [source.find() or _other_layout(source) or source.fetch() for source in _sources(name)]


def verify_dataset(name: str) -> Iterator[tuple[str, Verification]]:
    """Yield each file, or what stands for it, and whether it is as published."""
    for source in _sources(name):
        path = source.find()
        if path is not None:
            yield str(path), "as published" if _published(path, source) else "not as published"
        elif _other_layout(source) is not None:
            for file, published in cifar10.compare_with_published():
                yield file, "as published" if published else "not as published"
        else:
            yield source.names[0], "not here"


def _sources(name: str) -> tuple[DataFile, ...]:
    if name not in SOURCES:
        raise unknown_name_error("dataset to download", name, SOURCES)
    return SOURCES[name]


def _status(name: str, source: DataFile) -> FileStatus:
    path = source.find() or _other_layout(source)
    return FileStatus(name, source.names[0], path, source.remote.size / 1e6)


def _other_layout(source: DataFile) -> Path | None:
    """Return the folder of CIFAR-10 unpacked or as arrays: several files instead of one."""
    files = cifar10.find_unpacked("train", None) if source is CIFAR10 else None
    return files[0][0].parent if files else None


def _published(path: Path, source: DataFile) -> bool:
    """Return whether a file has the published bytes, or their content packed in another way."""
    if path.name == source.names[0] and checksum_fits(path, source.remote.checksum):
        return True
    if source.content is None:
        return False
    data = path.read_bytes()
    content = gzip.decompress(data) if path.suffix == ".gz" else data
    return hashlib.md5(content, usedforsecurity=False).hexdigest() == source.content
