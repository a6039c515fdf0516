"""A running mean of a model's weights, which is then what is checked, kept and returned.

Steps of training move weights back and forth; their mean lies in the middle. Polyak & Juditsky,
"Acceleration of Stochastic Approximation by Averaging", SIAM J. Control Optim. 30, 1992. Running
statistics of batch norm are averaged with the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


# torch.optim.swa_utils.AveragedModel copies the module itself, which fails for networks that hold
# tensors computed from their weights (spectral norm after a pass); a mean of the state does not
class Average:
    """The mean of a model's state over its steps, each earlier one counting less by ``decay``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = model, decay, 0
        self.state = {name: value.clone() for name, value in _state(model).items()}

    def update(self) -> None:
        """Add the model as it is after a step to the mean."""
        self.steps += 1
        # at first the plain mean of all steps, without the weights from before training
        decay = min(self.decay, (self.steps - 1) / self.steps)
        for name, value in _state(self.model).items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - decay)
            else:
                self.state[name].copy_(value)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the mean inside the ``with``, and its own weights back after it."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        state = _state(self.model)
        own = {
            name: value.clone() for name, value in state.items()
        }  # all before any is set: some are tied
        for name, value in state.items():
            value.copy_(self.state[name])
        self.state = own


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Return weights and buffers, not copies, detached from gradients."""
    return {name: value.detach() for name, value in model.state_dict().items()}
