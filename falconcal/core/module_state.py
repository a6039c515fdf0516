"""Mode, weights, device and precision of a module, changed for a while and restored."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import Inputs, InputsT, each_tensor, map_inputs
from falconcal.errors import UserError, described


def check_module(model: object) -> None:
    """Refuse what is not a model."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"expected a model, a torch.nn.Module, got {described(model)}: make one, or wrap a "
            "function of tensors in a module whose forward calls it."
        )


def without_wrapper(model: nn.Module) -> nn.Module:
    """Return the model inside what ``load`` gave; any other model is its own."""
    inner: nn.Module = getattr(model, "bare_model", model)
    return inner


@contextmanager
def explain_errors(words: Callable[[Exception], str]) -> Iterator[None]:
    """Turn an error of code that was given to us into ours, with these words; it is the cause."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise UserError(words(error)) from error


def explain_model_errors(inputs: Inputs) -> AbstractContextManager[None]:
    """Turn an error of the model into ours, which names the inputs."""
    return explain_errors(
        lambda error: (
            f"the model failed on inputs of {_shapes(inputs)}: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}. Is it made for such "
            "inputs?"
        )
    )


def _shapes(inputs: Inputs) -> str:
    found = [f"shape {tuple(one.shape)} and {one.dtype}" for one in each_tensor(inputs)]
    return ", ".join(found)


@contextmanager
def inference_mode_of(model: nn.Module) -> Iterator[None]:
    """Put a module into inference mode, then give each of its parts its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def frozen_weights(model: nn.Module) -> Iterator[None]:
    """Freeze the weights inside; gradients still flow to the inputs."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_()


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat values below 1e-38, denormal ones, as zero inside: processors are slow with them.

    L2 shrinks weights to such values, a third of an evidential LeNet on MNIST.
    It holds for the calling thread, and for those that it starts.
    """
    before = _takes_denormals_for_zero()
    torch.set_flush_denormal(True)  # does nothing where a processor cannot
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _takes_denormals_for_zero() -> bool:
    return bool(torch.full((1,), 1e-40) * 1 == 0)


def to_weights_dtype(model: nn.Module, inputs: InputsT) -> InputsT:
    """Return floating-point inputs in the type of the model's weights, others as they are."""
    weight = next(model.parameters(), torch.empty(0))

    def convert(one: Tensor) -> Tensor:
        both = one.is_floating_point() and weight.is_floating_point()
        return one.to(weight.dtype) if both else one

    return map_inputs(convert, inputs)


def submodules_in_eval(model: nn.Module) -> list[nn.Module]:
    """Return the parts that are in inference mode though the model is not."""
    return [part for part in model.modules() if not part.training] if model.training else []


def train_except(model: nn.Module, parts: list[nn.Module]) -> None:
    """Put a model into training mode, except for some parts."""
    model.train()
    for part in parts:
        part.training = False


def layers_with_statistics(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the layers that gather running statistics, as BatchNorm does."""
    return tuple(one for one in model.modules() if getattr(one, "track_running_stats", False))


def at_least_float32(logits: Tensor) -> Tensor:
    """Return logits in float32 or wider: half precision has too few digits for a loss."""
    return logits.float() if logits.dtype.itemsize < 4 else logits
