"""FALCON under Lightning's Trainer; needs the extra ``lightning``, so nothing else imports this."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from falconcal.core.batch import check_integer_labels
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
from falconcal.training import Step, TrainingProcesses, bounds_of, run_steps, set_dropout
from falconcal.training.context import (
    batch_random,
    check_batch,
    to_channels_last,
    weights_to_channels_last,
)

try:
    from lightning.pytorch import LightningModule
except ImportError as error:
    raise ImportError(
        "falconcal.integrations.lightning needs Lightning: pip install 'falconcal[lightning]'."
    ) from error

Batch = tuple[Tensor, Tensor]
OF_THE_TRAINER = ("accelerator", "devices", "num_nodes", "strategy", "precision")


class FalconModule(LightningModule):  # type: ignore[misc]
    """Any module that gives logits, trained by FALCON's two steps under Lightning's ``Trainer``.

    Epochs, devices and precision are the Trainer's; ``clip_norm`` and ``accumulate`` stay settings
    of ``Falcon``, since Lightning leaves them to modules that step by themselves. ``optimizer`` of
    the clean step, made of the weights, is Adam at the settings' learning rate if none is given.
    """

    def __init__(
        self,
        model: nn.Module,
        falcon: Falcon | None = None,
        optimizer: Any = None,  # called with the list of weights
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
        self._entrance: PerturbationPoint | None = None
        self._waiting: list[Step] = []
        self._scores: list[Scores] = []
        self.save_hyperparameters(as_dict(self.falcon))

    def forward(self, inputs: Tensor) -> Tensor:  # (N, ...) -> (N, C)
        logits: Tensor = self.model(inputs)
        return logits

    def configure_optimizers(self) -> list[Optimizer]:
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        clean, calibration = self._objectives
        return [(self._optimizer or clean.optimizer)(weights), calibration.optimizer(weights)]

    def on_fit_start(self) -> None:
        if self.falcon.clip_norm is not None and self.trainer.precision == "16-mixed":
            raise UserError(
                "clip_norm does not go with precision 16-mixed under Lightning, where gradients "
                "are scaled: use bf16-mixed, or leave it out."
            )

    def on_train_epoch_start(self) -> None:
        loader = self.trainer.train_dataloader
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(self.current_epoch + 1)  # our batches count from 1

    def training_step(self, batch: Batch, batch_index: int) -> None:
        """Take both steps on the batch; with ``accumulate``, on the group that it completes."""
        inputs, labels = self._part(batch)
        if len(batch[0]) >= self._parts():  # too small a batch to share is left out by all
            self._waiting.append(self._step(inputs, labels, batch_index))
        complete = len(self._waiting) == self.falcon.accumulate or self.trainer.is_last_batch
        if self._waiting and complete:
            self._run_waiting()

    def validation_step(self, batch: Batch, _: int) -> None:
        inputs, labels = batch
        self._scores.append(Predictions.from_logits(self(inputs).cpu(), labels.cpu()).scores())

    def on_validation_epoch_end(self) -> None:
        """Log the figures of all the validation data, from all processes."""
        mine, self._scores = Scores.concatenate(self._scores), []
        every = Scores(**{name: self._gathered(field) for name, field in vars(mine).items()})
        figures = {
            "accuracy": accuracy(every),
            "ece": expected_calibration_error(every),
            "nll": negative_log_likelihood(every),
        }
        self.log_dict({f"validation/{name}": value for name, value in figures.items()})

    def _parts(self) -> int:
        """Return among how many processes a batch is shared: a DataLoader has done so already."""
        loaded = isinstance(self.trainer.train_dataloader, DataLoader)
        return 1 if loaded else int(self.trainer.world_size)

    def _part(self, batch: Batch) -> Batch:
        """Return this process's part of a batch."""
        parts, mine = self._parts(), self.global_rank
        if parts == 1:
            return batch
        inputs, labels = (tensor.tensor_split(parts)[mine] for tensor in batch)
        return inputs, labels

    def _step(self, inputs: Tensor, labels: Tensor, index: int) -> Step:
        check_integer_labels(labels)
        loader = self.trainer.train_dataloader
        bounds = bounds_of(loader, self.falcon.bounds, inputs)
        check_batch(inputs, labels, bounds)
        if self._entrance is None:
            self._entrance = find_perturbation_point(self.model, inputs)
        epoch = self.current_epoch + 1
        return Step(
            model=self.model,
            inputs=to_channels_last(inputs),
            labels=labels.long(),
            epoch=epoch,
            epochs=self._epochs(),
            random=batch_random(self.falcon.seed, epoch, index),
            classes=getattr(loader, "classes", None),
            bounds=bounds,
            bare=self.model,
            perturbation_point=self._entrance,
            processes=self._processes(),
        )

    def _run_waiting(self) -> None:
        steps, self._waiting = self._waiting, []
        terms = run_steps(
            _Passes(self), steps, self._objectives, self.optimizers(), self.falcon.clip_norm
        )
        for objective, values in terms.items():
            self.log_dict({f"{objective}/{name}": value for name, value in values.items()})

    def _gathered(self, values: Tensor) -> Tensor:  # (N,) -> (processes * N,)
        if self.trainer.world_size == 1:
            return values
        everywhere: Tensor = self.all_gather(values.to(self.device))
        return everywhere.flatten().cpu()

    def _epochs(self) -> int:
        """Return how many epochs there are; those of the settings where the Trainer has no end."""
        epochs: int | None = self.trainer.max_epochs
        return epochs if epochs is not None and epochs > 0 else self.falcon.epochs

    def _processes(self) -> TrainingProcesses:
        strategy, count = self.trainer.strategy, self.trainer.world_size
        if count == 1:
            return TrainingProcesses()
        return TrainingProcesses(count, lambda value: strategy.reduce(value, reduce_op="sum"))


class _Passes:
    """Backward passes by way of the Trainer, which knows the precision and the processes."""

    def __init__(self, module: FalconModule) -> None:
        self.module = module

    def backward(self, tensor: Tensor) -> None:
        self.module.manual_backward(tensor)

    def clip_gradients(self, module: nn.Module, optimizer: Any, *, max_norm: float) -> None:
        del module, optimizer
        nn.utils.clip_grad_norm_(self.module.model.parameters(), max_norm)


def _check_settings(falcon: Falcon) -> None:
    """Refuse settings that the Trainer would pass over in silence."""
    usual = Falcon()
    for name in OF_THE_TRAINER:
        if getattr(falcon, name) != getattr(usual, name):
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
