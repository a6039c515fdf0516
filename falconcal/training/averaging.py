"""A running mean of a model's weights, which is then what is judged, kept and returned.

Steps of training throw weights to and fro; their mean lies in the middle. Polyak & Juditsky,
"Acceleration of Stochastic Approximation by Averaging", SIAM J. Control Optim. 30, 1992. Running
statistics of batch norm are averaged with the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The mean of a model's state over its steps, each earlier one counting less by ``decay``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = model, decay, 0
        self.state = {name: value.clone() for name, value in _state(model).items()}

    def update(self) -> None:
        """Take in the model as it is after a step."""
        self.steps += 1
        # at first the mean of all steps: what the weights were before training must not linger
        decay = min(self.decay, (self.steps - 1) / self.steps)
        for name, value in _state(self.model).items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - decay)
            else:
                self.state[name].copy_(value)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model be the mean inside; after, training goes on from where it was."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        state = _state(self.model)
        own = {name: value.clone() for name, value in state.items()}  # before any: some are tied
        for name, value in state.items():
            value.copy_(self.state[name])
        self.state = own


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Return weights and buffers themselves, without a history of gradients."""
    return {name: value.detach() for name, value in model.state_dict().items()}
