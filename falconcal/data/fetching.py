"""Downloads into the user's cache, each checked against its published checksum.

Pooch writes to a temporary file and moves it when the checksum fits, so a partial file is never
used. A download that is longer than published is stopped. Mirrors are tried in turn.
``FALCONCAL_OFFLINE`` forbids all downloads. Archives are read without being unpacked.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from falconcal.errors import UserError
from falconcal.io.atomic import creating

OFFLINE = "FALCONCAL_OFFLINE"
TIMEOUT = 30  # seconds without an answer
DOWNLOAD_PIECE = 2**16  # bytes


def offline() -> bool:
    return os.environ.get(OFFLINE, "0") not in ("", "0")


@dataclass(frozen=True)
class RemoteFile:
    """A file that others publish: the same bytes at every address."""

    urls: tuple[str, ...]
    checksum: str  # sha256:... or md5:..., whichever is published
    size: int  # bytes


def fetch_file(remote: RemoteFile, target: Path) -> Path:
    """Return the file, downloaded from the first address that gives the right one."""
    if offline():
        raise UserError(
            f"{target.name} is not here and downloads are switched off ({OFFLINE}, --offline): "
            f"put it into {target.parent}, or allow downloads."
        )
    reasons = []
    for url in remote.urls:
        try:
            return _fetch_from(url, remote, target)
        except (ValueError, OSError) as error:  # requests' errors are OSErrors
            reasons.append(f"{url}: {_reason(error)}")
    raise UserError(
        f"cannot download {target.name}:\n  "
        + "\n  ".join(reasons)
        + f"\nGet it some other way, put it into {target.parent}, and try again."
    )


def checksum_fits(path: Path, checksum: str) -> bool:
    algorithm, _, expected = checksum.partition(":")
    return bool(pooch.file_hash(str(path), alg=algorithm) == expected)


def _fetch_from(url: str, remote: RemoteFile, target: Path) -> Path:
    title = f"{target.name} from {urlsplit(url).hostname}"
    with creating(target.parent), _quiet(), _bar(title, remote.size) as advance:
        download = partial(_download, size=remote.size, advance=advance)
        found = pooch.retrieve(
            url, remote.checksum, target.name, target.parent, downloader=download
        )
    return Path(found)


def _download(
    url: str, target: str, _: object, *, size: int, advance: Callable[[int], None]
) -> None:
    """Write a download to a file; stop when it is longer than published."""
    with requests.get(url, timeout=TIMEOUT, stream=True) as answer, Path(target).open("wb") as file:
        answer.raise_for_status()
        _check_length(int(answer.headers.get("content-length", 0)), size)
        for piece in answer.iter_content(DOWNLOAD_PIECE):
            file.write(piece)
            _check_length(file.tell(), size)
            advance(len(piece))


def _check_length(length: int, size: int) -> None:
    if length > size:
        raise _TooLongError(f"gives more than the {size:,} bytes that were published")


class _TooLongError(ValueError):
    """A download that cannot be the published file."""


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code}"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "cannot be reached, or broke off"
    if isinstance(error, _TooLongError):
        return str(error)
    if "hash" in str(error):
        return "gave another file than was published (wrong checksum), or broke off"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep pooch from logging next to the bar."""
    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _bar(title: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; the function that is given advances it by a number of bytes."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    if not console.is_terminal:
        console.print(f"Downloading {title}, {size / 1e6:.1f} MB", highlight=False, soft_wrap=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=size)
        yield lambda more: bars.update(task, advance=more)
