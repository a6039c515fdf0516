"""What a training is made of: the task as it was given, and the context made of it once.

Nothing in either changes while the model is trained; what does is in ``state.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from falconcal.core.batch import check_batches, check_reiterable, checked_batches
from falconcal.core.layout import prefer_channels_last
from falconcal.core.model_inputs import Inputs
from falconcal.core.module_state import check_module, submodules_in_eval, to_weights_dtype
from falconcal.core.perturbation_point import PerturbationPoint, find_perturbation_point
from falconcal.core.randomness import seeded_random
from falconcal.core.settings import as_dict
from falconcal.data import Batches, Bounds
from falconcal.errors import UserError, described
from falconcal.training.batches import batches_of_process, count_examples
from falconcal.training.checkpoints import Checkpoint
from falconcal.training.common_settings import SETTINGS_WITHOUT_EFFECT, TrainingSettings
from falconcal.training.fabric import conversion, set_up
from falconcal.training.model_setup import set_dropout
from falconcal.training.objectives import Objective
from falconcal.training.recipe import NO_RECIPE, ExampleLoss, Recipe, check_step
from falconcal.training.step import (
    AuxiliaryNetwork,
    StatedBounds,
    StepContext,
    TrainingProcesses,
    bounds_of,
)

MakeAuxiliary = Callable[[Inputs, Bounds | None], dict[str, nn.Module]]


@dataclass(frozen=True)
class TrainingTask:
    """What is to be trained, as it is sent to the processes that train it."""

    model: nn.Module
    train: Batches
    validation: Batches | None
    objectives: list[Objective]
    settings: TrainingSettings
    stated_bounds: StatedBounds
    make_auxiliary: MakeAuxiliary | None
    checkpoint: Checkpoint | None
    recipe: Recipe = NO_RECIPE
    result_file: Path | None = None  # where the result goes; None is into the model


@dataclass(frozen=True)
class TrainingContext:
    """What one process trains with."""

    task: TrainingTask
    fabric: Fabric
    batches: Batches  # of this process
    steps: StepContext
    networks: Mapping[str, nn.Module]  # the auxiliary ones, unwrapped
    optimizers: list[Optimizer]  # one per objective
    wrapped_optimizers: list[Any]
    resting: list[nn.Module]  # submodules that stay in inference mode
    scheduler: LRScheduler | None = None  # of the model's own optimiser

    @property
    def model(self) -> nn.Module:
        return self.task.model

    @property
    def settings(self) -> TrainingSettings:
        return self.task.settings

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with: settings, objectives and shapes of weights."""
        weights = self.model.state_dict()
        for name, network in self.networks.items():
            weights |= {f"{name}: {key}": value for key, value in network.state_dict().items()}
        shapes = {name: list(value.shape) for name, value in weights.items()}
        names = [objective.name for objective in self.task.objectives]
        settings = as_dict(self.settings)
        for name in SETTINGS_WITHOUT_EFFECT:
            settings.pop(name, None)
        return {"settings": settings, "objectives": names, "weights": shapes}


def check_given(model: object, train: object, validation: object) -> None:
    """Refuse what cannot be a model and batches, before anything is done with them."""
    check_module(model)
    check_batches(train, "training")
    if validation is not None:
        check_batches(validation, "validation")


def make_context(fabric: Fabric, task: TrainingTask) -> TrainingContext:
    """Check the data, prepare the model, and give networks and optimisers to Fabric."""
    check_reiterable(task.train, "training")
    if task.validation is not None:
        check_reiterable(task.validation, "validation")
    if task.settings.dropout is not None:
        set_dropout(task.model, task.settings.dropout)
    inputs = _first_inputs(task)
    prefer_channels_last(task.model, inputs)
    steps, networks = _inspect_data(task, inputs)
    resting = submodules_in_eval(task.model)
    objectives = with_own_optimizer(task.objectives, task.recipe)
    optimizers = [_optimizer(one, _network_of(one, task, networks)) for one in objectives]
    scheduler = task.recipe.schedule(optimizers[model_objective(objectives)])
    wrapped, auxiliary, stepped = _wrap_networks(fabric, task, networks, optimizers)
    steps = replace(
        steps,
        wrapped=wrapped,
        auxiliary=auxiliary,
        processes=TrainingProcesses.of(fabric),
        convert=conversion(fabric, task.model),
    )
    batches = batches_of_process(task.train, fabric)
    return TrainingContext(
        task, fabric, batches, steps, networks, optimizers, stepped, resting, scheduler
    )


def model_objective(objectives: list[Objective]) -> int:
    """Return the number of the objective that trains the model on clean batches: its first."""
    return next(number for number, one in enumerate(objectives) if one.network is None)


def with_own_optimizer(objectives: list[Objective], recipe: Recipe) -> list[Objective]:
    """Return the objectives, that of the model with the optimiser of a recipe."""
    if recipe.optimizer is None:
        return objectives
    first = model_objective(objectives)
    own = replace(objectives[first], optimizer=recipe.optimizer)
    return [*objectives[:first], own, *objectives[first + 1 :]]


def _inspect_data(task: TrainingTask, inputs: Inputs) -> tuple[StepContext, dict[str, nn.Module]]:
    """Return what the data says of the steps, and auxiliary networks for such inputs."""
    objectives = task.objectives
    counted = any(objective.counts_examples for objective in objectives)
    examples = count_examples(task.train) if counted else None
    bounds = bounds_of(task.train, task.stated_bounds, inputs)
    perturbed = any(objective.perturbs for objective in objectives)
    point = find_perturbation_point(task.model, inputs) if perturbed else PerturbationPoint()
    steps = StepContext(
        model=task.model,
        wrapped=task.model,
        seed=task.settings.seed,
        classes=getattr(task.train, "classes", None),
        bounds=bounds,
        perturbation_point=point,
        training_examples=examples,
        base_loss=_base_loss(task),
    )
    return steps, _auxiliary_networks(task, inputs, bounds)


def _base_loss(task: TrainingTask) -> ExampleLoss:
    recipe = task.recipe
    return ExampleLoss(recipe.loss, recipe.label_smoothing, recipe.weights_of(task.train))


def _first_inputs(task: TrainingTask) -> Inputs:
    """Return the inputs of the first batch, which says what the data looks like."""
    with torch.random.fork_rng():
        inputs, _ = next(iter(checked_batches(task.train)), (torch.empty(0), None))
    return to_weights_dtype(task.model, inputs)


def _auxiliary_networks(
    task: TrainingTask, inputs: Inputs, bounds: Bounds | None
) -> dict[str, nn.Module]:
    if task.make_auxiliary is None:
        return {}
    with seeded_random(task.settings.seed):  # in every process the same
        return task.make_auxiliary(inputs, bounds)


def _network_of(
    objective: Objective, task: TrainingTask, networks: Mapping[str, nn.Module]
) -> nn.Module:
    return task.model if objective.network is None else networks[objective.network]


def _optimizer(objective: Objective, network: nn.Module) -> Optimizer:
    parameters = [weight for weight in network.parameters() if weight.requires_grad]
    if not parameters:
        raise UserError("expected weights to train, got a model whose every weight is frozen.")
    made = objective.optimizer(parameters)
    if not isinstance(made, Optimizer):
        raise UserError(f"expected the optimizer to make an optimiser, got {described(made)}.")
    check_step(made)
    return made


def _wrap_networks(
    fabric: Fabric,
    task: TrainingTask,
    networks: Mapping[str, nn.Module],
    optimizers: list[Optimizer],
) -> tuple[nn.Module, dict[str, AuxiliaryNetwork], list[Any]]:
    """Return the model, the auxiliary networks and all optimisers as Fabric wraps them."""
    stepped: dict[int, Any] = {}

    def wrap(network: nn.Module, name: str | None) -> nn.Module:
        numbers = [number for number, one in enumerate(task.objectives) if one.network == name]
        wrapped, ready = set_up(fabric, network, [optimizers[number] for number in numbers])
        stepped.update(zip(numbers, ready, strict=True))
        return wrapped

    model = wrap(task.model, None)
    auxiliary = {
        name: AuxiliaryNetwork(wrap(network, name), network) for name, network in networks.items()
    }
    return model, auxiliary, [stepped[number] for number in range(len(optimizers))]
