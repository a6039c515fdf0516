"""FALCON under the Trainer of Hugging Face; needs the extra ``transformers``."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.batch import Batch, BatchForm, read_batch
from falconcal.core.distributed import rank, sum_over_processes, world_size
from falconcal.core.model_inputs import logits_of
from falconcal.core.perturbation_point import (
    EmbeddingPoint,
    PerturbationPoint,
    find_perturbation_point,
)
from falconcal.errors import UserError
from falconcal.integrations.common_bins import with_common_bins
from falconcal.integrations.own_loop import needs_fit
from falconcal.methods import Falcon
from falconcal.methods.falcon import entropy_of
from falconcal.metrics import METRICS
from falconcal.metrics.predictions import Predictions
from falconcal.training.losses import predictive_entropy_terms
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
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(
        "falconcal.integrations.transformers needs transformers: "
        "pip install 'falconcal[transformers]'."
    ) from error

# settings of Falcon that are the Trainer's, and what it calls them
TRAINERS_OWN = {
    "accumulate": "gradient_accumulation_steps",
    "l2_weight": "weight_decay",
    "precision": "bf16 or fp16",
    "devices": "torchrun or accelerate launch",
    "num_nodes": "torchrun or accelerate launch",
    "strategy": "torchrun or accelerate launch",
    "accelerator": "use_cpu",
}
METRIC_NAMES = ("accuracy", "ece", "nll", "brier", "signed_gap")


def calibration_metrics(answers: Any) -> dict[str, float]:
    """Return accuracy, ECE, NLL, Brier score and signed gap of an evaluation.

    Args:
        answers: What the Trainer gives ``compute_metrics``: predictions, which are logits or a
            tuple that begins with them, and labels.

    Returns:
        The figures by name.
    """
    logits, labels = answers.predictions, answers.label_ids
    logits = logits[0] if isinstance(logits, tuple) else logits
    rows = logits_of(torch.as_tensor(logits))
    scores = Predictions.from_logits(rows, torch.as_tensor(labels).long()).scores()
    return {name: METRICS[name](scores) for name in METRIC_NAMES}


class FalconTrainer(Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer`` that takes both of FALCON's steps.

    The clean step is the Trainer's own, its loss with the entropy term added; after it comes the
    calibration step, on the batches of the same step. Epochs, optimiser, schedule, accumulation,
    precision and processes are those of ``TrainingArguments``. With both weights 0 it is the
    Trainer, to the bit. Its terms are logged, and evaluations have ECE, NLL, Brier score and
    signed gap.

    Args:
        *args: What ``Trainer`` takes.
        falcon: Weights, annealing, epsilons, bounds of the inputs and so on; None takes the
            defaults.
        perturb: The name of the input that is perturbed; None finds it: the only floating-point
            one, or the embedding of ``input_ids``.
        **kwargs: What ``Trainer`` takes; ``compute_metrics`` is ``calibration_metrics`` by default.

    Raises:
        UserError: If the settings ask for what is the Trainer's, or the model's task is not to
            choose one of several classes.
    """

    def __init__(
        self,
        *args: Any,
        falcon: Falcon | None = None,
        perturb: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.falcon = falcon or Falcon()
        _check_settings(self.falcon)
        kwargs.setdefault("compute_metrics", calibration_metrics)
        super().__init__(*args, **kwargs)
        _check_task(self.model)
        if self.args.n_gpu > 1:
            raise UserError(
                f"expected one device per process, got {self.args.n_gpu}: start the script with "
                "torchrun or accelerate launch."
            )
        if self.falcon.dropout is not None:
            set_dropout(self.model, self.falcon.dropout)
        label = (self.label_names or ["labels"])[0]
        self.form = BatchForm(labels=label, perturb=perturb)
        self.add_callback(_CalibrationStep(self))
        self._point: PerturbationPoint | None = None  # found on the first batch
        self._optimizer: torch.optim.Optimizer | None = None  # of the calibration step
        self._waiting: list[Step] = []
        self._current: Step | None = None  # the batch whose clean step is being taken
        self._batch = 0  # in the epoch
        self._terms: dict[str, list[Tensor]] = defaultdict(list)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Take the clean step on a batch, and keep it for the calibration step."""
        if self.falcon.entropy_weight == 0 and self.falcon.calibration_weight == 0:
            plain: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return plain
        inputs = self._prepare_inputs(inputs)
        step = self._step(model, inputs)
        inputs, watch = _watched(inputs, step, self._keeps())
        self._current = step
        try:
            with watch as kept:
                loss: Tensor = super().training_step(model, inputs, self._items(num_items_in_batch))
        finally:
            self._current = None
        step.input_gradient = kept[0].grad if kept else None
        if self.falcon.calibration_weight > 0:
            self._waiting.append(step)
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the Trainer's loss, in training with the entropy term."""
        loss, outputs = super().compute_loss(
            model, dict(inputs), return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        if self._current is not None:
            self._note("clean/loss", loss)
            if self.falcon.entropy_weight > 0:
                entropy = self._entropy(_logits(outputs), num_items_in_batch)
                self._note("clean/entropy", entropy)
                loss = loss + entropy
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log what the Trainer logs, and the means of the terms since the last time."""
        terms, self._terms = self._terms, defaultdict(list)
        means = {name: float(torch.stack(values).mean()) for name, values in terms.items()}
        super().log({**logs, **means}, *args, **kwargs)

    def calibrate(self) -> None:
        """Take the calibration step on the batches of the step that was taken."""
        steps, self._waiting = self._waiting, []
        if not steps:
            return
        objective = self.falcon.objectives()[1]
        model = steps[0].unwrapped
        if self._optimizer is None:
            weights = [weight for weight in model.parameters() if weight.requires_grad]
            self._optimizer = objective.optimizer(weights)
        if len(steps) > 1:
            rounds = 2 if self.falcon.calibration_form == "root" else 1
            objective = with_common_bins(objective, steps, rounds)
        engine = _Backward(self.accelerator.scaler, self._optimizer)
        terms = run_steps(engine, steps, [objective], [engine], self.falcon.clip_norm)
        for name, value in terms.get(objective.name, {}).items():
            self._note(f"{objective.name}/{name}", value)

    def begin_epoch(self) -> None:
        """Count batches from 0 again."""
        self._batch = 0

    def _keeps(self) -> bool:
        adversarial = "adversarial" in self.falcon.directions
        calibrates = self.falcon.calibration_weight > 0
        return calibrates and self.falcon.gradient == "shared" and adversarial

    def _step(self, model: nn.Module, inputs: Mapping[str, Any]) -> Step:
        batch = read_batch(inputs, self.form)
        context = self._context(model, batch)
        self._batch += 1
        epochs = max(math.ceil(self.args.num_train_epochs), 1)
        epoch = min(int(self.state.epoch or 0) + 1, epochs)
        return make_step(context, batch, epoch, epochs, self._batch - 1)

    def _context(self, model: nn.Module, batch: Batch) -> StepContext:
        inputs, labels = batch
        bare = self.accelerator.unwrap_model(model)
        bounds = bounds_of((), self.falcon.bounds, inputs)
        check_batch(inputs, labels, bounds)
        if self._point is None:
            self._point = find_perturbation_point(bare, inputs)
        return StepContext(
            model=bare,
            wrapped=model,
            seed=self.falcon.seed,
            bounds=bounds,
            perturbation_point=self._point,
            processes=_processes(),
        )

    def _entropy(self, logits: Tensor, items: Any) -> Tensor:
        """Return the weighted entropy term, on the scale of the Trainer's loss."""
        step, falcon = self._current, self.falcon
        assert step is not None
        weight, form = entropy_of(falcon, logits.shape[1], step.epoch, step.epochs)
        values = predictive_entropy_terms(logits, step.labels, form)
        share: Tensor = values.mean() if items is None else values.sum() / items
        return weight * (1 if items is None else step.processes.count) * share

    def _items(self, items: Any) -> Any:
        """Return the number of items of a whole step for a loss function of the user's own.

        Models take it too, but some ignore it, and their losses would add up instead of being
        averaged: without it all give the mean of a batch, which the Trainer then averages.
        """
        return None if self.compute_loss_func is None else items

    def _note(self, name: str, value: Tensor) -> None:
        self._terms[name].append(value.detach().float())


def _processes() -> TrainingProcesses:
    if world_size() == 1:
        return TrainingProcesses()
    return TrainingProcesses(world_size(), sum_over_processes, rank())


class _CalibrationStep(TrainerCallback):  # type: ignore[misc]
    """Calls the calibration step after the optimiser's."""

    def __init__(self, trainer: FalconTrainer) -> None:
        self.trainer = trainer

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.trainer.calibrate()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.begin_epoch()


class _Backward:
    """Backward passes and the step of the calibration optimiser, scaled in half precision."""

    def __init__(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        self.scale = 1.0 if scaler is None else float(scaler.get_scale())
        self.optimizer = optimizer

    def backward(self, tensor: Tensor) -> None:
        (tensor if self.scale == 1 else self.scale * tensor).backward()  # type: ignore[no-untyped-call]

    def clip_gradients(self, module: nn.Module, optimizer: Any, *, max_norm: float) -> None:
        del optimizer
        nn.utils.clip_grad_norm_(module.parameters(), max_norm * self.scale)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Step by the gradients, unless they overflowed."""
        groups = self.optimizer.param_groups
        found = [weight.grad for group in groups for weight in group["params"]]
        gradients = [gradient for gradient in found if gradient is not None]
        if self.scale != 1:
            torch._foreach_div_(gradients, self.scale)
            if not all(bool(gradient.isfinite().all()) for gradient in gradients):
                return
        self.optimizer.step()


def _watched(
    inputs: dict[str, Any], step: Step, wanted: bool
) -> tuple[dict[str, Any], AbstractContextManager[list[Tensor]]]:
    """Return the inputs, and a context that keeps what is perturbed, to read its gradient.

    Where it cannot be kept, the gradient is computed by a pass of its own.
    """
    point = step.perturbation_point
    if not wanted or isinstance(step.inputs, Tensor):
        return inputs, nullcontext([])
    if isinstance(point, EmbeddingPoint):
        return inputs, nullcontext([]) if point.matrix is None else _keeping(point.matrix)
    name = str(step.inputs.main_name)
    main = inputs[name].detach().requires_grad_()
    return {**inputs, name: main}, nullcontext([main])


@contextmanager
def _keeping(layer: nn.Embedding) -> Iterator[list[Tensor]]:
    """Keep what an embedding gives out inside, with its gradient."""
    kept: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Tensor) -> None:
        if not output.requires_grad:
            output.requires_grad_()
        output.retain_grad()
        kept.append(output)

    handle = layer.register_forward_hook(keep)
    try:
        yield kept
    finally:
        handle.remove()


def _logits(outputs: Any) -> Tensor:
    """Return the logits of outputs, which in a tuple come after the loss."""
    if isinstance(outputs, tuple | list) and not hasattr(outputs, "logits"):
        return logits_of(outputs[1])
    return logits_of(outputs)


def _check_task(model: Any) -> None:
    """Refuse a model whose own loss is that of another task."""
    config = getattr(model, "config", None)
    task, classes = (getattr(config, name, None) for name in ("problem_type", "num_labels"))
    if task in ("regression", "multi_label_classification") or (task is None and classes == 1):
        raise UserError(
            f"expected a model that chooses one of several classes, got problem_type={task} and "
            f"num_labels={classes}, which transformers trains by another loss: give it "
            "num_labels=2 or more, and whole-number labels."
        )


def _check_settings(falcon: Falcon) -> None:
    """Refuse settings that the Trainer would silently ignore."""
    defaults = Falcon()
    for name, words in TRAINERS_OWN.items():
        if getattr(falcon, name) != getattr(defaults, name):
            raise UserError(
                f"under the Trainer {name} is said by {words}: leave it out of Falcon, which has "
                f"{getattr(falcon, name)!r}."
            )
    if needs_fit(falcon):
        raise UserError(
            "the Trainer keeps checkpoints and stops early by its own arguments: leave "
            'keep="best", patience and average out of Falcon.'
        )
