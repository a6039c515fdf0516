"""Buffers whose sizes fitting decides: they take those of a file when they are loaded."""

from functools import partial
from typing import Any

import torch
from torch import nn


def size_buffers_as_stored(module: nn.Module) -> None:
    """Give a module's buffers, when a state is loaded, the sizes and types of the stored ones."""
    if hasattr(module, "register_load_state_dict_pre_hook"):
        register: Any = module.register_load_state_dict_pre_hook  # torch gives it no types
    else:  # before torch 2.5 it had another name
        register = partial(module._register_load_state_dict_pre_hook, with_module=True)
    register(_sized_as_stored)


def _sized_as_stored(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, buffer in module.named_buffers(recurse=False):
        stored = state.get(prefix + name)
        if stored is not None:
            module.register_buffer(name, torch.empty_like(stored, device=buffer.device))
