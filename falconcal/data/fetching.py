"""Downloads into the user's cache: checked against a checksum before they bear their name.

Pooch writes to a temporary file and moves it when the checksum fits, so a part is never taken for
the whole. Mirrors are tried in turn. ``FALCONCAL_OFFLINE`` forbids all of it. Nothing is unpacked:
archives are read in place.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from falconcal.errors import UserError

OFFLINE = "FALCONCAL_OFFLINE"
TIMEOUT = 30  # seconds without an answer


def offline() -> bool:
    return os.environ.get(OFFLINE, "0") not in ("", "0")


@dataclass(frozen=True)
class Remote:
    """A file that others publish: the same bytes at every address."""

    urls: tuple[str, ...]
    checksum: str  # sha256:... or md5:..., whichever is published
    size: int  # bytes


def fetch(remote: Remote, target: Path) -> Path:
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
        f"cannot download {target.name}, nothing of it is kept:\n  "
        + "\n  ".join(reasons)
        + f"\nFetch it by other means, put it into {target.parent}, and try again."
    )


def checksum_fits(path: Path, checksum: str) -> bool:
    algorithm, _, expected = checksum.partition(":")
    return bool(pooch.file_hash(str(path), alg=algorithm) == expected)


def _fetch_from(url: str, remote: Remote, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _quiet(), _bar(f"{target.name} from {urlsplit(url).hostname}", remote.size) as bar:
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)
        found = pooch.retrieve(
            url, remote.checksum, target.name, target.parent, downloader=downloader
        )
    return Path(found)


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code}"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "cannot be reached, or broke off"
    if "hash" in str(error):
        return "gave another file than was published (wrong checksum), or broke off"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep pooch from logging beside the bar."""
    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Bar:
    """A bar as pooch wants one: a total that may be set, and a few verbs."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self.bars, self.task, self.total = bars, task, 0

    def update(self, more: int) -> None:
        self.bars.update(self.task, advance=more, total=self.total or None)

    def reset(self) -> None:
        self.bars.reset(self.task)

    def close(self) -> None:
        self.bars.refresh()


@contextmanager
def _bar(title: str, size: int) -> Iterator[_Bar]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    if not console.is_terminal:
        console.print(f"Downloading {title}, {size / 1e6:.1f} MB", highlight=False, soft_wrap=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        yield _Bar(bars, bars.add_task(title, total=size))
