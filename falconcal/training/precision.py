"""The precision of training; in double precision, outputs and losses stay double too.

Some processors do not have the instructions of bfloat16, and torch ends the process with the first
one. So before a CPU trains in it, a child process multiplies two matrices.
"""

import subprocess
import sys
from functools import cache
from typing import Any, Literal

from lightning_fabric import Fabric
from lightning_fabric.accelerators.cpu import CPUAccelerator
from lightning_fabric.plugins.precision import DoublePrecision, MixedPrecision

from falconcal.core.child_processes import ended_by
from falconcal.errors import UserError

Precision = Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]

TRIAL = """
import torch
ones = torch.ones(64, 64, dtype=torch.bfloat16)
assert bool((ones @ ones == 64).all()), "a product of matrices of ones is wrong"
"""
TRIAL_SECONDS = 300.0  # torch alone takes seconds to import, on a busy machine far longer


class DoubleThroughout(DoublePrecision):
    """Double precision that leaves outputs as they are: Fabric's own turns them into float32."""

    def convert_output(self, data: Any) -> Any:
        return data


def of_precision(precision: Precision) -> dict[str, Any]:
    """Return Fabric's arguments for a precision."""
    return {"plugins": DoubleThroughout()} if precision == "64-true" else {"precision": precision}


def check_precision(fabric: Fabric) -> None:
    """Refuse a Fabric of the user's that computes the loss in float32, or cannot compute at all."""
    check_bfloat16(fabric)
    if type(fabric.strategy.precision) is DoublePrecision:
        raise UserError(
            'expected a Fabric that leaves outputs as they are, got precision "64-true", which '
            "turns them into float32 before the loss: give model.double() and float64 inputs to a "
            "Fabric of the default precision, which is exact."
        )


def check_bfloat16(fabric: Fabric) -> None:
    """Refuse to train in bfloat16 on a processor that cannot compute in it."""
    precision = fabric.strategy.precision
    half = isinstance(precision, MixedPrecision) and precision.precision == "bf16-mixed"
    if not half or not isinstance(fabric.accelerator, CPUAccelerator):
        return
    reason = _bfloat16_failure()
    if reason is not None:
        raise UserError(
            'precision "bf16-mixed": expected a processor that computes in bfloat16, got one on '
            f'which a trial in a process of its own {reason}: use precision "32-true".'
        )


def bfloat16_works() -> bool:
    """Return whether this machine's processor computes in bfloat16."""
    return _bfloat16_failure() is None


@cache
def _bfloat16_failure() -> str | None:
    """Return how a child process failed to multiply two matrices, or None; tried once."""
    command = [sys.executable, "-c", TRIAL]
    try:
        answer = subprocess.run(
            command, capture_output=True, check=False, text=True, timeout=TRIAL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"took more than {TRIAL_SECONDS:.0f} seconds"
    if answer.returncode < 0:
        return f"was {ended_by(-answer.returncode)}"
    lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
    return f"failed ({lines[-1]})" if answer.returncode else None
