"""Make an ordinary network Bayesian: all its dense and convolution layers, or the last one."""

import copy
from collections.abc import Callable, Mapping

from torch import nn

from falconcal.errors import UserError
from falconcal.models.bayesian.layer import BayesianLayer

Forms = Mapping[type[nn.Module], Callable[..., BayesianLayer]]
AnyForms = Mapping[type[nn.Module], Callable[..., nn.Module]]
# they scale and shift single features: few numbers, which stay plain, like the biases
PLAIN_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.PReLU)


def to_bayesian(model: nn.Module, forms: Forms) -> nn.Module:
    """Return a copy in which every dense and convolution layer is Bayesian, with the same means.

    A layer with weights but without a Bayesian form is refused: its weights would not be drawn. A
    layer that the network uses in several places is replaced by one Bayesian layer in all of them.
    """
    _check_forms(model, forms)
    names = [name for name, layer in model.named_modules() if type(layer) in forms]
    return _replaced(model, names, forms)


def with_bayesian_last_layer(model: nn.Module, forms: Forms, name: str | None = None) -> nn.Module:
    """Return a copy whose last ``nn.Linear`` is Bayesian: the last by definition, or by name."""
    return with_last_layer(model, forms, name)


def with_last_layer(model: nn.Module, forms: AnyForms, name: str | None = None) -> nn.Module:
    """Return a copy whose last ``nn.Linear`` is replaced: the last by definition, or by name."""
    names = [place for place, layer in model.named_modules() if type(layer) is nn.Linear]
    if name is None and not names:
        raise UserError("expected a model whose last layer is an nn.Linear, found none.")
    if name is not None and name not in names:
        raise UserError(f"expected layer to be the name of an nn.Linear, {names}, got {name!r}.")
    return _replaced(model, [names[-1] if name is None else name], forms)


def _replaced(model: nn.Module, names: list[str], forms: AnyForms) -> nn.Module:
    model = copy.deepcopy(model)
    made = {id(layer): forms[type(layer)](layer) for layer in map(model.get_submodule, names)}
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if id(layer) not in made:
            continue
        if not name:
            return made[id(layer)]
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, made[id(layer)])
    return model


def _check_forms(model: nn.Module, forms: Forms) -> None:
    known = " and ".join(f"nn.{kind.__name__}" for kind in forms)
    found = False
    for name, layer in model.named_modules():
        if type(layer) in forms:
            found = True
        elif (
            not isinstance(layer, PLAIN_LAYERS)
            and next(layer.parameters(recurse=False), None) is not None
        ):
            raise UserError(
                f"expected layers with a Bayesian form, {known}, got {type(layer).__name__} at "
                f"{name or 'the top'!r}: use last_layer_svi, which leaves all but the last dense "
                "layer as they are."
            )
    if not found:
        raise UserError(f"expected a model with {known} layers to make Bayesian, found none.")
