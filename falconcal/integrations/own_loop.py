"""FALCON's part of a step, for people with a training loop of their own."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from falconcal.core.array_conversion import as_tensor
from falconcal.core.batch import Batch, BatchForm, read_batch
from falconcal.core.distributed import rank, sum_over_processes, world_size
from falconcal.core.layout import (
    match_weight_layout,
    prefer_channels_last,
    weights_to_channels_last,
)
from falconcal.core.model_inputs import Inputs, ModelInputs
from falconcal.core.module_state import (
    check_module,
    submodules_in_eval,
    train_except,
)
from falconcal.core.perturbation_point import find_perturbation_point
from falconcal.errors import UserError, described
from falconcal.methods.falcon import Falcon
from falconcal.training.fabric import conversion, set_up
from falconcal.training.model_setup import set_dropout
from falconcal.training.precision import check_precision, of_precision
from falconcal.training.recipe import check_step
from falconcal.training.run_steps import run_steps
from falconcal.training.step import (
    Step,
    StepContext,
    TrainingProcesses,
    bounds_of,
    check_batch,
    make_step,
)


class FalconStep:
    """Both steps of FALCON on a batch: the clean one with your optimiser, then calibration.

    The steps are those of ``Falcon.fit``, to the bit. Schedulers work on your optimiser, and on
    ``calibration_optimizer``. Only the weights of the module change: mode, ``requires_grad`` and
    hooks stay. Inside a ``DistributedDataParallel`` of your own the bins are those of the whole
    batch, of all processes.

    Args:
        model: Any module that gives logits.
        optimizer: Your optimiser of its weights, for the clean step.
        falcon: Weights, annealing, bounds of the inputs, ``dropout``, ``clip_norm``, ``accumulate``
            and ``precision``; None takes the defaults. Its ``learning_rate`` is not used.
        fabric: A Fabric that is set up already; None makes one on the model's device.
        labels: The key of the labels, where batches are mappings.
        perturb: The name or position of the input that is perturbed, where a batch has several.
        weights: The key of the examples' weights, or ``"last"`` for the last item of a tuple.

    Raises:
        UserError: If the settings ask for what only ``fit`` can do (``keep="best"``, ``patience``,
            ``average``), or a part is of the wrong type.

    Example:
        >>> import torch
        >>> import falconcal
        >>> inputs, labels = torch.rand(60, 6), torch.arange(60) % 3
        >>> model = torch.nn.Linear(6, 3)
        >>> falcon = falconcal.Falcon(epochs=2, bounds=falconcal.Bounds(0, 1))
        >>> step = falconcal.FalconStep(model, torch.optim.Adam(model.parameters()), falcon)
        >>> for epoch in step.epochs():
        ...     terms = step(inputs, labels)
        >>> list(terms)
        ['clean/cross_entropy', 'clean/entropy', 'calibration/calibration']
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        falcon: Falcon | None = None,
        *,
        fabric: Fabric | None = None,
        labels: str = "labels",
        perturb: str | int | None = None,
        weights: str | None = None,
    ) -> None:
        check_module(model)
        _check_parts(optimizer, falcon)
        self.form = BatchForm(labels, perturb, weights)
        self.falcon, self.model = falcon or Falcon(), model
        self._bare = model.module if isinstance(model, DistributedDataParallel) else model
        _check_settings(self.falcon)
        if self.falcon.dropout is not None:
            set_dropout(model, self.falcon.dropout)
        self.epoch, self._batch, self._finished = 1, 0, 0
        self._objectives = self.falcon.objectives()
        self._resting = submodules_in_eval(model)
        weights_to_channels_last(model)
        match_weight_layout(optimizer)
        optimizer.register_load_state_dict_post_hook(match_weight_layout)
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.calibration_optimizer = self._objectives[1].optimizer(parameters)
        self._set_up(fabric or _fabric_for(model, self.falcon), optimizer)
        self._context: StepContext | None = None  # made for the first batch
        self._waiting: list[Step] = []

    def epochs(self) -> Iterator[int]:
        """Iterate over the epochs, which annealing needs; puts the model into training mode."""
        for epoch in range(self._finished + 1, self.falcon.epochs + 1):
            self.epoch, self._batch = epoch, 0
            train_except(self.model, self._resting)
            yield epoch
            self._run_waiting()  # the last group of an epoch may be short

    def __call__(self, *batch: Any) -> dict[str, float]:
        """Step on a batch and return the terms by name; empty while batches accumulate.

        Args:
            *batch: ``inputs, labels``, or ``a, b, ..., labels``, or one batch of any form, such as
                a mapping with the key ``labels``.

        Returns:
            The terms of both steps by name.
        """
        self._waiting.append(self._step(self._read(batch)))
        if len(self._waiting) < self.falcon.accumulate:
            return {}
        return self._run_waiting()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs besides the model and your optimiser.

        Returns:
            The epoch, and the state of ``calibration_optimizer``. Take it at the end of an epoch.

        Raises:
            UserError: Batches are waiting to make a step together.
        """
        if self._waiting:
            raise UserError(
                f"expected no batches that wait for others, got {len(self._waiting)} of "
                f"accumulate={self.falcon.accumulate}: take the state after a whole step."
            )
        return {
            "epoch": self.epoch,
            "calibration_optimizer": self.calibration_optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken: ``epochs`` begins after its epoch.

        Args:
            state: What ``state_dict`` returned.

        Raises:
            UserError: It is something else.
        """
        missing = {"epoch", "calibration_optimizer"} - set(state)
        if missing:
            raise UserError(
                "expected what FalconStep.state_dict returned, with epoch and "
                f"calibration_optimizer, got the keys {', '.join(map(str, state)) or 'none'}."
            )
        self.epoch = self._finished = int(state["epoch"])
        self.calibration_optimizer.load_state_dict(state["calibration_optimizer"])

    def _set_up(self, fabric: Fabric, optimizer: Optimizer) -> None:
        check_precision(fabric)
        self._fabric, self._bare_optimizers = fabric, [optimizer, self.calibration_optimizer]
        self._wrapped, self._optimizers = set_up(
            fabric, self.model, self._bare_optimizers, move_to_device=False
        )
        self._processes = TrainingProcesses.of(fabric)
        if self._bare is not self.model and fabric.world_size == 1:  # a wrapper of the user's own
            self._processes = TrainingProcesses(world_size(), sum_over_processes, rank())

    def _read(self, batch: tuple[Any, ...]) -> Batch:
        if len(batch) == 1:
            return read_batch(batch[0], self.form)
        return read_batch(tuple(map(_as_part, batch)), self.form)

    def _step(self, batch: Batch) -> Step:
        if self._context is None:
            self._lay_out(batch[0])
            self._context = self._context_for(batch[0])
        epoch = self._checked_epoch()
        if epoch == self._finished + 1:  # as fit does, in the first epoch alone
            check_batch(*batch, self._context.bounds)
        self._batch += 1
        return make_step(self._context, batch, epoch, self.falcon.epochs, self._batch - 1)

    def _lay_out(self, inputs: Inputs) -> None:
        """Go back to the usual layout in memory where the model takes no other."""
        prefer_channels_last(self._bare, inputs)
        for optimizer in self._bare_optimizers:
            match_weight_layout(optimizer)

    def _context_for(self, inputs: Inputs) -> StepContext:
        """Return what all steps have in common, found on the first batch."""
        return StepContext(
            model=self._bare,
            wrapped=self._wrapped,
            seed=self.falcon.seed,
            convert=conversion(self._fabric, self.model),
            bounds=bounds_of((), self.falcon.bounds, inputs),
            perturbation_point=find_perturbation_point(self._bare, inputs),
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
                f"expected an epoch from 1 to {self.falcon.epochs}, got {self.epoch}: give their "
                "number as Falcon(epochs=...), and iterate over step.epochs()."
            )
        return self.epoch


def _as_part(given: Any) -> Any:
    """Return an item of a batch: lists of numbers as tensors, groups of inputs as they are."""
    several = isinstance(given, tuple | list) and any(isinstance(one, Tensor) for one in given)
    if several or isinstance(given, Mapping | ModelInputs):
        return given
    return as_tensor(given, "a batch")


def needs_fit(falcon: Falcon) -> bool:
    """Return whether settings need more than steps: choosing an epoch, ending early, averaging."""
    return falcon.keep == "best" or falcon.patience is not None or falcon.average is not None


def _check_parts(optimizer: object, falcon: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise UserError(
            "expected an optimiser of the model's weights, such as "
            f"torch.optim.Adam(model.parameters()), got {described(optimizer)}."
        )
    check_step(optimizer)
    if falcon is not None and not isinstance(falcon, Falcon):
        raise UserError(f"expected settings, as Falcon(...), got {described(falcon)}.")


def _check_settings(falcon: Falcon) -> None:
    """Refuse settings that a loop of the user's own would silently ignore."""
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
