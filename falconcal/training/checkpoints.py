"""Checkpoints: a training that is killed goes on where it stood, and ends as if undisturbed.

One file a training, safetensors with metadata as JSON in its head, replaced in one move: it is
there whole or it is the one before. On CPUs with one process the final weights are the same to the
bit.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pydantic
import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn
from torch.optim import Optimizer

from falconcal.core.settings import Count, settings
from falconcal.errors import UserError
from falconcal.io.atomic import as_path
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.training.averaging import Average
from falconcal.training.context import lay_out_state
from falconcal.training.history import EpochRecord
from falconcal.training.selection import Candidate, CriterionResult, EpochSelector
from falconcal.training.state import (
    RandomState,
    TrainingPosition,
    random_state,
    set_random_state,
)

FORMAT = 1
SEVERAL = ("cuda", "sources")  # random states of which there may be any number


@settings
class PlaceFacts:
    """How far a training is, as a checkpoint says it."""

    epoch: Count
    steps: NonNegativeInt
    batches: NonNegativeInt
    counts: dict[str, Count]
    random: dict[str, dict[str, Any]]


RECORDS = pydantic.TypeAdapter(list[EpochRecord])
JUDGEMENT = pydantic.TypeAdapter(CriterionResult)


@dataclass
class Checkpoint:
    """The file of one training, and when it is due."""

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

    Trainings are numbered in their order, so the members of an ensemble each have their own.
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


@dataclass
class Trained:
    """All that changes while a model is trained."""

    model: nn.Module
    optimizers: list[Optimizer]
    keeper: EpochSelector | None
    records: list[EpochRecord]
    auxiliary: dict[str, nn.Module]  # trained beside the model
    identity: dict[str, Any]  # settings and shapes: what a checkpoint must agree with
    average: Average | None = None  # of its weights


def save_checkpoint(checkpoint: Checkpoint, trained: Trained, place: TrainingPosition) -> None:
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, Any] = {"format": FORMAT, "identity": trained.identity}
    metadata["records"] = [asdict(record) for record in trained.records]
    metadata["place"] = _place_metadata(place, tensors)
    metadata["optimizers"] = _optimizer_metadata(trained.optimizers, tensors)
    metadata["keeper"] = _keeper_metadata(trained.keeper, tensors)
    tensors.update(_prefixed("model", trained.model.state_dict()))
    for name, companion in trained.auxiliary.items():
        tensors.update(_prefixed(f"companion/{name}", companion.state_dict()))
    if trained.average is not None:
        metadata["averaged"] = trained.average.steps
        tensors.update(_prefixed("average", trained.average.state))
    write_tensors(checkpoint.file, tensors, metadata)
    checkpoint.written = time.monotonic()


def load_checkpoint(checkpoint: Checkpoint, trained: Trained) -> TrainingPosition | None:
    """Bring all to where the checkpoint stood and return the place, or None without one."""
    if not checkpoint.file.exists():
        return None
    tensors, metadata = read_tensors(checkpoint.file)
    _check_identity(checkpoint.file, metadata, trained.identity)
    with _damage_named(checkpoint.file):
        return _restored(metadata, tensors, trained)


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """Turn what a checkpoint that is not whole makes of the loading into our words."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        reason = str(e).partition("\n")[0]
        raise UserError(
            f"cannot go on from the checkpoint {file}, it looks damaged ({type(e).__name__}: "
            f"{reason}): delete it to train from the start."
        ) from None


def _restored(
    metadata: dict[str, Any], tensors: dict[str, Tensor], trained: Trained
) -> TrainingPosition:
    trained.model.load_state_dict(_under("model", tensors))
    for name, companion in trained.auxiliary.items():
        companion.load_state_dict(_under(f"companion/{name}", tensors))
    if trained.average is not None:
        trained.average.steps = metadata["averaged"]
        for name, value in _under("average", tensors).items():
            trained.average.state[name].copy_(value)
    for number, optimizer in enumerate(trained.optimizers):
        _restore_optimizer(optimizer, metadata["optimizers"][number], number, tensors)
    if trained.keeper is not None:
        _restore_keeper(trained.keeper, metadata["keeper"], tensors)
    trained.records[:] = RECORDS.validate_python(metadata["records"])
    place = _restored_place(PlaceFacts(**metadata["place"]), tensors)
    _check_place(place, len(trained.records))
    return place


def _check_place(place: TrainingPosition, done: int) -> None:
    """Refuse a place that does not follow the records, or random states that cannot be set."""
    if place.epoch != done + 1 or place.sums.keys() != place.counts.keys():
        raise ValueError(f"epoch {place.epoch} after {done} records")
    before = random_state()
    try:
        for state in filter(None, (place.start, place.resumed)):
            set_random_state(state, tuple(torch.Generator() for _ in state["sources"]))
    finally:
        set_random_state(before)


def _place_metadata(place: TrainingPosition, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors.update(_prefixed("sum", place.sums))
    states = {"start": place.start, "now": random_state(place.sources)}
    return {
        "epoch": place.epoch,
        "steps": place.steps,
        "batches": place.batches,
        "counts": place.counts,
        "random": {
            name: _random_metadata(name, state, tensors)
            for name, state in states.items()
            if state is not None
        },
    }


def _restored_place(metadata: PlaceFacts, tensors: dict[str, Tensor]) -> TrainingPosition:
    place = TrainingPosition(metadata.epoch)
    place.steps, place.batches, place.counts = (
        metadata.steps,
        metadata.batches,
        dict(metadata.counts),
    )
    place.sums = _under("sum", tensors)
    states = {
        name: _restored_random(name, state, tensors) for name, state in metadata.random.items()
    }
    place.start, place.resumed = states.get("start"), states["now"]
    return place


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
    lay_out_state(optimizer)


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


def _keeper_metadata(keeper: EpochSelector | None, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if keeper is None:
        return {}
    for number, candidate in enumerate(keeper.candidates):
        tensors.update(_prefixed(f"candidate/{number}", candidate.weights))
    held = [
        {"epoch": candidate.epoch, "judgement": asdict(candidate.judgement)}
        for candidate in keeper.candidates
    ]
    return {"required": keeper.required, "candidates": held}


def _restore_keeper(
    keeper: EpochSelector, metadata: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    keeper.required = float(metadata["required"])
    keeper.candidates = [
        Candidate(
            int(held["epoch"]),
            JUDGEMENT.validate_python(held["judgement"]),
            _under(f"candidate/{number}", tensors),
        )
        for number, held in enumerate(metadata["candidates"])
    ]


def _check_identity(file: Path, metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"expected a checkpoint of format {FORMAT}, got {metadata.get('format')} in {file}: it "
            "is of another version of falconcal; delete it to train from the start."
        )
    expected = json.loads(json.dumps(expected))
    found = metadata.get("identity")
    if not isinstance(found, dict):
        raise UserError(f"{file} does not say of which training it is: delete it to start anew.")
    for name in sorted({*expected, *found}):
        was, now = _stated(found.get(name)), _stated(expected.get(name))
        if was != now:
            was, now = _where_they_differ(was, now)
            raise UserError(
                f"the checkpoint {file} is of another training: {name} was {was!r}, "
                f"now {now!r}. Choose another folder, or delete it to start anew."
            )


def _stated(value: Any) -> Any:
    """Return a table without what is None: a setting of a later version is not in an older one."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if one is not None}


def _where_they_differ(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two values, of tables only the entries that differ: a network has many weights."""
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
