"""What a model is called with, and what it gives back, whatever their form.

Most models take one tensor and return logits. Others take several tensors, by position or by name,
as those of Hugging Face do, and return a tuple, a mapping or an object with ``logits``. Everything
that calls a model does so by ``call_model``, which knows all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from falconcal.errors import UserError, described

TOKENS = "input_ids"  # the name that token models give their tokens
MASKS = ("attention_mask", "pixel_mask")  # 1 where an input is real, 0 where it is padding


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """Several inputs of one batch, by position or by name; all tensors have one row per example.

    One of them is the main input: what is perturbed and shifted. It is the one that ``perturb``
    names, or the only floating-point one, or the tokens.

    Args:
        positional: What the model is called with by position.
        named: What the model is called with by name; what is not a tensor is passed on as it is.
        perturb: The name, or the position from 0, of the main input; None finds it.

    Raises:
        UserError: Tensors have different numbers of rows, or there is none.

    Example:
        >>> import torch
        >>> from falconcal.core.model_inputs import ModelInputs
        >>> inputs = ModelInputs((), {"input_ids": torch.zeros(2, 5).long()})
        >>> len(inputs), inputs.main_name
        (2, 'input_ids')
    """

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    perturb: str | int | None = None

    def __post_init__(self) -> None:
        sizes = {len(tensor) for tensor in self.tensors.values() if tensor.ndim}
        if len(sizes) != 1:
            shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in self.tensors.items())
            raise UserError(
                "expected inputs that all have one row per example, got "
                f"{shapes or 'no tensor'}: give each the same number of rows."
            )

    @property
    def tensors(self) -> dict[str | int, Tensor]:
        """The tensors among the inputs by position or name."""
        every: dict[str | int, Any] = dict(enumerate(self.positional))
        every.update(self.named)
        return {name: value for name, value in every.items() if isinstance(value, Tensor)}

    @property
    def main_name(self) -> str | int:
        """The name, or the position, of the main input."""
        tensors = self.tensors
        if self.perturb is not None:
            if self.perturb not in tensors:
                raise UserError(
                    f"expected an input to perturb among {_listed(tensors)}, got {self.perturb!r}."
                )
            return self.perturb
        numbers = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        numbers = [name for name in numbers if name not in MASKS]
        if len(numbers) == 1:
            return numbers[0]
        if not numbers and (TOKENS in tensors or len(tensors) == 1):
            return TOKENS if TOKENS in tensors else next(iter(tensors))
        raise UserError(
            f"expected one input to perturb, got {_listed(numbers or tensors)}: name it once, as "
            f"in falconcal.Loader(batches, perturb={next(iter(numbers or tensors))!r})."
        )

    @property
    def main(self) -> Tensor:
        """The main input: what is perturbed and shifted."""
        return self.tensors[self.main_name]

    def with_main(self, main: Tensor) -> "ModelInputs":
        """Return the inputs with another main input; masked places stay as they are."""
        name, kept = self.main_name, self.kept(self.main, main)
        return self._with({name: kept})

    def kept(self, clean: Tensor, moved: Tensor, padding: int | None = None) -> Tensor:
        """Return ``moved``, as ``clean`` at the places that a mask, or padding, hides.

        Args:
            clean: The main input, or its embedding, (N, ...).
            moved: The same, perturbed.
            padding: The token that is padding, for token inputs without a mask.

        Returns:
            A tensor of the same shape.
        """
        real = self._real(clean, padding)
        return moved if real is None else torch.where(real, moved, clean)

    def _real(self, clean: Tensor, padding: int | None) -> Tensor | None:
        """Return where inputs are no padding, in a shape that fits them; None is everywhere."""
        masks: list[Tensor] = [self.tensors[name] for name in MASKS if name in self.tensors]
        if not masks and padding is not None:
            masks = [self.main != padding]
        for mask in masks:
            if mask.ndim == 2 and clean.ndim >= 2 and mask.shape == clean.shape[:2]:
                return mask.bool().reshape(*mask.shape, *[1] * (clean.ndim - 2))
            if mask.ndim == 3 and clean.ndim == 4 and mask.shape[1:] == clean.shape[2:]:
                return mask.bool()[:, None]
        return None

    def map(self, function: Callable[[Tensor], Tensor]) -> "ModelInputs":
        """Return the inputs with a function applied to every tensor."""
        return self._with({name: function(one) for name, one in self.tensors.items()})

    def _with(self, changed: Mapping[str | int, Tensor]) -> "ModelInputs":
        positional = tuple(changed.get(place, one) for place, one in enumerate(self.positional))
        named = {name: changed.get(name, one) for name, one in self.named.items()}
        return replace(self, positional=positional, named=named)

    def __len__(self) -> int:
        return next(len(tensor) for tensor in self.tensors.values() if tensor.ndim)

    def __getitem__(self, rows: Any) -> "ModelInputs":
        return self.map(lambda tensor: tensor[_beside(rows, tensor)])

    def index_select(self, dim: int, rows: Tensor) -> "ModelInputs":
        """Return some rows, as of a tensor."""
        return self.map(lambda tensor: tensor.index_select(dim, rows))

    def tensor_split(self, parts: int) -> list["ModelInputs"]:
        """Return the rows in so many parts, as of a tensor."""
        cut = {name: one.tensor_split(parts) for name, one in self.tensors.items()}
        return [
            self._with({name: pieces[part] for name, pieces in cut.items()})
            for part in range(parts)
        ]

    def detach(self) -> "ModelInputs":
        """Return the inputs without gradients."""
        return self.map(Tensor.detach)

    def clone(self) -> "ModelInputs":
        """Return a copy."""
        return self.map(Tensor.clone)

    def cpu(self) -> "ModelInputs":
        """Return the inputs on the CPU."""
        return self.map(Tensor.cpu)

    def is_floating_point(self) -> bool:
        """Return whether the main input is."""
        return self.main.is_floating_point()

    @property
    def shape(self) -> torch.Size:
        """The shape of the main input."""
        return self.main.shape

    @property
    def ndim(self) -> int:
        """The number of axes of the main input."""
        return self.main.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The type of the main input."""
        return self.main.dtype

    @property
    def device(self) -> torch.device:
        """Where the main input is."""
        return self.main.device


Inputs = Tensor | ModelInputs
InputsT = TypeVar("InputsT", bound=Inputs)


def _beside(rows: Any, tensor: Tensor) -> Any:
    return rows.to(tensor.device) if isinstance(rows, Tensor) else rows


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))


def packed(
    positional: tuple[Any, ...], named: Mapping[str, Any], perturb: str | int | None = None
) -> Inputs:
    """Return what a model was called with as inputs: one tensor as itself."""
    if len(positional) == 1 and not named and isinstance(positional[0], Inputs):
        return positional[0]
    return ModelInputs(positional, named, perturb)


def main_of(inputs: Inputs) -> Tensor:
    """Return the input that is perturbed and shifted: the only one, or the main one."""
    return inputs if isinstance(inputs, Tensor) else inputs.main


def with_main(inputs: Inputs, main: Tensor) -> Inputs:
    """Return the inputs with another main input."""
    return main if isinstance(inputs, Tensor) else inputs.with_main(main)


def map_inputs(function: Callable[[Tensor], Tensor], inputs: InputsT) -> InputsT:
    """Return the inputs with a function applied to each tensor."""
    changed = function(inputs) if isinstance(inputs, Tensor) else inputs.map(function)
    return cast("InputsT", changed)


def each_tensor(inputs: Inputs) -> list[Tensor]:
    """Return all tensors among the inputs."""
    return [inputs] if isinstance(inputs, Tensor) else list(inputs.tensors.values())


def join_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Return the rows of several batches as one; shorter sequences are padded where masks allow.

    Raises:
        UserError: Sequences of different lengths come without a mask.
    """
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    every = [part for part in parts if isinstance(part, ModelInputs)]
    masked = any(name in first.named for name in MASKS)
    columns = {name: [part.tensors[name] for part in every] for name in first.tensors}
    return first._with({name: _joined(name, rows, masked) for name, rows in columns.items()})


def _joined(name: str | int, parts: list[Tensor], masked: bool) -> Tensor:
    lengths = {part.shape[1] for part in parts if part.ndim > 1}
    if len(lengths) < 2:
        return torch.cat(parts)
    if not masked:
        raise UserError(
            f"expected batches of one length, got {name} of lengths {min(lengths)} to "
            f"{max(lengths)} without an attention_mask: pad all to one length, or give the mask."
        )
    most = max(lengths)
    return torch.cat([_filled(part, most) for part in parts])


def _filled(part: Tensor, length: int) -> Tensor:
    missing = part.new_zeros(len(part), length - part.shape[1], *part.shape[2:])
    return torch.cat([part, missing], 1)


def call_model(model: Callable[..., Any], inputs: Inputs) -> Tensor:
    """Call a model with inputs of any form and return its logits.

    Args:
        model: The model.
        inputs: One tensor, or several by position or name.

    Returns:
        Its logits, (N, C); of a model with a single logit, (N, 2).
    """
    if isinstance(inputs, Tensor):
        return logits_of(model(inputs))
    return logits_of(model(*inputs.positional, **inputs.named))


def logits_of(output: Any) -> Tensor:
    """Return the logits in what a model returned.

    Args:
        output: A tensor, a tuple whose first item are logits, a mapping or an object with
            ``logits``. A single logit z, (N,) or (N, 1), becomes the two logits 0 and z, whose
            softmax gives the second class the probability sigmoid(z).

    Returns:
        The logits, (N, C).

    Raises:
        UserError: If there are none.
    """
    found = output
    if isinstance(found, Mapping):
        found = found.get("logits")
    elif isinstance(found, tuple | list) and found and not hasattr(found, "logits"):
        found = found[0]
    elif not isinstance(found, Tensor):
        found = getattr(found, "logits", None)
    if not isinstance(found, Tensor):
        raise UserError(
            "expected logits from the model, a tensor (N, C), a tuple that begins with it, or a "
            f"mapping or an object with logits, got {described(output)}: wrap the model in a "
            "module whose forward returns only the logits."
        )
    return two_logits(found)


def two_logits(logits: Tensor) -> Tensor:
    """Return a single logit, (N,) or (N, 1), as two, 0 and itself: (N, 2); others unchanged."""
    if logits.ndim == 1:
        logits = logits[:, None]
    if logits.ndim == 2 and logits.shape[1] == 1:
        return torch.cat([torch.zeros_like(logits), logits], 1)
    return logits


class BoundModel(nn.Module):
    """A model as a function of its main input alone; the others stay as they are in a batch."""

    def __init__(self, model: nn.Module, inputs: ModelInputs) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.training = model.training

    def forward(self, main: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        others = self.inputs.map(lambda tensor: tensor.to(main.device))
        return call_model(self.model, others.with_main(main))
