"""Borrowing a module, or the random numbers, and giving them back as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from falconcal.errors import UserError, described


def check_module(model: object) -> None:
    """Refuse what is not a model."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"expected a model, a torch.nn.Module, got {described(model)}: make one, or wrap a "
            "function of tensors in a module whose forward calls it."
        )


@contextmanager
def explained(inputs: Tensor) -> Iterator[None]:
    """Say which inputs a model failed on; its own complaint is kept as the cause."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"the model failed on inputs of shape {tuple(inputs.shape)} and {inputs.dtype}: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}. Is it made for such "
            "inputs?"
        ) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a module into inference mode, then give each of its parts its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Hold the weights fixed in passes inside; a gradient goes through to what is put in."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_()


@contextmanager
def quick_zeros() -> Iterator[None]:
    """Take values below 1e-38, the denormal ones, for zero inside: processors are slow with them.

    L2 shrinks weights to such values, a third of an evidential LeNet on MNIST.
    It holds for the thread that calls, and for those that it starts.
    """
    before = _takes_denormals_for_zero()
    torch.set_flush_denormal(True)  # does nothing where a processor cannot
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _takes_denormals_for_zero() -> bool:
    return bool(torch.full((1,), 1e-40) * 1 == 0)


@contextmanager
def seeded_random(seed: int) -> Iterator[None]:
    """Seed torch inside the ``with``; outside, the caller's random state goes on undisturbed."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def typed(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return floating-point inputs in the type of the model's weights, others as they are."""
    weight = next(model.parameters(), torch.empty(0))
    both = inputs.is_floating_point() and weight.is_floating_point()
    return inputs.to(weight.dtype) if both else inputs


def placed(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return inputs where the model's weights are, floating-point ones in the weights' own type.

    Grey images are laid out with channels last, which no model can tell but by its speed.
    """
    weight = next(model.parameters(), torch.empty(0))
    if inputs.ndim == 4 and inputs.shape[1] == 1:
        inputs = channels_last(inputs)
    return typed(model, inputs.to(weight.device))


def channels_last(images: Tensor) -> Tensor:
    """Return images (N, C, H, W) with channels last in memory: convolutions on CPUs run faster."""
    images = images.contiguous(memory_format=torch.channels_last)
    if images.shape[1] == 1:  # fits both layouts, and is taken for the other but for its stride
        height, width = images.shape[2:]
        images = images.as_strided(images.shape, (height * width, 1, width, 1))
    return images


def resting_parts(model: nn.Module) -> list[nn.Module]:
    """Return the parts that are held in inference mode though the model is not."""
    return [part for part in model.modules() if not part.training] if model.training else []


def rest(model: nn.Module, parts: list[nn.Module]) -> None:
    """Put a model into training mode, but not the parts that rest."""
    model.train()
    for part in parts:
        part.training = False
