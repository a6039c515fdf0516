"""Checkpoints: a training that is killed goes on where it stopped, and ends as if undisturbed.

One file per training, safetensors with metadata as JSON in its head, replaced in one move: it is
either complete or the one before. On CPUs with one process the final weights are the same to the
bit.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falconcal.core.settings import renamed_settings, with_later_settings
from falconcal.errors import UserError
from falconcal.io.atomic import as_path
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.training.checkpoint_state import restore_state, stored_state
from falconcal.training.state import TrainingState

CHECKPOINT_FORMAT = 1


@dataclass
class Checkpoint:
    """The file of one training, and when it is next written."""

    file: Path
    every_epochs: int = 1
    every_minutes: float | None = None
    written: float = field(default_factory=time.monotonic)

    def due_after(self, epoch: int, last: bool) -> bool:
        return last or epoch % self.every_epochs == 0

    def due_now(self) -> bool:
        waited = time.monotonic() - self.written
        return self.every_minutes is not None and waited >= 60 * self.every_minutes


@dataclass
class _Folder:
    path: Path
    every_epochs: int
    every_minutes: float | None
    begun: int = 0


_folder: ContextVar[_Folder | None] = ContextVar("checkpoints", default=None)


@contextmanager
def checkpointing(
    folder: Path | str, *, every_epochs: int = 1, every_minutes: float | None = None
) -> Iterator[None]:
    """Write checkpoints of what is trained inside the ``with``, and go on from those that exist.

    Trainings are numbered in their order, so the members of an ensemble each have a file of their
    own. A training that is complete is not repeated: its records are given again.

    Args:
        folder: Where the files are written; it is made if it does not exist.
        every_epochs: A checkpoint is written after this many epochs, and after the last.
        every_minutes: And after a step when this many minutes have passed; None waits for epochs.

    Returns:
        A context manager.

    Raises:
        UserError: If an interval is too small; inside, if a file is damaged or belongs to a
            training with other settings.

    Example:
        >>> import tempfile
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> method = falconcal.L2Dropout(epochs=2)
        >>> model = falconcal.make_model("mlp", data)
        >>> with tempfile.TemporaryDirectory() as folder, falconcal.checkpointing(folder):
        ...     model = method.fit(model, data.train.batches(100), data.validation.batches())
    """
    folder = as_path(folder)
    if every_epochs < 1 or (every_minutes is not None and every_minutes < 0):
        raise UserError(
            f"expected checkpoints every 1 epoch or more, and every 0 minutes or more, got "
            f"{every_epochs} and {every_minutes}."
        )
    token = _folder.set(_Folder(folder, every_epochs, every_minutes))
    try:
        yield
    finally:
        _folder.reset(token)


def next_checkpoint() -> Checkpoint | None:
    """Return the checkpoint of the training that begins now, if any are written."""
    folder = _folder.get()
    if folder is None:
        return None
    folder.begun += 1
    file = folder.path / f"training-{folder.begun}.safetensors"
    return Checkpoint(file, folder.every_epochs, folder.every_minutes)


def save_checkpoint(checkpoint: Checkpoint, identity: dict[str, Any], state: TrainingState) -> None:
    """Write the state; ``identity`` is what the training that goes on from it must agree with."""
    tensors, stored = stored_state(state)
    metadata = {"format": CHECKPOINT_FORMAT, "identity": identity, **stored}
    write_tensors(checkpoint.file, tensors, metadata)
    checkpoint.written = time.monotonic()


def load_checkpoint(
    checkpoint: Checkpoint, identity: dict[str, Any], state: TrainingState, training: Any
) -> None:
    """Bring the state to where the checkpoint was written; without a file nothing changes."""
    if not checkpoint.file.exists():
        return
    tensors, metadata = read_tensors(checkpoint.file)
    _check_identity(checkpoint.file, metadata, identity, training)
    with _damage_named(checkpoint.file):
        restore_state(metadata, tensors, state)


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """Turn errors of loading an incomplete checkpoint into one that names the file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        reason = str(e).partition("\n")[0]
        raise UserError(
            f"cannot resume from the checkpoint {file}, it looks damaged ({type(e).__name__}: "
            f"{reason}): delete it to train from the start."
        ) from None


def _check_identity(
    file: Path, metadata: dict[str, Any], expected: dict[str, Any], training: Any
) -> None:
    if metadata.get("format") != CHECKPOINT_FORMAT:
        raise UserError(
            f"expected a checkpoint of format {CHECKPOINT_FORMAT}, got {metadata.get('format')} in "
            f"{file}, which another version of falconcal wrote: delete it to train from the start."
        )
    expected = json.loads(json.dumps(expected))
    found = _stored_identity(file, metadata, expected, training)
    for name in sorted({*expected, *found}):
        was, now = _stated(found.get(name)), _stated(expected.get(name))
        if was != now:
            was, now = _where_they_differ(was, now)
            raise UserError(
                f"the checkpoint {file} belongs to another training: {name} was {was!r}, "
                f"now {now!r}. Choose another folder, or delete it to train from the start."
            )


def _stored_identity(
    file: Path, metadata: dict[str, Any], expected: dict[str, Any], training: Any
) -> dict[str, Any]:
    """Return the identity in a checkpoint, its settings as this version names them."""
    found = metadata.get("identity")
    if not isinstance(found, dict):
        raise UserError(
            f"{file} does not say which training it belongs to: delete it to train from the start."
        )
    if not isinstance(found.get("settings"), dict):
        return found
    known = expected["settings"]
    stored = renamed_settings(known, found["settings"])
    return {**found, "settings": with_later_settings(training, stored, known)}


def _stated(value: Any) -> Any:
    """Return a table without values of None: older versions do not have every later setting."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if one is not None}


def _where_they_differ(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two values; of tables only the entries that differ, since networks have many."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return first, second
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    was, now = ({name: table.get(name) for name in names} for table in (first, second))
    return was, now
