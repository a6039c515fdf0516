"""The output folder of a study: which runs are complete, and whether the settings match.

A run is written to a hidden folder that is renamed when it is complete, so no run is half written.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import filelock

from falconcal.core import distributed
from falconcal.core.settings import renamed_settings, with_later_settings
from falconcal.errors import UserError
from falconcal.io.atomic import obstacle, write_text
from falconcal.io.output_folder import (
    FAILURES_FOLDER,
    MEASURED_FOLDER,
    MEASURED_LATER,
    RUN_FILES,
    RunKey,
    advice,
    check_names,
    file_name,
)
from falconcal.methods import METHODS, are_same_class
from falconcal.studies.run_files import is_whole, read_json, to_json
from falconcal.studies.study_checks import REFERENCE_METHOD
from falconcal.training import checkpointing
from falconcal.training.common_settings import SETTINGS_WITHOUT_EFFECT

CHECKPOINT_MINUTES, NEVER = 1.0, 10**9  # the end of a training always has a checkpoint
# between runs that share a folder
MAY_DIFFER = {"seeds", "title", "note", "stored", "report", MEASURED_LATER}
# an entry more or less does not change the runs, or the trials, of the others
MAY_GROW = ("methods", "variants", "search")
DEVICE_SETTINGS = {  # do not change results
    "accelerator", "devices", "num_nodes", "strategy", *SETTINGS_WITHOUT_EFFECT,
}  # fmt: skip

SettingsOf = Callable[[RunKey], dict[str, Any] | None]


def no_runs(_: RunKey) -> None:
    """Return None, the settings of any run in a folder of trials: it has no runs."""


class Store:
    """The output folder of a study or of a search."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def opened(
        self, study: dict[str, Any], settings_of: SettingsOf = no_runs, wait: float = 0
    ) -> Iterator[None]:
        """Lock the folder in the first process, and check its settings against the study's.

        ``settings_of`` returns the settings that a run of the study would store. ``wait`` is how
        many seconds to wait for another falconcal in the folder; -1 waits forever.
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
        """Return the first file of a run that exists and cannot be read; None if all can."""
        files = [run.folder(self.directory) / name for name in RUN_FILES]
        return next((file for file in files if file.is_file() and not is_whole(file)), None)

    def runs(self) -> list[RunKey]:
        """Return the complete runs of the folder."""
        found = (self.directory / "runs").glob("*/*/seed-*/settings.json")
        keys = {path.parent: RunKey(*_key(path)) for path in found if is_whole(path)}
        return sorted(
            key
            for folder, key in keys.items()
            if key.folder(self.directory) == folder and self.complete(key)
        )

    @contextmanager
    def writing(self, run: RunKey) -> Iterator[Path]:
        """Give a hidden folder; rename it to the run's on success, delete it on error.

        Other processes than the first would write the same: theirs is deleted.
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
            shutil.rmtree(final, ignore_errors=True)  # an incomplete or damaged one
            shutil.rmtree(self._measured(run), ignore_errors=True)  # of the model before
            partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    @contextmanager
    def checkpointing(self, run: RunKey) -> Iterator[None]:
        """Write checkpoints of the training inside, from which a later process can resume."""
        folder = self._checkpoint(run)
        with checkpointing(folder, every_epochs=NEVER, every_minutes=CHECKPOINT_MINUTES):
            yield

    def has_checkpoint(self, run: RunKey) -> bool:
        return self._checkpoint(run).is_dir()

    def drop_checkpoint(self, run: RunKey) -> None:
        if not distributed.is_first_process():
            return
        shutil.rmtree(self._checkpoint(run), ignore_errors=True)

    def keep_failure(self, run: RunKey, text: str) -> None:
        """Write why a run failed to a file, which stays until the run is done."""
        write_text(self._failure(run), text)

    def drop_failure(self, run: RunKey) -> None:
        self._failure(run).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove held epochs and empty folders; call it when no run is going on."""
        shutil.rmtree(self.held_folder, ignore_errors=True)
        names = (FAILURES_FOLDER, MEASURED_FOLDER)
        for folder in (self._checkpoints, *(self.directory / name for name in names)):
            if not any(path.is_file() for path in folder.rglob("*")):
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def held_folder(self) -> Path:
        """Where the epochs of the reference's training wait to be judged."""
        return self._checkpoints / "epochs"

    def _failure(self, run: RunKey) -> Path:
        return run.folder(self.directory / FAILURES_FOLDER).with_suffix(".txt")

    def _checkpoint(self, run: RunKey) -> Path:
        return self._checkpoints / run.folder(Path())

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def check(self, study: dict[str, Any], settings_of: SettingsOf = no_runs) -> dict[str, Any]:
        """Return the content of study.json; refuse settings that differ from those of the runs."""
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
        grown[MEASURED_LATER] = stored.get(MEASURED_LATER, {})
        check_names("method", grown["methods"])
        return {**study, **{name: all_ for name, all_ in grown.items() if all_}}

    def settings(self) -> dict[str, Any]:
        """Return what study.json holds."""
        stored = _read_study_settings(self._study)
        if stored is None:
            raise UserError(f"{self._study} is missing or damaged: {advice(self._study)}.")
        return stored

    def measured_later(self) -> tuple[list[str], list[str]]:
        """Return the shifts and the outliers that were added when the runs were finished."""
        stored = (_read_study_settings(self._study) or {}) if self.runs() else {}
        later = stored.get(MEASURED_LATER) or {}
        return list(later.get("shifts", ())), list(later.get("outliers", ()))

    def add_measured(self, shifts: Iterable[str], outliers: Iterable[str]) -> None:
        """Write to study.json that all runs were measured under further shifts and outliers."""
        stored = self.settings()
        later = dict(zip(("shifts", "outliers"), self.measured_later(), strict=True))
        for kind, names in (("shifts", shifts), ("outliers", outliers)):
            new = [name for name in names if name not in stored.get(kind, ())]
            if new:
                stored[kind] = [*stored.get(kind, ()), *new]
                later[kind] += new
        if any(later.values()):
            stored[MEASURED_LATER] = later
        write_text(self._study, to_json(stored))

    def measured_file(self, run: RunKey, name: str) -> Path:
        """Return the file of scores that wait to be added to those of a run."""
        return self._measured(run) / f"{file_name(name)}.parquet"

    def _measured(self, run: RunKey) -> Path:
        return run.folder(self.directory / MEASURED_FOLDER)

    def _unwritable(self, reason: str) -> UserError:
        return UserError(
            f"cannot write to the output folder {self.directory}: {reason}. Choose another one "
            "with --out."
        )

    @property
    def _study(self) -> Path:
        return self.directory / "study.json"

    def _stored(self) -> dict[str, Any] | None:
        """Return the settings in study.json that new runs must match.

        None if the file is damaged and only the runs have them; empty if there are no runs.
        """
        runs = self.runs()
        if not runs and not (self.directory / "reference").exists():
            return {}
        stored = _read_study_settings(self._study)
        if stored is None:
            if runs:
                return None
            raise UserError(
                f"{self._study} is missing or damaged, so the settings of the reference model "
                "beside it are unknown: restore the file, or choose another --out."
            )
        if "search" in stored:
            return stored  # a folder of trials: all settings must match
        return {**stored, "methods": self._bound(stored["methods"])}

    def _differences_of_runs(self, settings_of: SettingsOf) -> Iterator[str]:
        """Compare the settings of each run with those that it would have now."""
        for run in self.runs():
            old, new = read_json(run.folder(self.directory) / "settings.json"), settings_of(run)
            if new is None:
                raise UserError(
                    f"{self._study} is missing or damaged. The study that made the folder can "
                    f"write it again, but this study has no {run}: run that study, or choose "
                    "another --out."
                )
            yield from _differences(old["study"], new["study"])
            yield from _differences(old["settings"], new["settings"], f"methods.{run.method}.")

    def _bound(self, methods: dict[str, Any]) -> dict[str, Any]:
        """Return the methods whose settings must match: those with a run or a checkpoint."""
        made = {REFERENCE_METHOD, *(run.method for run in self.runs())}
        begun = {path.parent.name for path in self._checkpoints.glob("runs/*/*/seed-*")}
        return {
            name: table
            for name, table in methods.items()
            if name in made or file_name(name) in begun
        }


def _differences(old: dict[str, Any], new: dict[str, Any], place: str = "") -> Iterator[str]:
    old = renamed_settings(new, old)
    for key in sorted({*old, *new} - (DEVICE_SETTINGS if place else MAY_DIFFER)):
        name, both = f"{place}{key}", key in old and key in new
        if not both and (name in MAY_GROW or place.removesuffix(".") in MAY_GROW):
            continue
        if both and isinstance(old[key], dict) and isinstance(new[key], dict):
            stored = _with_later(key, old[key], new[key]) if place else old[key]
            yield from _differences(stored, new[key], f"{name}.")
        elif both and key == "method" and are_same_class(old[key], new[key]):
            continue  # their bases, which are stored too, make the difference
        elif old.get(key) != new.get(key):  # None equals a setting that did not exist
            there = json.dumps(old[key]) if key in old else "not set"
            here = json.dumps(new[key]) if key in new else "not set"
            yield f"{name}: {there} there, {here} now"


def _with_later(name: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the stored settings of a method with those that it has got since."""
    kind = METHODS.get(str(new.get("method", name)))
    return old if kind is None else with_later_settings(kind, renamed_settings(new, old), new)


def _key(settings: Path) -> tuple[str, str, int]:
    stored = read_json(settings)
    try:
        return stored["variant"], stored["method"], int(stored["seed"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{settings} does not say which run it is: {advice(settings)}.") from None


def _read_study_settings(file: Path) -> dict[str, Any] | None:
    """Return the settings that all runs of a folder share; None if they cannot be read."""
    if not is_whole(file):
        return None
    stored: dict[str, Any] = read_json(file)
    kinds = {"name": str, "shifts": list, "methods": dict}
    return stored if all(isinstance(stored.get(name), kinds[name]) for name in kinds) else None
