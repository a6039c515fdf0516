"""The store of a study: what is complete in its output folder, and what does not fit.

A run is put together in a hidden folder and renamed when complete, so a run that is there is whole.
"""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import filelock
import polars
import safetensors.torch
import torch
from torch import nn

from falconcal.core import distributed
from falconcal.errors import UserError
from falconcal.io.atomic import obstacle, write_bytes, write_text
from falconcal.io.output_folder import (
    FAILURES_FOLDER,
    RUN_FILES,
    RunKey,
    advice,
    check_names,
    file_name,
)
from falconcal.io.parsing import parse_json
from falconcal.studies.study import REFERENCE
from falconcal.training import checkpointing

MINUTES, NEVER = 1.0, 10**9  # between checkpoints; the end of a training is always one
MAY_DIFFER = {
    "seeds",
    "title",
    "note",
    "stored",
    "report",
}  # may differ between runs that share a folder
# one more or less does not touch the runs, or the trials, that are there
MAY_GROW = ("methods", "variants", "search")
DEVICE_SETTINGS = {
    "accelerator",
    "devices",
    "num_nodes",
    "strategy",
}  # what is computed is the same


SettingsOf = Callable[[RunKey], dict[str, Any] | None]


def no_runs(_: RunKey) -> None:
    """Say of no run what its settings would be: a folder of trials has none."""


class Store:
    """One output folder."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def opened(
        self, study: dict[str, Any], settings_of: SettingsOf = no_runs, wait: float = 0
    ) -> Iterator[None]:
        """Hold the folder, its settings checked against the study's; the first process does.

        ``settings_of`` says what a run of the study would store as its settings. ``wait`` is how
        many seconds another may still be at work in the folder; -1 waits for ever.
        """
        if not distributed.is_first_process():
            yield
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.directory / ".lock")
            lock.acquire(timeout=wait)
        except filelock.Timeout:
            raise UserError(
                f"another falconcal is at work in {self.directory}: wait for it, or choose "
                "another folder with --out."
            ) from None
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from None
        try:
            write_text(self._study, to_json(self.check(study, settings_of)))
            yield
        finally:
            lock.release()

    def complete(self, run: RunKey) -> bool:
        return run.complete(self.directory) and self.damaged(run) is None

    def damaged(self, run: RunKey) -> Path | None:
        """Return a file of a run that is there and cannot be read, if there is one."""
        files = [run.folder(self.directory) / name for name in RUN_FILES]
        return next((file for file in files if file.is_file() and not whole(file)), None)

    def runs(self) -> list[RunKey]:
        """Return the complete runs of the folder."""
        found = (self.directory / "runs").glob("*/*/seed-*/settings.json")
        keys = {path.parent: RunKey(*_key(path)) for path in found if whole(path)}
        return sorted(
            key
            for folder, key in keys.items()
            if key.folder(self.directory) == folder and self.complete(key)
        )

    @contextmanager
    def writing(self, run: RunKey) -> Iterator[Path]:
        """Give a hidden folder to fill; it becomes the run when all went well, else it goes.

        Processes beside the first have the same to write: theirs goes.
        """
        if not distributed.is_first_process():
            with TemporaryDirectory() as folder:
                yield Path(folder)
            return
        final = run.folder(self.directory)
        partial = final.parent / f".{final.name}"
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        partial.mkdir(parents=True)
        try:
            yield partial
            shutil.rmtree(final, ignore_errors=True)  # a folder that lacks a file is no run
            partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    @contextmanager
    def checkpointing(self, run: RunKey) -> Iterator[None]:
        """Keep what is trained inside for a process that goes on after this one was killed."""
        with checkpointing(self._checkpoint(run), every_epochs=NEVER, every_minutes=MINUTES):
            yield

    def has_checkpoint(self, run: RunKey) -> bool:
        return self._checkpoint(run).is_dir()

    def drop_checkpoint(self, run: RunKey) -> None:
        if not distributed.is_first_process():
            return
        shutil.rmtree(self._checkpoint(run), ignore_errors=True)

    def keep_failure(self, run: RunKey, text: str) -> None:
        """Write down why a run failed, until it is done."""
        write_text(self._failure(run), text)

    def drop_failure(self, run: RunKey) -> None:
        self._failure(run).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove folders that hold nothing any more, when no run is on its way."""
        for folder in (self._checkpoints, self.directory / FAILURES_FOLDER):
            if not any(path.is_file() for path in folder.rglob("*")):
                shutil.rmtree(folder, ignore_errors=True)

    def _failure(self, run: RunKey) -> Path:
        return run.folder(self.directory / FAILURES_FOLDER).with_suffix(".txt")

    def _checkpoint(self, run: RunKey) -> Path:
        return self._checkpoints / run.folder(Path())

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def check(self, study: dict[str, Any], settings_of: SettingsOf = no_runs) -> dict[str, Any]:
        """Return what study.json is to hold; settings other than those of the runs are refused."""
        if (reason := obstacle(self.directory)) is not None:
            raise self._unwritable(reason)
        stored = self._stored()
        if stored is None:
            stored, differences = {}, list(self._differences_of_runs(settings_of))
        else:
            differences = list(_differences(stored, study)) if stored else []
        if differences:
            raise UserError(
                f"{self.directory} was made with other settings:\n  "
                + "\n  ".join(dict.fromkeys(differences))
                + "\nNothing was changed. Choose another folder with --out, or the old settings."
            )
        grown = {name: {**stored.get(name, {}), **study.get(name, {})} for name in MAY_GROW}
        check_names("method", grown["methods"])
        return {**study, **{name: all_ for name, all_ in grown.items() if all_}}

    def _unwritable(self, reason: str) -> UserError:
        return UserError(
            f"cannot write to the output folder {self.directory}: {reason}. Choose another one "
            "with --out."
        )

    @property
    def _study(self) -> Path:
        return self.directory / "study.json"

    def _stored(self) -> dict[str, Any] | None:
        """Return the settings of the runs that are there, None if only the runs still say them.

        Without a run nothing binds.
        """
        runs = self.runs()
        if not runs and not (self.directory / "reference").exists():
            return {}
        stored = _whole_study(self._study)
        if stored is None:
            if runs:
                return None
            raise UserError(
                f"{self._study} is missing or damaged, and without it nobody knows how the "
                f"reference model beside it was made: restore it, or choose another --out."
            )
        if "search" in stored:
            return stored  # a folder of trials, which bind all
        return {**stored, "methods": self._bound(stored["methods"])}

    def _differences_of_runs(self, settings_of: SettingsOf) -> Iterator[str]:
        """Compare each run's own settings with those that it would have now."""
        for run in self.runs():
            old, new = read_json(run.folder(self.directory) / "settings.json"), settings_of(run)
            if new is None:
                raise UserError(
                    f"{self._study} is missing or damaged and is made anew by the study that made "
                    f"the folder, but this one has no {run}: run that study, or choose another "
                    "--out."
                )
            yield from _differences(old["study"], new["study"])
            yield from _differences(old["settings"], new["settings"], f"methods.{run.method}.")

    def _bound(self, methods: dict[str, Any]) -> dict[str, Any]:
        """Return the methods whose settings bind: something was made with them, or is begun."""
        made = {REFERENCE, *(run.method for run in self.runs())}
        begun = {path.parent.name for path in self._checkpoints.glob("runs/*/*/seed-*")}
        return {
            name: table
            for name, table in methods.items()
            if name in made or file_name(name) in begun
        }


def _differences(old: dict[str, Any], new: dict[str, Any], place: str = "") -> Iterator[str]:
    for key in sorted({*old, *new} - (DEVICE_SETTINGS if place else MAY_DIFFER)):
        name, both = f"{place}{key}", key in old and key in new
        if not both and (name in MAY_GROW or place.removesuffix(".") in MAY_GROW):
            continue
        if both and isinstance(old[key], dict) and isinstance(new[key], dict):
            yield from _differences(old[key], new[key], f"{name}.")
        elif old.get(key) != new.get(key):  # a setting of later that is None is as none at all
            there = json.dumps(old[key]) if key in old else "not set"
            here = json.dumps(new[key]) if key in new else "not set"
            yield f"{name}: {there} there, {here} now"


def _key(settings: Path) -> tuple[str, str, int]:
    stored = read_json(settings)
    try:
        return stored["variant"], stored["method"], int(stored["seed"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{settings} does not say which run it is: {advice(settings)}.") from None


def whole(file: Path) -> bool:
    """Tell whether a file is there and can be read, as far as its beginning and end say."""
    try:
        if file.suffix == ".json":
            return isinstance(parse_json(file.read_text(encoding="utf-8")), dict)
        if file.suffix == ".parquet":
            polars.read_parquet_schema(file)
        else:
            with safetensors.safe_open(file, "pt") as weights:
                weights.keys()
    except (FileNotFoundError, ValueError, polars.exceptions.PolarsError,
            safetensors.SafetensorError):  # fmt: skip
        return False
    return True


def _whole_study(file: Path) -> dict[str, Any] | None:
    """Return the settings that all runs of a folder share, None if they cannot be read."""
    if not whole(file):
        return None
    stored: dict[str, Any] = read_json(file)
    kinds = {"name": str, "shifts": list, "methods": dict}
    return stored if all(isinstance(stored.get(name), kinds[name]) for name in kinds) else None


def to_json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {path}, it looks damaged ({error}): {advice(path)}."
        ) from None


def read_table(path: Path) -> polars.DataFrame:
    """Read a table from Parquet; a damaged one is named."""
    try:
        return polars.read_parquet(path, glob=False)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"cannot read {path}, it looks damaged ({reason}): {advice(path)}."
        ) from None


def write_table(path: Path, table: polars.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a module's weights as safetensors."""
    weights = {name: weight.detach().cpu().contiguous() for name, weight in _state(model).items()}
    write_bytes(path, safetensors.torch.save(weights))


def load_weights(path: Path, model: nn.Module) -> nn.Module:
    """Read a module's weights from safetensors into a module of the same shape."""
    try:
        model.load_state_dict(safetensors.torch.load(path.read_bytes()))
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise UserError(f"cannot read the weights {path} ({error}): {advice(path)}.") from None
    return model.eval()


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = model.state_dict()
    return state
