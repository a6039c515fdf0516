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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic
import torch
from pydantic import NonNegativeInt
from torch import Tensor
from torch.optim import Optimizer

from falconcal.core.layout import match_weight_layout
from falconcal.core.settings import Count, renamed_settings, settings, with_later_settings
from falconcal.errors import UserError
from falconcal.io.atomic import as_path
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.training.criterion import CriterionResult
from falconcal.training.history import EpochRecord
from falconcal.training.selection import Candidate, EpochSelector
from falconcal.training.state import (
    RandomState,
    TrainingState,
    random_state,
    set_random_state,
)

CHECKPOINT_FORMAT = 1
SEVERAL = ("cuda", "sources")  # random states of which there may be any number


@settings
class StoredPosition:
    """How far a training is, as a checkpoint holds it."""

    epoch: Count
    steps: NonNegativeInt
    batches: NonNegativeInt
    counts: dict[str, Count]
    random: dict[str, dict[str, Any]]
    taken: NonNegativeInt = 0


RECORDS = pydantic.TypeAdapter(list[EpochRecord])
CRITERION_RESULT = pydantic.TypeAdapter(CriterionResult)


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
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, Any] = {"format": CHECKPOINT_FORMAT, "identity": identity}
    metadata["records"] = [asdict(record) for record in state.records]
    metadata["place"] = _position_metadata(state, tensors)
    metadata["optimizers"] = _optimizer_metadata(state.optimizers, tensors)
    metadata["keeper"] = _selector_metadata(state.selector, tensors)
    tensors.update(_prefixed("model", state.model.state_dict()))
    for name, network in state.auxiliary.items():
        tensors.update(_prefixed(f"companion/{name}", network.state_dict()))
    if state.average is not None:
        metadata["averaged"] = state.average.steps
        tensors.update(_prefixed("average", state.average.state))
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
        _restore(metadata, tensors, state)


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


def _restore(metadata: dict[str, Any], tensors: dict[str, Tensor], state: TrainingState) -> None:
    state.model.load_state_dict(_under("model", tensors))
    for name, network in state.auxiliary.items():
        network.load_state_dict(_under(f"companion/{name}", tensors))
    if state.average is not None:
        state.average.steps = metadata["averaged"]
        for name, value in _under("average", tensors).items():
            state.average.state[name].copy_(value)
    for number, optimizer in enumerate(state.optimizers):
        _restore_optimizer(optimizer, metadata["optimizers"][number], number, tensors)
    if state.selector is not None:
        _restore_selector(state.selector, metadata["keeper"], tensors)
    state.records[:] = RECORDS.validate_python(metadata["records"])
    _restore_position(state, StoredPosition(**metadata["place"]), tensors)
    _check_position(state)


def _check_position(state: TrainingState) -> None:
    """Refuse an epoch that does not follow the records, or random states that cannot be set."""
    done = len(state.records)
    if state.epoch != done + 1 or state.sums.keys() != state.counts.keys():
        raise ValueError(f"epoch {state.epoch} after {done} records")
    before = random_state()
    try:
        for kept in filter(None, (state.start, state.resumed)):
            set_random_state(kept, tuple(torch.Generator() for _ in kept["sources"]))
    finally:
        set_random_state(before)


def _position_metadata(state: TrainingState, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors.update(_prefixed("sum", state.sums))
    states = {"start": state.start, "now": random_state(state.generators)}
    return {
        "epoch": state.epoch,
        "steps": state.steps,
        "batches": state.batches,
        "counts": state.counts,
        "taken": state.taken,
        "random": {
            name: _random_metadata(name, one, tensors)
            for name, one in states.items()
            if one is not None
        },
    }


def _restore_position(
    state: TrainingState, stored: StoredPosition, tensors: dict[str, Tensor]
) -> None:
    state.epoch, state.steps, state.batches = stored.epoch, stored.steps, stored.batches
    state.taken = stored.taken
    state.counts, state.sums = dict(stored.counts), _under("sum", tensors)
    states = {name: _restored_random(name, one, tensors) for name, one in stored.random.items()}
    state.start, state.resumed = states.get("start"), states["now"]


def _random_metadata(name: str, state: RandomState, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors[f"random/{name}/torch"] = state["torch"]
    for kind in SEVERAL:
        for number, one in enumerate(state[kind]):
            tensors[f"random/{name}/{kind}/{number}"] = one
    counts = {kind: len(state[kind]) for kind in SEVERAL}
    return {"numpy": state["numpy"], "python": state["python"], **counts}


def _restored_random(
    name: str, metadata: dict[str, Any], tensors: dict[str, Tensor]
) -> RandomState:
    several = {
        kind: [tensors[f"random/{name}/{kind}/{number}"] for number in range(metadata.get(kind, 0))]
        for kind in SEVERAL
    }
    return {**metadata, **several, "torch": tensors[f"random/{name}/torch"]}


def _optimizer_metadata(optimizers: list[Optimizer], tensors: dict[str, Tensor]) -> list[Any]:
    metadata = []
    for number, optimizer in enumerate(optimizers):
        state = optimizer.state_dict()
        values: dict[str, dict[str, Any]] = {}
        for weight, entries in state["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{number}/{weight}/{name}"] = value
                else:
                    values.setdefault(str(weight), {})[name] = value
        metadata.append({"groups": state["param_groups"], "values": values})
    return metadata


def _restore_optimizer(
    optimizer: Optimizer, metadata: dict[str, Any], number: int, tensors: dict[str, Tensor]
) -> None:
    _check_groups(optimizer.state_dict()["param_groups"], metadata["groups"])
    state: dict[int, dict[str, Any]] = {
        int(weight): dict(values) for weight, values in metadata["values"].items()
    }
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for key, tensor in _under(f"optimizer/{number}", tensors).items():
        weight, name = key.split("/", 1)
        _check_state(weights[int(weight)], tensor)
        state.setdefault(int(weight), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": metadata["groups"]})
    match_weight_layout(optimizer)


def _check_groups(own: list[dict[str, Any]], stored: list[dict[str, Any]]) -> None:
    """Refuse groups of weights that differ in more than numbers, such as learning rates."""
    for group, other in zip(own, stored, strict=True):
        for name, value in group.items():
            free = isinstance(value, int | float) and not isinstance(value, bool)
            number = isinstance(other[name], int | float) and not isinstance(other[name], bool)
            plain = list(value) if isinstance(value, tuple) else value
            if not (free and number) and plain != other[name]:
                raise ValueError(f"{name} was {other[name]!r}, now {value!r}")


def _check_state(weight: Tensor, tensor: Tensor) -> None:
    """Refuse a tensor that cannot be what an optimiser remembers of a weight."""
    if tensor.ndim not in (0, weight.ndim) or tensor.numel() > weight.numel():
        raise ValueError(f"a state of shape {tuple(tensor.shape)} for {tuple(weight.shape)}")


def _selector_metadata(
    selector: EpochSelector | None, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    if selector is None:
        return {}
    for number, candidate in enumerate(selector.candidates):
        tensors.update(_prefixed(f"candidate/{number}", candidate.weights))
    held = [
        {"epoch": candidate.epoch, "judgement": asdict(candidate.result)}
        for candidate in selector.candidates
    ]
    return {"required": selector.required.accuracy, "candidates": held}


def _restore_selector(
    selector: EpochSelector, metadata: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    selector.required = replace(selector.required, accuracy=float(metadata["required"]))
    selector.candidates = [
        Candidate(
            int(held["epoch"]),
            CRITERION_RESULT.validate_python(held["judgement"]),
            _under(f"candidate/{number}", tensors),
        )
        for number, held in enumerate(metadata["candidates"])
    ]


def _check_identity(
    file: Path, metadata: dict[str, Any], expected: dict[str, Any], training: Any
) -> None:
    if metadata.get("format") != CHECKPOINT_FORMAT:
        raise UserError(
            f"expected a checkpoint of format {CHECKPOINT_FORMAT}, got {metadata.get('format')} in "
            f"{file}, which another version of falconcal wrote: delete it to train from the start."
        )
    expected = json.loads(json.dumps(expected))
    found = metadata.get("identity")
    if not isinstance(found, dict):
        raise UserError(
            f"{file} does not say which training it belongs to: delete it to train from the start."
        )
    if isinstance(found.get("settings"), dict):
        known = expected["settings"]
        stored = renamed_settings(known, found["settings"])
        found = {**found, "settings": with_later_settings(training, stored, known)}
    for name in sorted({*expected, *found}):
        was, now = _stated(found.get(name)), _stated(expected.get(name))
        if was != now:
            was, now = _where_they_differ(was, now)
            raise UserError(
                f"the checkpoint {file} belongs to another training: {name} was {was!r}, "
                f"now {now!r}. Choose another folder, or delete it to train from the start."
            )


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


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
