"""FALCON's part of a step, for people with a training loop of their own."""

from collections.abc import Iterator

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from falconcal.data.conversion import ArrayLike, as_tensor
from falconcal.data.examples import check_whole
from falconcal.entrance import Entrance, find_entrance
from falconcal.errors import UserError, described
from falconcal.methods.falcon import Falcon
from falconcal.modes import check_module, rest, resting_parts, typed
from falconcal.training import Processes, Step, run_steps, set_dropout
from falconcal.training.precision import as_precise, check_precision, of_precision
from falconcal.training.preparing import (
    batch_random,
    bounds_of,
    check_batch,
    laid_out,
    lay_out_state,
    lay_out_weights,
)


class FalconStep:
    """Both steps of FALCON on a batch: the clean one with your optimiser, then calibration.

    ``falcon`` holds the weights, the annealing, the bounds of the inputs, ``dropout``,
    ``clip_norm``, ``accumulate`` and ``precision``; its learning rate is not used, your optimiser
    has its own. Schedulers work on your optimiser, and on ``calibration_optimizer``. What is left
    behind in the module is its weights alone.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        falcon: Falcon | None = None,
        *,
        fabric: Fabric | None = None,
    ) -> None:
        check_module(model)
        _check_parts(optimizer, falcon)
        self.falcon, self.model = falcon or Falcon(), model
        _check_settings(self.falcon)
        if self.falcon.dropout is not None:
            set_dropout(model, self.falcon.dropout)
        self.epoch, self._batch = 1, 0
        self._objectives = self.falcon.objectives()
        self._resting = resting_parts(model)
        lay_out_weights(model)
        lay_out_state(optimizer)
        optimizer.register_load_state_dict_post_hook(lay_out_state)
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.calibration_optimizer = self._objectives[1].optimizer(parameters)
        self._set_up(fabric or _fabric_for(model, self.falcon), optimizer)
        self._entrance: Entrance | None = None
        self._waiting: list[Step] = []

    def epochs(self) -> Iterator[int]:
        """Walk the epochs, so that the annealing knows where it is; the model in training mode."""
        for epoch in range(1, self.falcon.epochs + 1):
            self.epoch, self._batch = epoch, 0
            rest(self.model, self._resting)
            yield epoch
            self._run_waiting()  # the last group of an epoch may be short

    def __call__(self, inputs: ArrayLike, labels: ArrayLike) -> dict[str, float]:
        """Step on a batch and return the terms by name; none while batches accumulate."""
        self._waiting.append(self._step(inputs, labels))
        if len(self._waiting) < self.falcon.accumulate:
            return {}
        return self._run_waiting()

    def _set_up(self, fabric: Fabric, optimizer: Optimizer) -> None:
        check_precision(fabric)
        self._fabric = fabric
        self._wrapped, *self._optimizers = fabric.setup(
            self.model, optimizer, self.calibration_optimizer, move_to_device=False
        )
        self._processes = Processes.of(fabric)

    def _step(self, inputs: ArrayLike, labels: ArrayLike) -> Step:
        inputs, labels = as_tensor(inputs, "inputs"), as_tensor(labels, "labels")
        check_whole(labels)
        bounds = bounds_of((), self.falcon.bounds, inputs)
        check_batch(inputs, labels, bounds)
        if self._entrance is None:
            self._entrance = find_entrance(self.model, inputs)
        self._batch += 1
        return Step(
            model=self._wrapped,
            inputs=laid_out(as_precise(self._fabric, typed(self.model, inputs))),
            labels=labels.long(),
            epoch=self._checked_epoch(),
            epochs=self.falcon.epochs,
            random=batch_random(self.falcon.seed, self.epoch, self._batch - 1),
            bounds=bounds,
            bare=self.model,
            entrance=self._entrance,
            processes=self._processes,
        )

    def _run_waiting(self) -> dict[str, float]:
        steps, self._waiting = self._waiting, []
        if not steps:
            return {}
        terms = run_steps(
            self._fabric, steps, self._objectives, self._optimizers, self.falcon.clip_norm
        )
        self.model.zero_grad(set_to_none=True)
        return {
            f"{objective}/{name}": float(value)
            for objective, values in terms.items()
            for name, value in values.items()
        }

    def _checked_epoch(self) -> int:
        if not 1 <= self.epoch <= self.falcon.epochs:
            raise UserError(
                f"expected an epoch from 1 to {self.falcon.epochs}, got {self.epoch}: say how "
                "many there are with Falcon(epochs=...), and walk them with step.epochs()."
            )
        return self.epoch


def needs_fit(falcon: Falcon) -> bool:
    """Tell whether settings ask for what goes beyond a step: choosing epochs, ending, averaging."""
    return falcon.keep == "best" or falcon.patience is not None or falcon.average is not None


def _check_parts(optimizer: object, falcon: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise UserError(
            "expected an optimiser of the model's weights, such as "
            f"torch.optim.Adam(model.parameters()), got {described(optimizer)}."
        )
    if falcon is not None and not isinstance(falcon, Falcon):
        raise UserError(f"expected settings, as Falcon(...), got {described(falcon)}.")


def _check_settings(falcon: Falcon) -> None:
    """Refuse settings that a loop of one's own would pass over in silence."""
    if needs_fit(falcon):
        raise UserError(
            "in a loop of your own you keep epochs, stop early and average yourself: leave "
            'keep="best", patience and average out of Falcon, or train with Falcon.fit.'
        )


def _fabric_for(model: nn.Module, falcon: Falcon) -> Fabric:
    """Return Fabric on the device where the model's weights are."""
    device = next(model.parameters(), torch.empty(0)).device
    kind = {"cuda": "cuda", "mps": "mps"}.get(device.type, "cpu")
    devices = [device.index or 0] if kind == "cuda" else 1
    return Fabric(accelerator=kind, devices=devices, **of_precision(falcon.precision))
