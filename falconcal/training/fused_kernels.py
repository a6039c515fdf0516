"""Steps of fused optimisers without what torch does around their kernel.

On the small network of a table the surroundings (a profiler's record, hooks, grouping by device)
take three quarters of an optimiser's step, and that is a sixth of the whole step. The kernel is the
same, and so are the bits. torch keeps these names private: where one of them is missing, the
optimiser takes its own step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from torch.optim import optimizer as torch_optimizer


def take_step(optimizer: Any) -> None:
    """Step by the gradients, by the kernel alone where nothing else would happen."""
    kernel = KERNELS.get(type(optimizer))
    if kernel is None or not _alone(optimizer) or not _alike(optimizer.param_groups[0]["params"]):
        optimizer.step()
        return
    with torch.no_grad():
        if not kernel(optimizer, optimizer.param_groups[0]["params"]):
            optimizer.step()


def forget_gradients(optimizer: Any) -> None:
    """Drop the gradients of all weights."""
    if type(optimizer) not in KERNELS:
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = None


def _alone(optimizer: Optimizer) -> bool:
    """Return whether there is one group of weights, and neither hooks nor a schedule wait.

    Hooks that are not where torch keeps them today count as there.
    """
    hooks = [getattr(optimizer, f"_optimizer_step_{when}_hooks", True) for when in ("pre", "post")]
    hooks += [
        getattr(torch_optimizer, f"_global_optimizer_{when}_hooks", True)
        for when in ("pre", "post")
    ]
    counted = "step" in vars(optimizer)  # a schedule counts the calls
    return len(optimizer.param_groups) == 1 and not counted and not any(hooks)


def _alike(weights: list[Tensor]) -> bool:
    """Return whether all weights have a gradient and are of one type on one device."""
    kinds = {(weight.device, weight.dtype) for weight in weights}
    return len(kinds) == 1 and all(weight.grad is not None for weight in weights)


def _adam(optimizer: Adam, weights: list[Tensor]) -> bool:
    """Take Adam's step, unless its settings ask for more; the first step makes its state."""
    group, state = optimizer.param_groups[0], optimizer.state
    usual = group["fused"] and not group["amsgrad"] and not group["differentiable"]
    if not usual or len(state) < len(weights) or isinstance(group["lr"], Tensor):
        return False
    states = [state[weight] for weight in weights]
    steps = [one["step"] for one in states]
    torch._foreach_add_(steps, 1)
    torch._fused_adam_(
        weights,
        [weight.grad for weight in weights],  # type: ignore[misc]
        [one["exp_avg"] for one in states],
        [one["exp_avg_sq"] for one in states],
        [],
        steps,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )
    return True


def _sgd(optimizer: SGD, weights: list[Tensor]) -> bool:
    """Take the step of SGD without momentum."""
    group = optimizer.param_groups[0]
    if not group["fused"] or group["momentum"] != 0 or isinstance(group["lr"], Tensor):
        return False
    torch._fused_sgd_(
        weights,
        [weight.grad for weight in weights],  # type: ignore[misc]
        [],
        weight_decay=group["weight_decay"],
        momentum=0.0,
        lr=group["lr"],
        dampening=group["dampening"],
        nesterov=False,
        maximize=group["maximize"],
        is_first_step=False,
    )
    return True


Kernel = Callable[[Any, list[Tensor]], bool]


def kernels_of(functions: Any) -> dict[type, Kernel]:
    """Return the kernels by optimiser, or none where torch has one of the functions no more."""
    needed = ("_foreach_add_", "_fused_adam_", "_fused_sgd_")
    return {Adam: _adam, SGD: _sgd} if all(hasattr(functions, name) for name in needed) else {}


KERNELS = kernels_of(torch)
