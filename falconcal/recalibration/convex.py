"""The minimum of a smooth convex loss in float64: few parameters, many digits."""

from collections.abc import Callable

import numpy
import scipy  # its parts are loaded when they are first used
import torch
from torch import Tensor

NETWORK_ITERATIONS = 300  # where a small network is fitted, whose loss is not convex
Vector = numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]


def minimise(
    loss: Callable[[Tensor], Tensor],
    start: Tensor,
    iterations: int = 10_000,
    lowest: Tensor | None = None,
) -> Tensor:
    """Return where a loss of a float64 tensor is lowest, sought from a start.

    ``lowest``, of the shape of the start, is the least that each value may be.
    """

    def value_and_gradient(flat: Vector) -> tuple[float, Vector]:
        with torch.enable_grad():
            place = torch.from_numpy(flat).reshape(start.shape).requires_grad_()
            value = loss(place)
            (gradient,) = torch.autograd.grad(value, place)
        return value.item(), gradient.flatten().numpy()

    found = scipy.optimize.minimize(
        value_and_gradient,
        start.flatten().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=None if lowest is None else [(low, None) for low in lowest.flatten().tolist()],
        options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-15, "gtol": 1e-9},
    )
    return torch.tensor(found.x).reshape(start.shape)
