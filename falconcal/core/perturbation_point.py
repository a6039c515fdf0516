"""Where a perturbation enters a model: at its inputs, or where tokens become vectors.

Whole numbers cannot be changed a little, so FGSM and MixUp work on a token model's embedding: that
of its methods ``embed`` and ``classify``, that of ``get_input_embeddings``, or the
``nn.Embedding`` that takes the tokens. Of several inputs the main one is perturbed; where a mask
of the batch hides places, or they are padding, they stay as they are.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from falconcal.core.layout import to_model_device
from falconcal.core.model_inputs import Inputs, call_model, main_of, with_main
from falconcal.core.module_state import inference_mode_of
from falconcal.errors import UserError

logger = logging.getLogger("falconcal.perturbation_point")


class PerturbationPoint:
    """The inputs themselves, or the main one of several."""

    moves_inputs = True

    def point(self, inputs: Inputs) -> Tensor:
        """Return what is perturbed: floating-point numbers."""
        return main_of(inputs)

    def run(self, model: nn.Module, inputs: Inputs, point: Tensor) -> Tensor:
        """Return the model's logits with ``point`` instead of what ``inputs`` would give there."""
        return call_model(model, with_main(inputs, point))

    def kept(self, inputs: Inputs, point: Tensor) -> Tensor:
        """Return the point with the places that a mask or padding hides as they were."""
        if isinstance(inputs, Tensor):
            return point
        return inputs.kept(self.point(inputs).detach(), point, self.padding)

    @property
    def padding(self) -> int | None:
        """The token that is padding, if there is one."""
        return None

    def epsilon_unit(self, point: Tensor) -> float:
        """Return the unit of epsilon where there are no bounds."""
        del point
        return 1.0


class EmbeddingPoint(PerturbationPoint):
    """A token model's embedding, replaced while the model runs, also inside a wrapper."""

    moves_inputs = False

    def __init__(
        self,
        embed: Callable[[Tensor], Tensor],
        replaced: Callable[[Callable[..., Tensor]], object],
        matrix: nn.Embedding | None,
    ) -> None:
        self.embed, self.replaced, self.matrix = embed, replaced, matrix

    @property
    def padding(self) -> int | None:
        return None if self.matrix is None else self.matrix.padding_idx

    def point(self, inputs: Inputs) -> Tensor:
        return self.embed(main_of(inputs))

    def run(self, model: nn.Module, inputs: Inputs, point: Tensor) -> Tensor:
        asked = []

        def give(*_: object) -> Tensor:
            asked.append(True)
            return point

        with self.replaced(give):  # type: ignore[attr-defined]
            logits = call_model(model, inputs)
        if not asked:
            raise UserError(
                "expected the model's forward to use its embedding, it did not: write it as "
                "self.classify(self.embed(tokens)), so that the embedding can be perturbed."
            )
        return logits

    def epsilon_unit(self, point: Tensor) -> float:
        """Return the standard deviation of the embedding matrix: the paper's unit for text."""
        values = point if self.matrix is None else self.matrix.weight
        return float(values.detach().float().std())


def find_perturbation_point(model: nn.Module, inputs: Inputs) -> PerturbationPoint:
    """Return where a perturbation of such inputs enters the model; a choice is logged."""
    if inputs.is_floating_point():
        return PerturbationPoint()
    if callable(getattr(model, "embed", None)) and callable(getattr(model, "classify", None)):
        matrices = [layer for layer in model.modules() if isinstance(layer, nn.Embedding)]
        matrix = matrices[0] if len(matrices) == 1 else None
        return EmbeddingPoint(model.embed, _method_replaced(model), matrix)  # type: ignore[arg-type]
    layer = _stated_embedding(model, inputs)
    if layer is not None:
        return EmbeddingPoint(layer, _layer_replaced(layer), layer)
    name, layer = _layer_of_tokens(model, inputs)
    logger.warning("tokens are perturbed at the output of %s, the model's embedding", name)
    return EmbeddingPoint(layer, _layer_replaced(layer), layer)


def input_gradient(
    model: nn.Module,
    inputs: Inputs,
    labels: Tensor,
    perturbation_point: PerturbationPoint | None = None,
) -> Tensor:
    """Return the gradient of the cross-entropy there; the model is left as it was."""
    # with cuDNN, recurrent layers have no gradient in inference mode
    with inference_mode_of(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        start = to_model_device(model, inputs.detach())
        perturbation_point = perturbation_point or find_perturbation_point(model, start)
        point = perturbation_point.point(start).detach().requires_grad_()
        logits = perturbation_point.run(model, start, point)
        target = labels.long().to(point.device)
        loss = nn.functional.cross_entropy(logits, target, reduction="sum")
        if not loss.requires_grad:  # a step function, such as histogram binning, has gradient 0
            return torch.zeros_like(point).to(inputs.device)
        (gradient,) = torch.autograd.grad(loss, point, allow_unused=True)
    if gradient is None:
        raise UserError(
            "expected outputs with a gradient at the inputs, got none: the model's forward "
            "detaches them, or works under torch.no_grad(). Freeze weights by "
            "requires_grad_(False) instead, or train on what the frozen part returns."
        )
    return gradient.to(inputs.device, point.dtype)


def _stated_embedding(model: nn.Module, inputs: Inputs) -> nn.Embedding | None:
    """Return the embedding that a model of Hugging Face says its tokens go through."""
    asked = getattr(model, "get_input_embeddings", None)
    if isinstance(inputs, Tensor) or not callable(asked):
        return None
    layer = asked()
    return layer if isinstance(layer, nn.Embedding) else None


def _layer_of_tokens(model: nn.Module, inputs: Inputs) -> tuple[str, nn.Embedding]:
    """Return the embedding that is given the tokens as they are."""
    layers = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Embedding)
    }
    found = _given_tokens(model, inputs, layers) if layers else []
    if not found:
        raise UserError(
            f"expected floating-point inputs to perturb, got {inputs.dtype}, and no nn.Embedding "
            "that takes them: convert images with inputs.float(), or give a token model the "
            "methods embed(tokens) and classify(embedded)."
        )
    return found[0], layers[found[0]]


def _given_tokens(model: nn.Module, inputs: Inputs, layers: dict[str, nn.Embedding]) -> list[str]:
    """Run one example and return the names of the layers that its tokens reach, in their order."""
    first, found = to_model_device(model, inputs[:1]), list[str]()
    tokens = main_of(first)

    def note(_: nn.Module, given: tuple[Tensor, ...], name: str) -> None:
        if _same(given[0], tokens):
            found.append(name)

    handles = [
        layer.register_forward_pre_hook(partial(note, name=name)) for name, layer in layers.items()
    ]
    try:
        with inference_mode_of(model), torch.no_grad():
            call_model(model, first)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _same(given: Tensor, tokens: Tensor) -> bool:
    return given.shape == tokens.shape and bool((given == tokens).all())


def _layer_replaced(layer: nn.Module) -> Callable[[Callable[..., Tensor]], object]:
    @contextmanager
    def replaced(give: Callable[..., Tensor]) -> Iterator[None]:
        handle = layer.register_forward_hook(lambda *_: give())
        try:
            yield
        finally:
            handle.remove()

    return replaced


def _method_replaced(model: nn.Module) -> Callable[[Callable[..., Tensor]], object]:
    @contextmanager
    def replaced(give: Callable[..., Tensor]) -> Iterator[None]:
        model.__dict__["embed"] = give  # hides the method of the class
        try:
            yield
        finally:
            del model.__dict__["embed"]

    return replaced
