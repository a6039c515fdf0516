"""Stages: the places in a network whose outputs are compared with those of training examples.

Without a list of names the stages are found by one pass with hooks: the input, what the network's
blocks give out (of plain layers the last of those that keep the shape), what its last layer is
given, and the logits. A map or a sequence can be seen in two ways: pooled, which says what is
there, and on a coarse grid, which says where it is; the input is seen on a grid.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.core.model_inputs import Inputs, call_model, main_of
from falconcal.errors import UserError, unknown_name_error

INPUT, LOGITS = "input", "logits"
BEFORE = "before "  # in front of a layer's name: what the layer is given
INPUT_GRID, STAGE_GRID = 7, 4
MOST_STAGES = 5  # stages between the input and the logits
FEWEST_STAGES = 5  # below which blocks are opened and their parts looked at

Outputs = dict[str, Tensor]
ViewKind = Literal["grid", "pooled", "both"]


def observe(model: nn.Module, inputs: Inputs, stages: Sequence[str]) -> tuple[Tensor, Outputs]:
    """Return the logits and what each stage gave out in the same pass, by its name."""
    outputs: Outputs = {}
    with ExitStack() as hooks:
        for stage in stages:
            if stage not in (INPUT, LOGITS):
                hooks.enter_context(_noting(model, stage, outputs))
        logits = call_model(model, inputs)
    seen = {**outputs, LOGITS: logits}
    if INPUT in stages:
        seen[INPUT] = main_of(inputs)
    return logits, {stage: seen[stage] for stage in stages if stage in seen}


@contextmanager
def _noting(model: nn.Module, stage: str, outputs: Outputs) -> Iterator[None]:
    """Keep what a layer gives out, or is given, the first time that it is called."""

    def after(_: nn.Module, __: Any, output: Any) -> None:
        _keep(stage, output, outputs)

    def before(_: nn.Module, given: tuple[Any, ...]) -> None:
        _keep(stage, given, outputs)

    layer = _layer(model, stage.removeprefix(BEFORE))
    try:
        if stage.startswith(BEFORE):
            handle = layer.register_forward_pre_hook(before)
        else:
            handle = layer.register_forward_hook(after)
    except RuntimeError as error:  # a scripted layer takes none
        raise _closed_error(f"the layer {stage.removeprefix(BEFORE)!r}", layer, error) from None
    try:
        yield
    finally:
        handle.remove()


def _closed_error(what: str, module: nn.Module, error: RuntimeError) -> UserError:
    return UserError(
        f"{what}, a {type(module).__name__}, cannot be looked into: {error}. Give the model as a "
        "plain module, or a calibrator that needs the logits alone, such as temperature."
    )


def _keep(stage: str, value: Any, outputs: Outputs) -> None:
    while isinstance(value, tuple | list) and value:
        value = value[0]  # of a recurrent layer the outputs, without its last state
    if isinstance(value, Tensor) and stage not in outputs:
        outputs[stage] = value.detach()


def _layer(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise unknown_name_error("stage", name, [one for one, _ in model.named_modules()]) from None
    except RuntimeError as error:  # a scripted network gives no layer by its name
        raise _closed_error("the network", model, error) from None


def find_stages(model: nn.Module, inputs: Inputs) -> tuple[str, ...]:
    """Return the stages of a network on such inputs, in the order of its pass."""
    calls = _calls(model, inputs)
    blocks = _opened(model, calls)
    inner = _merged(model, blocks, calls)
    last = next((name for name in reversed(calls) if _is_linear(model, name)), None)
    if last is not None:
        inner = [name for name in inner if _position(calls, name) < _position(calls, last)]
        inner = _without_twin(model, inputs, inner, BEFORE + last)
    penultimate = [] if last is None else [BEFORE + last]
    # of several inputs a wrapped model can find the main one again, but not one that was named
    found = isinstance(inputs, Tensor) or inputs.perturb is None
    first = [INPUT] if found and inputs.is_floating_point() else []
    return (*first, *_thinned(inner, MOST_STAGES - 1), *penultimate, LOGITS)


def _without_twin(
    model: nn.Module, inputs: Inputs, inner: list[str], penultimate: str
) -> list[str]:
    """Leave out the last stage where it is what the last layer is given: flat, of that width."""
    if not inner:
        return inner
    with torch.no_grad():
        _, outputs = observe(model, inputs, (inner[-1], penultimate))
    same = len(outputs) == 2 and outputs[inner[-1]].shape == outputs[penultimate].shape
    return inner[:-1] if same else inner


def _calls(model: nn.Module, inputs: Inputs) -> dict[str, torch.Size]:
    """Return the shape that each layer gives out, in the order in which layers end.

    Only layers that give one row per example count: what repeats or splits the batch has others.
    """
    names = {module: name for name, module in reversed(list(model.named_modules())) if name}
    outputs: Outputs = {}
    with ExitStack() as hooks, torch.no_grad():
        for name in names.values():
            hooks.enter_context(_noting(model, name, outputs))
        call_model(model, inputs)
    return {
        name: output.shape
        for name, output in outputs.items()
        if output.is_floating_point() and output.ndim >= 2 and len(output) == len(inputs)
    }


def _opened(model: nn.Module, calls: dict[str, torch.Size]) -> list[str]:
    """Return the blocks of the network: the largest is opened until there are enough of them."""
    blocks = _children(model, "", calls)
    while len(_merged(model, blocks, calls)) < FEWEST_STAGES:
        largest = max(
            (name for name in blocks if _children(model, name, calls)),
            key=lambda name: _size(model, name),
            default=None,
        )
        if largest is None:
            break
        place = blocks.index(largest)
        blocks[place : place + 1] = _children(model, largest, calls)
    return blocks


def _children(model: nn.Module, name: str, calls: dict[str, torch.Size]) -> list[str]:
    """Return the parts of a block that are called, containers without a call opened, in order."""
    prefix = f"{name}." if name else ""
    found: list[str] = []
    for child, _ in _layer(model, name).named_children():
        own = prefix + child
        found += [own] if own in calls else _children(model, own, calls)
    return sorted(found, key=lambda one: _position(calls, one))


def _position(calls: dict[str, torch.Size], name: str) -> int:
    return list(calls).index(name)


def _size(model: nn.Module, name: str) -> int:
    return sum(weight.numel() for weight in _layer(model, name).parameters())


def _merged(model: nn.Module, names: list[str], calls: dict[str, torch.Size]) -> list[str]:
    """Return the blocks, and of plain layers in a row that keep the shape the last.

    What only lays values out anew, as a layer that flattens maps, is left out.
    """
    kept: list[str] = []
    for name in names:
        plain = not any(True for _ in _layer(model, name).children())
        before = calls[kept[-1]] if kept and plain else None
        if before is None or calls[name].numel() != before.numel():
            kept.append(name)
        elif calls[name] == before:
            kept[-1] = name
    return kept


def _is_linear(model: nn.Module, name: str) -> bool:
    return isinstance(_layer(model, name), nn.Linear)


def _thinned(names: list[str], most: int) -> list[str]:
    if len(names) <= most:
        return names
    places = torch.linspace(0, len(names) - 1, most).round().long().tolist()
    return [names[place] for place in places]


def views(outputs: Outputs, kind: ViewKind) -> dict[str, Tensor]:
    """Return each stage as vectors (N, D) by name, maps and sequences as the kind says."""
    found: dict[str, Tensor] = {}
    for stage, output in outputs.items():
        output = output.float()
        if stage == INPUT:
            found[stage] = _pooled(output, INPUT_GRID).flatten(1)
        elif output.ndim == 2:
            found[stage] = output
        elif output.ndim in (3, 4):
            if kind != "grid":
                found[f"{stage} pooled"] = _pooled(output, 1).flatten(1)
            if kind != "pooled":
                found[f"{stage} grid"] = _pooled(output, STAGE_GRID).flatten(1)
    return found


def _pooled(output: Tensor, size: int) -> Tensor:
    """Return means on a grid: over height and width of maps, over time of sequences."""
    if output.ndim == 4:
        return functional.adaptive_avg_pool2d(output, size)
    if output.ndim == 3:
        return functional.adaptive_avg_pool1d(output.transpose(1, 2), size)
    return output


def check_stages(model: nn.Module, inputs: Inputs, stages: Sequence[str]) -> None:
    """Refuse stages that the network does not have, or that give no row per example."""
    with torch.no_grad():
        _, outputs = observe(model, inputs, stages)
    for stage in stages:
        output = outputs.get(stage)
        if output is None or len(output) != len(inputs) or output.ndim not in (2, 3, 4):
            got = "no tensor" if output is None else f"shape {tuple(output.shape)}"
            raise UserError(
                f"expected the stage {stage!r} to give one row per example, ({len(inputs)}, ...), "
                f"got {got}: name another layer, or leave stages out to have them found."
            )
