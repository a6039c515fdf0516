"""timm for tests: it needs torchvision, which does not import beside torch's CPU build.

Two operators, of boxes, are missing there. timm does not call them, so it is enough to declare
them.
"""

import importlib
import sys
from types import ModuleType

import pytest
import torch

REASON = "needs timm: make test-timm"
_declared: list[torch.library.Library] = []


def timm_or_skip() -> ModuleType:
    """Return timm, or skip the test with the reason."""
    try:
        pytest.importorskip("torchvision", reason=REASON)
    except RuntimeError:  # operator torchvision::nms does not exist
        _declare_missing_operators()
        importlib.import_module("torchvision")
    timm: ModuleType = pytest.importorskip("timm", reason=REASON)
    return timm


def _declare_missing_operators() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)  # what is declared goes with the library
