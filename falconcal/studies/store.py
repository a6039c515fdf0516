"""The store of a study: what is complete in its output folder, and what does not fit.

A run is put together in a hidden folder and renamed when complete, so a run that is there is whole.
"""

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import filelock
import polars
import safetensors.torch
import torch
from torch import nn

from falconcal import processes
from falconcal.errors import UserError
from falconcal.files import write_bytes, write_text
from falconcal.layout import FAILURES, RunKey, file_name
from falconcal.studies.study import REFERENCE
from falconcal.training import checkpointing

MINUTES, NEVER = 1.0, 10**9  # between checkpoints; the end of a training is always one
FREE = {"seeds", "title", "note", "stored"}  # may differ between runs that share a folder
# one more or less does not touch the runs, or the trials, that are there
GROWING = ("methods", "variants", "search")
WHERE = {"accelerator", "devices", "num_nodes", "strategy"}  # what is computed is the same


class Store:
    """One output folder."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def opened(self, study: dict[str, Any], wait: float = 0) -> Iterator[None]:
        """Hold the folder, its settings checked against the study's; the first process does.

        ``wait`` is how many seconds another may still be at work in it; -1 waits for ever.
        """
        if not processes.first():
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
            raise UserError(
                f"cannot write to the output folder {self.directory}: {error.strerror or error}. "
                "Choose another one with --out."
            ) from None
        try:
            self._agree(study)
            yield
        finally:
            lock.release()

    def complete(self, run: RunKey) -> bool:
        return run.complete(self.directory)

    def runs(self) -> list[RunKey]:
        """Return the complete runs of the folder."""
        found = (self.directory / "runs").glob("*/*/seed-*/settings.json")
        keys = [RunKey(*_key(path)) for path in found]
        return sorted(key for key in keys if self.complete(key))

    @contextmanager
    def writing(self, run: RunKey) -> Iterator[Path]:
        """Give a hidden folder to fill; it becomes the run when all went well, else it goes.

        Processes beside the first have the same to write: theirs goes.
        """
        if not processes.first():
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
        if not processes.first():
            return
        shutil.rmtree(self._checkpoint(run), ignore_errors=True)

    def keep_failure(self, run: RunKey, text: str) -> None:
        """Write down why a run failed, until it is done."""
        write_text(self._failure(run), text)

    def drop_failure(self, run: RunKey) -> None:
        self._failure(run).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove folders that hold nothing any more, when no run is on its way."""
        for folder in (self._checkpoints, self.directory / FAILURES):
            if not any(path.is_file() for path in folder.rglob("*")):
                shutil.rmtree(folder, ignore_errors=True)

    def _failure(self, run: RunKey) -> Path:
        return run.folder(self.directory / FAILURES).with_suffix(".txt")

    def _checkpoint(self, run: RunKey) -> Path:
        return self._checkpoints / run.folder(Path())

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def _agree(self, study: dict[str, Any]) -> None:
        """Refuse settings that differ from those of the runs that are already there."""
        file = self.directory / "study.json"
        stored = self._stored(file)
        differences = list(_differences(stored, study)) if stored else []
        if differences:
            raise UserError(
                f"{self.directory} was made with other settings:\n  "
                + "\n  ".join(differences)
                + "\nNothing was changed. Choose another folder with --out, or the old settings."
            )
        grown = {name: {**stored.get(name, {}), **study.get(name, {})} for name in GROWING}
        write_text(file, to_json({**study, **{name: all_ for name, all_ in grown.items() if all_}}))

    def _stored(self, file: Path) -> dict[str, Any]:
        """Return the settings of the runs that are there; without a run nothing binds."""
        if not self.runs() and not (self.directory / "reference").exists():
            return {}
        if not file.exists():
            raise UserError(f"{file} is missing beside its runs: choose another --out.")
        stored = read_json(file)
        if not isinstance(stored, dict) or not isinstance(stored.get("methods"), dict):
            raise UserError(f"{file} is no study: was it damaged? Choose another --out.")
        if "search" in stored:
            return stored  # a folder of trials, which bind all
        return {**stored, "methods": self._bound(stored["methods"])}

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
    for key in sorted({*old, *new} - (WHERE if place else FREE)):
        name, both = f"{place}{key}", key in old and key in new
        if not both and (name in GROWING or place.removesuffix(".") in GROWING):
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
        raise UserError(f"{settings} does not say which run it is: remove its folder.") from None


def to_json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {path}: {error}. Was it damaged? Remove its folder."
        ) from None


def read_table(path: Path) -> polars.DataFrame:
    """Read a table from Parquet; a damaged one is named."""
    try:
        return polars.read_parquet(path, glob=False)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"cannot read {path}, it looks damaged ({reason}): remove its folder and run again."
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
        raise UserError(f"cannot read the weights {path}: {error}.") from None
    return model.eval()


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = model.state_dict()
    return state
