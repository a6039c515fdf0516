"""The one training loop, on Lightning Fabric.

It iterates over epochs and batches, steps a method's objectives, records their terms, keeps the
epoch with the best criterion if one is chosen, and goes on where an interrupted training stopped.
"""

import copy
import os
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from lightning_fabric import Fabric
from lightning_fabric.strategies.launchers import _MultiProcessingLauncher
from torch import nn
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from falconcal.core.batch import Batch, checked_batches
from falconcal.core.distributed import (
    broadcast_from_first,
    close_process_group,
    started_processes,
    take_statistics_from_first,
)
from falconcal.core.freed_memory import freed_memory_kept
from falconcal.core.module_state import flush_denormals, train_except
from falconcal.core.randomness import combined_seed, seeded_random
from falconcal.data import PREDICTION_BATCH_SIZE, Batches, Part
from falconcal.errors import UserError
from falconcal.io.atomic import write_text
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.models.predict import predict
from falconcal.training.averaging import Average
from falconcal.training.batches import accumulation_groups, own_generators
from falconcal.training.checkpoints import load_checkpoint, next_checkpoint, save_checkpoint
from falconcal.training.collapse import warn_if_collapsed, warn_if_timid
from falconcal.training.common_settings import TrainingSettings
from falconcal.training.context import (
    MakeAuxiliary,
    TrainingContext,
    TrainingTask,
    check_given,
    make_context,
)
from falconcal.training.history import EpochRecord, StopReason, publish, show_weights
from falconcal.training.objectives import Objective
from falconcal.training.precision import check_bfloat16, of_precision
from falconcal.training.recipe import NO_RECIPE, Recipe, fast_forward
from falconcal.training.run_steps import run_steps
from falconcal.training.selection import EpochSelector
from falconcal.training.state import TrainingState
from falconcal.training.step import StatedBounds, Step, check_batch, make_step


def fit_objectives(
    model: nn.Module,
    train: Batches,
    validation: Batches | None,
    objectives: list[Objective],
    settings: TrainingSettings,
    bounds: StatedBounds = None,
    auxiliary: MakeAuxiliary | None = None,
    recipe: Recipe = NO_RECIPE,
) -> nn.Module:
    """Train the model in place, keep the epoch asked for, and return it in inference mode.

    ``auxiliary`` makes the networks that are trained beside it, for inputs such as the first.
    """
    if isinstance(validation, Part):
        validation = validation.batches(PREDICTION_BATCH_SIZE)
    check_given(model, train, validation)
    _check_validation(settings, validation)
    checkpoint = next_checkpoint()
    task = TrainingTask(
        model, train, validation, objectives, settings, bounds, auxiliary, checkpoint, recipe
    )
    fabric = make_fabric(settings)
    if isinstance(fabric.strategy.launcher, _MultiProcessingLauncher):
        _run_in_processes(fabric, task)
    else:
        fabric.launch()
        _train(fabric, task)
    if fabric.global_rank == 0 and validation is not None:
        warn_of_predictions(model, validation, settings.seed)
    return model.eval()


def _check_validation(settings: TrainingSettings, validation: Batches | None) -> None:
    """Refuse to choose an epoch by data that is not there."""
    if validation is None and (settings.keep == "best" or settings.patience is not None):
        raise UserError(
            "fit needs validation=, batches that choose the epoch, got None: give them, or leave "
            'keep="best" and patience out.'
        )


def warn_of_predictions(model: nn.Module, validation: Batches, seed: int) -> None:
    """Warn of a model that knows nothing, or hardly trusts what it knows."""
    with seeded_random(seed):  # iterating over a DataLoader draws random numbers
        answers = predict(model, validation, single_process=True)
        warn_if_collapsed(answers)
        warn_if_timid(answers)


def make_fabric(settings: TrainingSettings) -> Fabric:
    """Return Fabric for the settings; processes are spawned unless they were started already."""
    strategy, devices, nodes = settings.strategy, settings.devices, settings.num_nodes
    if devices * nodes == 1:  # not stated: torchrun's processes train together, not each for itself
        devices, nodes = started_processes()
    if strategy == "auto" and devices * nodes > 1:
        strategy = "ddp" if "LOCAL_RANK" in os.environ else "ddp_spawn"
    fabric = Fabric(
        accelerator=settings.accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        **of_precision(settings.precision),
    )
    check_bfloat16(fabric)
    return fabric


def _run_in_processes(fabric: Fabric, task: TrainingTask) -> None:
    """Train in processes of their own; weights and records come back in a file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "outcome.safetensors"
        try:
            # Fabric looks for modules in a function's arguments and refuses frozen dataclasses
            fabric.launch(partial(_train_in_process, replace(task, result_file=file), file))
        except ProcessException as error:
            raise _process_error(file, error) from None
        weights, metadata = read_tensors(file)
    fabric.strategy.precision.convert_module(task.model).load_state_dict(weights)
    for record in metadata["records"]:
        publish(EpochRecord(**record))


def _train_in_process(task: TrainingTask, result_file: Path, fabric: Fabric) -> None:
    """Train in a process of its own; an error of the user's goes into a file beside the result."""
    try:
        # spawned processes share the memory of weights
        _train(fabric, replace(task, model=copy.deepcopy(task.model)))
        close_process_group()
    except UserError as error:
        write_text(result_file.with_suffix(".error"), str(error))
        raise


def _process_error(result_file: Path, error: Exception) -> Exception:
    """Return the error that a process of our own ended with, as if it had been raised here."""
    message = result_file.with_suffix(".error")
    if message.exists():
        return UserError(message.read_text(encoding="utf-8"))
    if isinstance(error, ProcessExitedException):
        return UserError(f"a process of the training was ended from outside: {error}.")
    return error


def _train(fabric: Fabric, task: TrainingTask) -> None:
    """Train from the start, or from the checkpoint, to the end."""
    rank, seed = fabric.global_rank, task.settings.seed
    kept = freed_memory_kept(task.settings.reuse_memory and fabric.device.type == "cpu")
    # iterating over a DataLoader draws random numbers too
    with kept, flush_denormals(), seeded_random(combined_seed(seed, rank) if rank else seed):
        context = make_context(fabric, task)
        state = _resumed_state(context)
        while not state.ended:
            _run_epoch(context, state)
        _load_kept_weights(state)
        if task.result_file is not None and rank == 0:
            records = [asdict(record) for record in state.records]
            write_tensors(task.result_file, task.model.state_dict(), {"records": records})


def _resumed_state(context: TrainingContext) -> TrainingState:
    """Return the state to begin at; records of finished epochs are published again."""
    task, decay = context.task, context.settings.average
    state = TrainingState(
        model=context.model,
        auxiliary=dict(context.networks),
        optimizers=context.optimizers,
        selector=_make_selector(context),
        average=None if decay is None else Average(context.model, decay),
        generators=own_generators(context.batches),
    )
    if task.checkpoint is not None:
        load_checkpoint(task.checkpoint, context.identity(), state, task.settings)
        if context.scheduler is not None:
            fast_forward(context.scheduler, state.taken)
    for record in state.records if task.result_file is None else []:
        publish(record)
    return state


def _make_selector(context: TrainingContext) -> EpochSelector | None:
    settings = context.settings
    if settings.keep == "last" and settings.patience is None:
        return None
    agree = broadcast_from_first if context.fabric.world_size > 1 else None
    assert context.task.validation is not None  # checked at the door
    return EpochSelector(
        context.task.validation, settings.epochs, context.steps.bounds, settings.patience, agree
    )


def _run_epoch(context: TrainingContext, state: TrainingState) -> None:
    """Train to the end of the epoch, apply the criterion if one is due, and record it."""
    train_except(context.model, context.resting)
    means = _train_epoch(context, state)
    take_statistics_from_first(context.model)
    criterion = _apply_criterion(state)
    ended = _stop_reason(context, state)
    kept = state.selector.best().epoch if ended and state.selector is not None else None
    record = EpochRecord(state.epoch, context.settings.epochs, means, criterion, kept, ended)
    state.finish_epoch(record)
    if context.task.result_file is None:
        publish(record)
    checkpoint = context.task.checkpoint
    if checkpoint is not None and checkpoint.due_after(record.epoch, bool(ended)):
        _save(context, state)


def _apply_criterion(state: TrainingState) -> dict[str, float]:
    """Return the figures of the epoch, if one is to be chosen."""
    with state.average.in_place() if state.average is not None else nullcontext():
        take_statistics_from_first(state.model)  # each process has its own mean of them too
        show_weights(state.model, state.epoch)
        return {} if state.selector is None else state.selector.check(state.model, state.epoch)


def _stop_reason(context: TrainingContext, state: TrainingState) -> StopReason | None:
    """Return why this epoch is the last, if it is; the same in all processes."""
    if state.epoch == context.settings.epochs:
        return "epochs"
    if state.selector is not None and state.selector.out_of_patience(state.epoch):
        return "patience"
    return None


def _train_epoch(context: TrainingContext, state: TrainingState) -> dict[str, float]:
    """Take the steps that are left of the epoch and return the mean of every term."""
    batches, settings, checkpoint = context.batches, context.settings, context.task.checkpoint
    if hasattr(batches, "set_epoch"):
        batches.set_epoch(state.epoch)
    state.begin_epoch()
    groups = accumulation_groups(checked_batches(batches), settings.accumulate)
    for _ in islice(groups, state.steps):
        pass  # done before the checkpoint
    state.restore_random_state()
    for group in groups:
        steps = [_next_step(context, state, batch) for batch in group]
        objectives, optimizers = context.task.objectives, context.wrapped_optimizers
        state.add(run_steps(context.fabric, steps, objectives, optimizers, settings.clip_norm))
        if context.scheduler is not None:
            context.scheduler.step()
        if state.average is not None:
            state.average.update()
        if checkpoint is not None and checkpoint.due_now():
            _save(context, state)
    return state.means()


def _next_step(context: TrainingContext, state: TrainingState, batch: Batch) -> Step:
    if state.epoch == 1:
        check_batch(*batch, context.steps.bounds)
    epochs = context.settings.epochs
    return make_step(context.steps, batch, state.epoch, epochs, state.next_batch())


def _save(context: TrainingContext, state: TrainingState) -> None:
    if context.task.checkpoint is not None and context.fabric.global_rank == 0:
        save_checkpoint(context.task.checkpoint, context.identity(), state)


def _load_kept_weights(state: TrainingState) -> None:
    if state.selector is not None:
        state.model.load_state_dict(state.selector.best().weights)
    elif state.average is not None:
        state.model.load_state_dict(state.average.state)
