"""The state of a training as a checkpoint holds it: tensors by name, and metadata as JSON."""

from dataclasses import asdict, replace
from typing import Any

import pydantic
import torch
from pydantic import NonNegativeInt
from torch import Tensor
from torch.optim import Optimizer

from falconcal.core.layout import match_weight_layout
from falconcal.core.settings import Count, settings
from falconcal.training.criterion import CriterionResult
from falconcal.training.history import EpochRecord
from falconcal.training.selection import Candidate, EpochSelector
from falconcal.training.state import RandomState, TrainingState, random_state, set_random_state

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


def stored_state(state: TrainingState) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a state as tensors, and as metadata that can be written as JSON."""
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, Any] = {"records": [asdict(record) for record in state.records]}
    metadata["place"] = _position_metadata(state, tensors)
    metadata["optimizers"] = _optimizer_metadata(state.optimizers, tensors)
    metadata["keeper"] = _selector_metadata(state.selector, tensors)
    tensors.update(_prefixed("model", state.model.state_dict()))
    for name, network in state.auxiliary.items():
        tensors.update(_prefixed(f"companion/{name}", network.state_dict()))
    if state.average is not None:
        metadata["averaged"] = state.average.steps
        tensors.update(_prefixed("average", state.average.state))
    return tensors, metadata


def restore_state(
    metadata: dict[str, Any], tensors: dict[str, Tensor], state: TrainingState
) -> None:
    """Bring a state to what ``stored_state`` returned."""
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


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
