"""Networks as a person names them on the command line, package.module:make."""

import warnings
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from tests.helpers.small_data import small_network


def make_stripes_network() -> nn.Module:
    """A network for 28x28 images of three classes."""
    return small_network()


def make_table_network() -> nn.Module:
    """A network for rows of four numbers and three classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


class Undefined(nn.Module):
    """A network with a stage that gives NaN and logits that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Identity(), nn.Linear(49, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        pooled = nn.functional.avg_pool2d(inputs, 4).flatten(1)
        self.inner(pooled[:, :20] * torch.nan)
        logits: Tensor = self.last(pooled)
        return logits


class Closed(nn.Linear):
    """A layer that takes no hooks, as scripted ones."""

    def register_forward_hook(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("register_forward_hook is not supported on ScriptModules")

    register_forward_pre_hook = register_forward_hook


def make_closed_network() -> nn.Module:
    """A network with such a layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), Closed(8, 3))


def make_scripted() -> nn.Module:
    """A network that gives no layer by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather export networks
        return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(784, 3)))


def make_nothing() -> int:
    return 3
