"""Things from outside as a study file names them: a dataset and a network."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.settings import settings
from falconcal.data import Batches, Dataset, Examples
from falconcal.errors import UserError
from falconcal.inference.model_file import load
from falconcal.methods import L2Dropout
from falconcal.shifts import Shift
from falconcal.studies.study_reading import read_study, read_study_file
from tests.helpers.small_data import CLASSES, small_network, stripes

DEATHS = "FALCONCAL_TEST_DEATHS"  # the folder in which runs that died leave a file each
MEETING = "FALCONCAL_TEST_MEETING"  # the folder in which processes meet, each by a file

TRUST = ("--trust-code", "tests")  # for commands that meet the names of this file in others
read_own = partial(read_study, trust_code=["tests"])
read_own_file = partial(read_study_file, trust_code=["tests"])
load_own = partial(load, trust_code=["tests"])


def load_stripes() -> Dataset:
    """Stripes to the left, in the middle or to the right."""
    train, validation, test = stripes(90), stripes(30, 1), stripes(30, 2)
    return Dataset("stripes", "image", CLASSES, train.bounds, train, validation, test)


def make_small(dataset: Dataset) -> nn.Module:
    """A network that learns the stripes in a few steps."""
    return small_network(len(dataset.classes))


def load_table() -> Dataset:
    """The stripes as rows of numbers, no images any more."""
    images = load_stripes()
    train, validation, test = (
        Examples(part.inputs.flatten(1), part.labels, part.bounds, part.classes)
        for part in (images.train, images.validation, images.test)
    )
    return Dataset("table", "signal", CLASSES, train.bounds, train, validation, test)


inverted = Shift("invert", (0.0, 1.0), lambda inputs, strength, _: strength - inputs)


class Columns(nn.Module):
    """A network for rows of numbers whose size its arguments say."""

    def __init__(self, inputs: int, outputs: int, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)

    def forward(self, rows: Tensor) -> Tensor:  # (N, inputs) -> (N, outputs)
        logits: Tensor = self.last(self.first(rows).relu())
        return logits


class Scaled(nn.Module):
    """A model whose logits are multiplied by a number that was learned."""

    scale: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs) * self.scale
        return logits


@settings
class Scaling:
    """A method from outside that wraps what its base trains."""

    base: L2Dropout | None = None
    factor: float = 2.0

    def fit(self, model: nn.Module, train: Batches, validation: Batches) -> nn.Module:
        fitted = model if self.base is None else self.base.fit(model, train, validation)
        wrapped = self.build(fitted)
        wrapped.scale.fill_(self.factor)
        return wrapped.eval()

    def build(self, model: nn.Module) -> Scaled:
        return Scaled(model)


def make_unannotated(outputs):  # type: ignore[no-untyped-def]
    """A factory that does not say what it makes."""
    return small_network(outputs)


def load_with_one_process_failing() -> Dataset:
    """The stripes, but not in the second of several processes."""
    if os.environ.get("RANK") == "1":
        raise UserError("the data of process 1 cannot be read.")
    return load_stripes()


@settings
class Meeting(L2Dropout):
    """Trains like dropout, but where a folder is named for it waits there for another process."""

    def fit(self, *given: Any, **options: Any) -> nn.Module:
        folder = Path(os.environ.get(MEETING, ""))
        if MEETING in os.environ:
            (folder / str(os.getpid())).touch()
        deadline = time.monotonic() + 120
        while MEETING in os.environ and len(list(folder.iterdir())) < 2:
            assert time.monotonic() < deadline, "nobody came"
            time.sleep(0.05)
        return L2Dropout.fit(self, *given, **options)


@settings
class Raising(L2Dropout):
    """Fails as something from outside may."""

    def fit(self, *_: Any, **__: Any) -> nn.Module:
        raise KeyError("of no use")


@settings
class Dying(L2Dropout):
    """Trains like dropout, but its process dies at the first few attempts."""

    deaths: int = 1

    def fit(self, *given: Any, **options: Any) -> nn.Module:
        folder = Path(os.environ[DEATHS])
        before = len(list(folder.glob(f"{self.deaths}-*")))
        if before < self.deaths:
            (folder / f"{self.deaths}-{before}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return L2Dropout.fit(self, *given, **options)
