"""FALCON under Lightning's Trainer; needs the extra ``lightning``, so nothing else imports this."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from falconcal.core.batch import USUAL_FORM, Batch, read_batch
from falconcal.core.layout import (
    match_weight_layout,
    prefer_channels_last,
    weights_to_channels_last,
)
from falconcal.core.model_inputs import Inputs, call_model, packed
from falconcal.core.perturbation_point import PerturbationPoint, find_perturbation_point
from falconcal.core.settings import as_dict
from falconcal.errors import UserError
from falconcal.integrations.own_loop import needs_fit
from falconcal.methods import Falcon
from falconcal.metrics import (
    accuracy,
    expected_calibration_error,
    negative_log_likelihood,
)
from falconcal.metrics.predictions import Predictions, Scores
from falconcal.training.model_setup import set_dropout
from falconcal.training.run_steps import run_steps
from falconcal.training.step import (
    Step,
    StepContext,
    TrainingProcesses,
    bounds_of,
    check_batch,
    make_step,
)

try:
    from lightning.pytorch import LightningModule
except ImportError as error:
    raise ImportError(
        "falconcal.integrations.lightning needs Lightning: pip install 'falconcal[lightning]'."
    ) from error

TRAINER_SETTINGS = ("accelerator", "devices", "num_nodes", "strategy", "precision")


class FalconModule(LightningModule):  # type: ignore[misc]
    """Any module that gives logits, trained by FALCON's two steps under Lightning's ``Trainer``.

    Epochs, devices and precision are the Trainer's; ``clip_norm`` and ``accumulate`` stay settings
    of ``Falcon``, since Lightning leaves them to modules that step by themselves.

    Args:
        model: Any module that gives logits.
        falcon: The settings; None takes the defaults.
        optimizer: Makes the optimiser of the clean step from the list of weights; None makes Adam
            at the settings' learning rate.

    Raises:
        UserError: If the settings ask for what is the Trainer's.
    """

    def __init__(
        self,
        model: nn.Module,
        falcon: Falcon | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.falcon = model, falcon or Falcon()
        _check_settings(self.falcon)
        if self.falcon.dropout is not None:
            set_dropout(model, self.falcon.dropout)
        weights_to_channels_last(model)
        self._optimizer = optimizer
        self._objectives = self.falcon.objectives()
        self._point: PerturbationPoint | None = None  # found on the first batch
        self._waiting: list[Step] = []
        self._scores: list[Scores] = []
        self.save_hyperparameters(as_dict(self.falcon))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:  # (N, ...) -> (N, C)
        return call_model(self.model, packed(inputs, named))

    def configure_optimizers(self) -> list[Optimizer]:
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        clean, calibration = self._objectives
        return [(self._optimizer or clean.optimizer)(weights), calibration.optimizer(weights)]

    def on_fit_start(self) -> None:
        if self.falcon.clip_norm is not None and self.trainer.precision == "16-mixed":
            raise UserError(
                "clip_norm does not work with precision 16-mixed under Lightning, where gradients "
                "are scaled: use bf16-mixed, or leave it out."
            )

    def on_train_epoch_start(self) -> None:
        loader = self.trainer.train_dataloader
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(self.current_epoch + 1)  # our batches count from 1

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Batch:
        """Read a batch of any form, and give all of it to the device."""
        del dataloader_idx
        return self._read(batch).to(device)

    def training_step(self, batch: Any, batch_index: int) -> None:
        """Take both steps on the batch; with ``accumulate``, on the group that it completes."""
        whole = self._read(batch)
        if len(whole[1]) >= self._parts():  # all skip a batch that is too small to divide
            self._waiting.append(self._step(self._part(whole), batch_index))
        complete = len(self._waiting) == self.falcon.accumulate or self.trainer.is_last_batch
        if self._waiting and complete:
            self._run_waiting()

    def validation_step(self, batch: Any, _: int) -> None:
        inputs, labels = self._read(batch)
        logits = call_model(self.model, inputs)
        self._scores.append(Predictions.from_logits(logits.cpu(), labels.cpu()).scores())

    def on_validation_epoch_end(self) -> None:
        """Log the figures of the validation data of all processes."""
        mine, self._scores = Scores.concatenate(self._scores), []
        every = Scores(**{name: self._gathered(field) for name, field in vars(mine).items()})
        figures = {
            "accuracy": accuracy(every),
            "ece": expected_calibration_error(every),
            "nll": negative_log_likelihood(every),
        }
        self.log_dict({f"validation/{name}": value for name, value in figures.items()})

    def _parts(self) -> int:
        """Return into how many parts a batch is divided; a DataLoader has done so already."""
        loaded = isinstance(self.trainer.train_dataloader, DataLoader)
        return 1 if loaded else int(self.trainer.world_size)

    def _part(self, batch: Batch) -> Batch:
        """Return this process's part of a batch."""
        parts, mine = self._parts(), self.global_rank
        return batch if parts == 1 else batch.split(parts)[mine]

    def _read(self, batch: Any) -> Batch:
        """Return a batch of any form; one of ours lost what goes beside it on the way here."""
        return read_batch(batch, getattr(self.trainer.train_dataloader, "form", USUAL_FORM))

    def _step(self, batch: Batch, index: int) -> Step:
        context = self._context(*batch)
        return make_step(context, batch, self.current_epoch + 1, self._epochs(), index)

    def _context(self, inputs: Inputs, labels: Tensor) -> StepContext:
        loader = self.trainer.train_dataloader
        bounds = bounds_of(loader, self.falcon.bounds, inputs)
        check_batch(inputs, labels, bounds)
        if self._point is None:
            self._lay_out(inputs)
            self._point = find_perturbation_point(self.model, inputs)
        return StepContext(
            model=self.model,
            wrapped=self.model,
            seed=self.falcon.seed,
            classes=getattr(loader, "classes", None),
            bounds=bounds,
            perturbation_point=self._point,
            processes=self._processes(),
        )

    def _lay_out(self, inputs: Inputs) -> None:
        """Go back to the usual layout in memory where the model takes no other."""
        prefer_channels_last(self.model, inputs)
        for optimizer in self.trainer.optimizers:
            match_weight_layout(optimizer)

    def _run_waiting(self) -> None:
        steps, self._waiting = self._waiting, []
        terms = run_steps(
            _TrainerEngine(self), steps, self._objectives, self.optimizers(), self.falcon.clip_norm
        )
        for objective, values in terms.items():
            self.log_dict({f"{objective}/{name}": value for name, value in values.items()})

    def _gathered(self, values: Tensor) -> Tensor:  # (N,) -> (processes * N,)
        if self.trainer.world_size == 1:
            return values
        everywhere: Tensor = self.all_gather(values.to(self.device))
        return everywhere.flatten().cpu()

    def _epochs(self) -> int:
        """Return the Trainer's number of epochs, or the settings' if it has no limit."""
        epochs: int | None = self.trainer.max_epochs
        return epochs if epochs is not None and epochs > 0 else self.falcon.epochs

    def _processes(self) -> TrainingProcesses:
        strategy, count = self.trainer.strategy, self.trainer.world_size
        if count == 1:
            return TrainingProcesses()
        return TrainingProcesses(count, lambda value: strategy.reduce(value, reduce_op="sum"))


class _TrainerEngine:
    """Backward passes through the Trainer, which knows the precision and the processes."""

    def __init__(self, module: FalconModule) -> None:
        self.module = module

    def backward(self, tensor: Tensor) -> None:
        self.module.manual_backward(tensor)

    def clip_gradients(self, module: nn.Module, optimizer: Any, *, max_norm: float) -> None:
        del module, optimizer
        nn.utils.clip_grad_norm_(self.module.model.parameters(), max_norm)


def _check_settings(falcon: Falcon) -> None:
    """Refuse settings that the Trainer would silently ignore."""
    defaults = Falcon()
    for name in TRAINER_SETTINGS:
        if getattr(falcon, name) != getattr(defaults, name):
            raise UserError(
                f"under Lightning {name} is the Trainer's: give Trainer({name}=...), and leave it "
                f"out of Falcon, which has {getattr(falcon, name)!r}."
            )
    if needs_fit(falcon):
        raise UserError(
            "under Lightning its callbacks keep epochs, stop early and average: give the Trainer a "
            'ModelCheckpoint(monitor="validation/nll"), an EarlyStopping or a WeightAveraging, and '
            'leave keep="best", patience and average out of Falcon.'
        )
