"""The one training loop, on Lightning Fabric.

It walks epochs and batches, steps a method's objectives, records their terms, keeps the epoch that
a judge likes best where there is one, and goes on where an interrupted training stopped.
"""

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import STRATEGY_REGISTRY
from lightning_fabric.strategies.launchers import _MultiProcessingLauncher
from pydantic import AfterValidator
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from falconcal.data import AT_ONCE, Batches, Bounds, Part
from falconcal.data.examples import check_walkable, mixed_seed, pairs
from falconcal.entrance import Entrance, find_entrance
from falconcal.errors import UserError
from falconcal.files import write_text
from falconcal.modes import quick_zeros, rest, resting_parts, seeded_random, typed
from falconcal.predictions import predict
from falconcal.processes import from_first, leave, take_statistics_from_first
from falconcal.selection import EpochKeeper
from falconcal.settings import (
    Count,
    Decay,
    LearningRate,
    PositiveNumber,
    Seed,
    Share,
    Weight,
    as_dict,
    settings,
)
from falconcal.tensors import read_tensors, write_tensors
from falconcal.training.averaging import Average
from falconcal.training.batches import grouped, own_generators, shared_out
from falconcal.training.checkpoints import (
    Checkpoint,
    Trained,
    load_checkpoint,
    next_checkpoint,
    save_checkpoint,
)
from falconcal.training.collapse import warn_if_collapsed
from falconcal.training.history import Ended, EpochRecord, announce
from falconcal.training.objectives import Companion, Objective, Processes, Step, run_steps
from falconcal.training.place import Place
from falconcal.training.precision import Precision, as_precise, of_precision
from falconcal.training.preparing import (
    StatedBounds,
    batch_random,
    bounds_of,
    check_batch,
    check_given,
    laid_out,
    lay_out_weights,
    set_dropout,
)


def _known(strategy: str) -> str:
    names = ["auto", *STRATEGY_REGISTRY.available_strategies()]
    if strategy not in names:
        raise ValueError(f"should be one of Fabric's, {', '.join(names)}")
    return strategy


MakeCompanions = Callable[[Tensor, Bounds | None], dict[str, nn.Module]]


@settings
class Training:
    """What every training method can be told."""

    epochs: Count = 20
    learning_rate: LearningRate = 1e-3
    l2_weight: Weight = 0.0  # times the sum of squared dense weights
    dropout: Share | None = None  # probability for every nn.Dropout; None leaves the model's own
    seed: Seed = 0
    keep: Literal["last", "best"] = "last"  # which epoch; best by the validation criterion
    patience: Count | None = None  # epochs after the best one at which training ends; best is kept
    clip_norm: PositiveNumber | None = None  # largest norm of the gradient of a step
    accumulate: Count = 1  # batches that count as one step
    average: Decay | None = None  # of a running mean of the weights, which is then what is kept
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: Count = 1  # of this machine, a process each
    num_nodes: Count = 1
    strategy: Annotated[str, AfterValidator(_known)] = (
        "auto"  # of Fabric, where there are several processes
    )
    precision: Precision = "32-true"


def fit_objectives(
    model: nn.Module,
    train: Batches,
    validation: Batches,
    objectives: list[Objective],
    training: Training,
    bounds: StatedBounds = None,
    companions: MakeCompanions | None = None,
) -> nn.Module:
    """Train the model in place, keep the epoch asked for, and return it in inference mode.

    ``companions`` makes the networks that are trained beside it, for inputs such as the first.
    """
    if isinstance(validation, Part):
        validation = validation.batches(AT_ONCE)
    check_given(model, train, validation)
    work = Work(model, train, validation, objectives, training, bounds, next_checkpoint())
    work.make_companions = companions
    fabric = make_fabric(training)
    if isinstance(fabric.strategy.launcher, _MultiProcessingLauncher):
        _run_elsewhere(fabric, work)
    else:
        fabric.launch()
        work.run(fabric)
    if fabric.global_rank == 0:
        with seeded_random(training.seed):  # walking through a DataLoader draws random numbers
            warn_if_collapsed(predict(model, validation, alone=True))
    return model.eval()


def make_fabric(training: Training) -> Fabric:
    """Return Fabric as the settings say; processes are spawned unless somebody started them."""
    strategy = training.strategy
    if strategy == "auto" and training.devices * training.num_nodes > 1:
        strategy = "ddp" if "LOCAL_RANK" in os.environ else "ddp_spawn"
    return Fabric(
        accelerator=training.accelerator,
        devices=training.devices,
        num_nodes=training.num_nodes,
        strategy=strategy,
        **of_precision(training.precision),
    )


def _run_elsewhere(fabric: Fabric, work: "Work") -> None:
    """Run in processes of their own; weights and records come back in a file."""
    with TemporaryDirectory() as folder:
        work.outcome = Path(folder) / "outcome.safetensors"
        try:
            fabric.launch(work.run)
        except ProcessException as error:
            raise _in_our_words(work.outcome, error) from None
        weights, facts = read_tensors(work.outcome)
    fabric.strategy.precision.convert_module(work.model).load_state_dict(weights)
    for record in facts["records"]:
        announce(EpochRecord(**record))


def _in_our_words(outcome: Path, error: Exception) -> Exception:
    """Return the error that a process of our own ended with, as if it had happened here."""
    message = outcome.with_suffix(".error")
    if message.exists():
        return UserError(message.read_text(encoding="utf-8"))
    if isinstance(error, ProcessExitedException):
        return UserError(f"a process of the training was ended from outside: {error}.")
    return error


class Work:
    """One training: what it works on, and what it has done."""

    def __init__(
        self,
        model: nn.Module,
        train: Batches,
        validation: Batches,
        objectives: list[Objective],
        training: Training,
        bounds: StatedBounds,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.model, self.train, self.validation = model, train, validation
        self.objectives, self.training, self.stated_bounds = objectives, training, bounds
        self.checkpoint = checkpoint
        self.make_companions: MakeCompanions | None = None
        self.outcome: Path | None = None  # where the result goes, if not into the model
        self.records: list[EpochRecord] = []

    def run(self, fabric: Fabric) -> None:
        """Train; a mistake of the user's in a process of its own is left for who started it."""
        try:
            self._run(fabric)
            if self.outcome is not None:
                leave()
        except UserError as error:
            if self.outcome is not None:
                write_text(self.outcome.with_suffix(".error"), str(error))
            raise

    def _run(self, fabric: Fabric) -> None:
        """Train from the start, or from the checkpoint, to the end."""
        rank, seed = fabric.global_rank, self.training.seed
        if self.outcome is not None:
            self.model = copy.deepcopy(self.model)  # spawned processes share the memory of weights
        # walking through a DataLoader draws random numbers too
        with quick_zeros(), seeded_random(mixed_seed(seed, rank) if rank else seed):
            self._prepare(fabric)
            place = self._resumed()
            while not (self.records and self.records[-1].ended):
                place = self._run_epoch(fabric, place)
            self._take_what_is_kept()
            if self.outcome is not None and rank == 0:
                records = [asdict(record) for record in self.records]
                write_tensors(self.outcome, self.model.state_dict(), {"records": records})

    def _take_what_is_kept(self) -> None:
        if self.keeper is not None:
            self.model.load_state_dict(self.keeper.best().weights)
        elif self.average is not None:
            self.model.load_state_dict(self.average.state)

    def _prepare(self, fabric: Fabric) -> None:
        check_walkable(self.train, "training")
        check_walkable(self.validation, "validation")
        if self.training.dropout is not None:
            set_dropout(self.model, self.training.dropout)
        self._look_at_data()
        chosen = self.training.keep == "best" or self.training.patience is not None
        self.keeper = self._make_keeper(fabric) if chosen else None
        lay_out_weights(self.model)
        self.resting = resting_parts(self.model)
        self._set_up(fabric)
        self.processes = Processes.of(fabric)
        self.batches = shared_out(self.train, fabric)

    def _make_keeper(self, fabric: Fabric) -> EpochKeeper:
        training = self.training
        agree = from_first if fabric.world_size > 1 else None
        return EpochKeeper(self.validation, training.epochs, self.bounds, training.patience, agree)

    def _look_at_data(self) -> None:
        """Find the bounds of the inputs, where they are perturbed, and networks sized to them."""
        with torch.random.fork_rng():
            inputs, _ = next(iter(pairs(self.train)), (torch.empty(0), None))
        inputs = typed(self.model, inputs)
        self.bounds = bounds_of(self.train, self.stated_bounds, inputs)
        perturbed = any(objective.perturbs for objective in self.objectives)
        self.entrance = find_entrance(self.model, inputs) if perturbed else Entrance()
        self.beside: dict[str, nn.Module] = {}
        if self.make_companions is not None:
            with seeded_random(self.training.seed):  # in every process the same
                self.beside = self.make_companions(inputs, self.bounds)

    def _set_up(self, fabric: Fabric) -> None:
        """Give every network to Fabric with the optimisers that step it."""
        optimizers = [self._optimizer(objective) for objective in self.objectives]
        self.trained = Trained(
            self.model, optimizers, self.keeper, self.records, self.beside, self._identity()
        )
        stepped: dict[int, Any] = {}
        self.wrapped = self._wrap(fabric, None, stepped)
        self.companions = {
            name: Companion(self._wrap(fabric, name, stepped), self.beside[name])
            for name in self.beside
        }
        self.optimizers = [stepped[number] for number in range(len(optimizers))]
        decay = self.training.average
        self.average = Average(self.model, decay) if decay is not None else None
        self.trained.average = self.average

    def _wrap(self, fabric: Fabric, name: str | None, stepped: dict[int, Any]) -> nn.Module:
        """Return a network as wrapped for training; its optimisers, wrapped, by their number."""
        numbers = [place for place, one in enumerate(self.objectives) if one.trains == name]
        optimizers = [self.trained.optimizers[number] for number in numbers]
        wrapped: nn.Module
        wrapped, *ready = fabric.setup(self._network(name), *optimizers)
        stepped.update(zip(numbers, ready, strict=True))
        return wrapped

    def _network(self, name: str | None) -> nn.Module:
        return self.model if name is None else self.beside[name]

    def _optimizer(self, objective: Objective) -> Any:
        weights = self._network(objective.trains).parameters()
        parameters = [weight for weight in weights if weight.requires_grad]
        if not parameters:
            raise UserError("expected weights to train, got a model whose every weight is frozen.")
        return objective.optimizer(parameters)

    def _identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with."""
        weights = self.model.state_dict()
        for name, companion in self.beside.items():
            weights |= {f"{name}: {key}": value for key, value in companion.state_dict().items()}
        shapes = {name: list(value.shape) for name, value in weights.items()}
        names = [objective.name for objective in self.objectives]
        return {"settings": as_dict(self.training), "objectives": names, "weights": shapes}

    def _resumed(self) -> Place:
        """Return the place to begin at; records of what is done are announced again."""
        place = load_checkpoint(self.checkpoint, self.trained) if self.checkpoint else None
        for record in self.records if self.outcome is None else []:
            announce(record)
        place = place or Place(1)
        place.sources = own_generators(self.batches)
        return place

    def _run_epoch(self, fabric: Fabric, place: Place) -> Place:
        """Train from a place to the end of its epoch, judge and record it; return the next."""
        rest(self.model, self.resting)
        means = self._train_epoch(fabric, place)
        take_statistics_from_first(self.model)
        judgement = self._judge(place.epoch)
        ended = self._why_it_ends(place.epoch)
        kept = self.keeper.best().epoch if ended and self.keeper is not None else None
        record = EpochRecord(place.epoch, self.training.epochs, means, judgement, kept, ended)
        self.records.append(record)
        if self.outcome is None:
            announce(record)
        if self.checkpoint is not None and self.checkpoint.due_after(place.epoch, bool(ended)):
            self._save(fabric, Place(place.epoch + 1, place.sources))
        return Place(place.epoch + 1, place.sources)

    def _judge(self, epoch: int) -> dict[str, float]:
        """Return the figures of an epoch, if one is to be chosen."""
        with self.average.in_place() if self.average is not None else nullcontext():
            take_statistics_from_first(self.model)  # the mean of them is each process's own too
            return self.keeper.judge(self.model, epoch) if self.keeper is not None else {}

    def _why_it_ends(self, epoch: int) -> Ended | None:
        """Return why this epoch is the last, if it is; all processes come to the same."""
        if epoch == self.training.epochs:
            return "epochs"
        if self.keeper is not None and self.keeper.out_of_patience(epoch):
            return "patience"
        return None

    def _train_epoch(self, fabric: Fabric, place: Place) -> dict[str, float]:
        """Take the epoch's steps from the place on and return the mean of every term."""
        if hasattr(self.batches, "set_epoch"):
            self.batches.set_epoch(place.epoch)
        place.begin()
        walk = grouped(pairs(self.batches), self.training.accumulate)
        for _ in islice(walk, place.steps):
            pass  # done before the checkpoint
        place.go_on()
        for group in walk:
            steps = [self._step(fabric, place, *batch) for batch in group]
            clip_norm = self.training.clip_norm
            place.add(run_steps(fabric, steps, self.objectives, self.optimizers, clip_norm))
            if self.average is not None:
                self.average.update()
            if self.checkpoint is not None and self.checkpoint.due_now():
                self._save(fabric, place)
        return place.means()

    def _step(self, fabric: Fabric, place: Place, inputs: Tensor, labels: Tensor) -> Step:
        if place.epoch == 1:
            check_batch(inputs, labels, self.bounds)
        return Step(
            model=self.wrapped,
            inputs=laid_out(as_precise(fabric, typed(self.model, fabric.to_device(inputs)))),
            labels=fabric.to_device(labels),
            epoch=place.epoch,
            epochs=self.training.epochs,
            random=batch_random(self.training.seed, place.epoch, place.next_batch()),
            classes=getattr(self.train, "classes", None),
            bounds=self.bounds,
            bare=self.model,
            entrance=self.entrance,
            processes=self.processes,
            companions=self.companions,
        )

    def _save(self, fabric: Fabric, place: Place) -> None:
        if self.checkpoint is not None and fabric.global_rank == 0:
            save_checkpoint(self.checkpoint, self.trained, place)
