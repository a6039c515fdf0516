"""The precision of training; in double precision, outputs and losses stay double too."""

from typing import Any, Literal

from lightning_fabric import Fabric
from lightning_fabric.plugins.precision import DoublePrecision
from torch import Tensor

from falconcal.errors import UserError

Precision = Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]


class DoubleThroughout(DoublePrecision):
    """Double precision that leaves outputs as they are: Fabric's own turns them into float32."""

    def convert_output(self, data: Any) -> Any:
        return data


def of_precision(precision: Precision) -> dict[str, Any]:
    """Return Fabric's arguments for a precision."""
    return {"plugins": DoubleThroughout()} if precision == "64-true" else {"precision": precision}


def as_precise(fabric: Fabric, inputs: Tensor) -> Tensor:
    """Return inputs in the precision of training, so that they are perturbed in it too."""
    converted: Tensor = fabric.strategy.precision.convert_input(inputs)
    return converted


def check_precision(fabric: Fabric) -> None:
    """Refuse a Fabric of the user's under which the loss would be computed in float32."""
    if type(fabric.strategy.precision) is DoublePrecision:
        raise UserError(
            'expected a Fabric that leaves outputs as they are, got precision "64-true", which '
            "turns them into float32 before the loss: give model.double() and float64 inputs to a "
            "Fabric of the default precision, which is exact."
        )
