"""Buffers that take the sizes of stored ones."""

import pytest
import torch
from torch import nn

from falconcal.recalibration.buffers import size_buffers_as_stored


@pytest.mark.parametrize("older", [False, True])
def test_they_have_the_stored_size_and_type(older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if older:  # torch 2.4 has the hook by another name
        monkeypatch.delattr(nn.Module, "register_load_state_dict_pre_hook")
    outer, inner = nn.Module(), nn.Module()
    inner.register_buffer("kept", torch.zeros(0))
    size_buffers_as_stored(inner)
    outer.add_module("inner", inner)
    outer.load_state_dict({"inner.kept": torch.ones(3, dtype=torch.float64)})
    assert torch.equal(inner.get_buffer("kept"), torch.ones(3, dtype=torch.float64))
