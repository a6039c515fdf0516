"""Directions in which FALCON's calibration step perturbs a batch.

The paper has only the adversarial one. Each takes a step of training and an epsilon, and returns
the perturbed batch as it enters the model: inputs, or the embeddings of tokens. Any shift of the
library can be a direction too, its strength drawn from its own levels instead of the epsilons.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import BoundModel, main_of, with_main
from falconcal.core.perturbation_point import input_gradient
from falconcal.data import Bounds
from falconcal.errors import UsageError, did_you_mean
from falconcal.recalibration.unit_range import UnitRange
from falconcal.shifts import SHIFTS, Shift, find_computed_shift
from falconcal.shifts.fgsm import perturb
from falconcal.training import Step


def perturb_batch(step: Step, direction: Tensor, epsilon: float) -> Tensor:
    """Return what enters the model, moved by a part of its range or an embedding's deviation."""
    point, bounds = step.point().detach(), _bounds(step)
    return perturb(point, direction, epsilon if bounds else epsilon * epsilon_scale(step), bounds)


def epsilon_scale(step: Step) -> float | Tensor:
    """Return what an epsilon of 1 moves by: the input range, or an embedding's deviation."""
    bounds, point = _bounds(step), step.point()
    if bounds is None:
        return step.perturbation_point.epsilon_unit(point)
    return bounds.range_like(point)


def _bounds(step: Step) -> Bounds | None:
    """Return the bounds of what enters the model; embeddings have none."""
    return step.bounds if step.perturbation_point.moves_inputs else None


def adversarial(step: Step, epsilon: float) -> Tensor:
    """Move by the signs of the gradient of the loss with respect to the inputs.

    ``exact`` computes the gradient of the cross-entropy after the clean step and in inference mode,
    as the authors' code does. ``shared`` takes what the clean step's backward pass left, in the
    paper's order of events and for the cost of one input gradient.
    """
    gradient = step.input_gradient
    if gradient is None:
        gradient = input_gradient(step.unwrapped, step.inputs, step.labels, step.perturbation_point)
    # a step that overflows in half precision leaves NaN
    return perturb_batch(step, gradient.nan_to_num().sign(), epsilon)


def random_sign(step: Step, epsilon: float) -> Tensor:
    return perturb_batch(step, _noise(step).sign(), epsilon)


def random_normal(step: Step, epsilon: float) -> Tensor:
    return perturb_batch(step, _noise(step), epsilon)


def _noise(step: Step) -> Tensor:
    point = step.point()
    return torch.randn(point.shape, generator=step.random).to(point)


def mixup(step: Step, epsilon: float) -> Tensor:
    """Mix in the batch's next example with the weight epsilon."""
    point = step.point().detach()
    return perturb_batch(step, (point.roll(1, 0) - point) / epsilon_scale(step), epsilon)


def erase(step: Step, epsilon: float) -> Tensor:
    """Blank a box of each example, or a run of its positions; its area is twice epsilon."""
    point, bounds = step.point().detach(), _bounds(step)
    blank = 0.0 if bounds is None else bounds.low
    return point.masked_fill(boxes(point.shape, 2 * epsilon, step.random).to(point.device), blank)


def boxes(shape: torch.Size, fraction: float, random: torch.Generator | None) -> Tensor:
    """Return a mask of one random box per example: of rows and columns, or of positions."""
    axes = (2, 3) if len(shape) == 4 else (1,)
    inside = torch.ones([shape[0]] + [1] * (len(shape) - 1), dtype=torch.bool)
    for axis in axes:
        side = shape[axis] * fraction ** (1 / len(axes))
        start = torch.rand(shape[0], 1, generator=random) * (shape[axis] - side)  # (N, 1)
        within = torch.arange(shape[axis]) + 0.5 - start  # (N, length)
        along = [shape[0]] + [shape[one] if one == axis else 1 for one in range(1, len(shape))]
        inside = inside & ((within >= 0) & (within < side)).view(along)
    return inside  # (N, 1, H, W), or (N, L, 1), or (N, F)


DIRECTIONS: dict[str, Callable[[Step, float], Tensor]] = {
    "adversarial": adversarial,
    "random_sign": random_sign,
    "gaussian": random_normal,
    "mixup": mixup,
    "erase": erase,
}


def check_direction(name: str) -> str:
    """Return the name of a direction: one of the table, or a shift that needs no more than a batch.

    Raises:
        ValueError: If there is no such direction or shift, with the nearest names.
    """
    if name in DIRECTIONS:
        return name
    try:
        shift = find_computed_shift(name)
    except UsageError:
        known = [*DIRECTIONS, *SHIFTS]
        raise ValueError(f"has no direction {name!r}. {did_you_mean(name, known)}") from None
    if set(shift.needs) & {"tokens", "texts"}:
        raise ValueError(f"cannot be {name!r}, which needs more than a batch in training")
    return name


def shift_directions(names: Iterable[str]) -> list[str]:
    """Return those of the directions that are shifts."""
    return [name for name in names if name not in DIRECTIONS]


def shift_batch(step: Step, name: str, per_example: bool) -> Tensor:
    """Return the batch under a shift, at a level drawn for the batch or for each example.

    Images of another range are shifted as pixels from 0 to 1; tokens are embedded after it.
    """
    shift = find_computed_shift(name)
    before, whole = step.processes.span(step.labels)
    seed = int(torch.randint(2**31, (), generator=step.random))
    drawn = torch.randint(1, len(shift.strengths), (whole,), generator=step.random)
    levels = drawn[before : before + len(step.labels)] if per_example else drawn[:1]
    examples = torch.arange(before, before + len(step.labels))
    if not per_example:
        return _shifted(step, shift, int(levels), seed, slice(None), examples)
    point = step.point().detach().clone()
    for level in set(levels.tolist()):
        rows = (levels == level).to(point.device)
        point[rows] = _shifted(step, shift, level, seed, rows, examples)
    return point


def _shifted(
    step: Step, shift: Shift, level: int, seed: int, rows: Tensor | slice, examples: Tensor
) -> Tensor:
    """Return some rows of the batch at a level, as they enter the model."""
    inputs, bounds = main_of(step.inputs).detach(), step.bounds
    scale = None
    if inputs.ndim == 4 and bounds is not None and "model" not in shift.needs:
        scale = UnitRange(*bounds.ends)
        inputs, bounds = scale.to_unit(inputs), Bounds(0.0, 1.0)
    moved = shift.at(
        inputs[rows],
        level,
        seed=seed,
        examples=examples.to(inputs.device)[rows],
        model=_model_of_rows(step, rows),
        labels=step.labels[rows],
        bounds=bounds,
        others=inputs,
    )
    if scale is not None:
        return scale.from_unit(moved.clamp(0, 1))
    return step.perturbation_point.point(with_main(step.inputs[rows], moved)).detach()


def _model_of_rows(step: Step, rows: Tensor | slice) -> nn.Module:
    """Return the model as a function of the one input that is shifted."""
    if isinstance(step.inputs, Tensor):
        return step.unwrapped
    return BoundModel(step.unwrapped, step.inputs[rows])
