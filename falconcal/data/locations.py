"""Where data is looked for: the path given, the folder in ``FALCONCAL_DATA``, the cache.

``FALCONCAL_CACHE`` moves the cache, which holds downloads and data that was decoded once.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pooch

from falconcal.errors import UserError

DATA, CACHE = "FALCONCAL_DATA", "FALCONCAL_CACHE"


def cache_folder() -> Path:
    """Return the folder for downloads and decoded data; it need not exist yet."""
    return Path(os.environ.get(CACHE) or pooch.os_cache("falconcal"))


def data_folder() -> Path | None:
    """Return the folder that the user keeps data in, if one is named."""
    named = os.environ.get(DATA)
    if not named:
        return None
    if not Path(named).is_dir():
        raise UserError(f"{DATA} is {named!r}, which is not a folder: correct it, or unset it.")
    return Path(named)


def search_folders(names: Sequence[str], path: str | None = None) -> list[Path]:
    """Return the folders to look in for a dataset that goes by these names of folders, in order."""
    if path is not None:
        return [_given(path)]
    data = data_folder()
    roots = [cache_folder()] if data is None else [data, cache_folder()]
    return [root / name for root in roots for name in names if (root / name).is_dir()]


def given_folder(path: str | None) -> Path | None:
    """Return a folder that is named, if one is; it must be there."""
    return None if path is None else _given(path)


def find_file(folders: Iterable[Path], names: Sequence[str]) -> Path | None:
    """Return the first file with one of the names; a folder may also be the file itself."""
    for folder in folders:
        if folder.is_file() and folder.name in names:
            return folder
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None


def find_folder(name: str, names: Sequence[str], path: str | None) -> Path:
    """Return the folder of a layout: the path given or one below it, else where data is kept."""
    if path is not None:
        given = search_folders(names, path)[0]
        below = [given / one for one in names if (given / one).is_dir()]
        return below[0] if below else given
    found = search_folders(names)
    if not found:
        raise UserError(
            f"{name}: expected its folder, {' or '.join(names)}, in the folder that {DATA} names, "
            "it is not there: put it there, or give its path."
        )
    return found[0]


def missing_file_error(dataset: str, names: Sequence[str], folders: Sequence[Path]) -> UserError:
    """Return the error for a file that is in none of the folders."""
    looked = ", ".join(str(folder) for folder in folders) or "no folder: there is none"
    return UserError(
        f"{dataset}: expected the file {' or '.join(names)}, looked in {looked}. Give its folder "
        f"as path, put it into the folder that {DATA} names, or run: falconcal data fetch {dataset}"
    )


def require_file(
    dataset: str, folders: Sequence[str], names: Sequence[str], path: str | None, origin: str
) -> Path:
    """Return a file that is never downloaded, or say where people get it."""
    looked = search_folders(folders, path)
    found = find_file(looked, names)
    if found is not None:
        return found
    where = ", ".join(str(folder) for folder in looked) or f"no folder {' or '.join(folders)}"
    raise UserError(
        f"{dataset}: expected the file {' or '.join(names)}, looked in {where}. It is not "
        f"downloaded: get it from {origin}, and give its folder as path or put it into the folder "
        f"that {DATA} names."
    )


def _given(path: str) -> Path:
    given = Path(path).expanduser()
    if not given.exists():
        raise UserError(f"expected data at {given}, nothing is there: correct the path.")
    return given
