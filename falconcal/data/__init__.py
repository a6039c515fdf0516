"""Datasets: one file each, and the table of them.

Adding one: write ``data/NAME.py`` and add a line to ``DATASETS``: a function ``load() -> Dataset``
or, where there is something to choose, a class of settings with the verb ``load``. Where the test
part can be had alone, as outliers are, the class has ``load_test`` too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from falconcal.data import (
    cifar10,
    digits,
    fashion_mnist,
    image_folder,
    imagenet,
    mnist,
    newsgroups,
    objectnet,
    own_arrays,
    sensors,
    sequential_mnist,
    text_folder,
)
from falconcal.data.examples import (
    AT_ONCE,
    Augment,
    Batches,
    Bounds,
    Dataset,
    Examples,
    Part,
    TensorBatches,
)
from falconcal.data.few import few, few_tested, some
from falconcal.data.images import Images
from falconcal.data.preparation import Preparation
from falconcal.data.texts import Texts
from falconcal.errors import UserError
from falconcal.io.image_files import Framing
from falconcal.registry import look_up
from falconcal.settings import call_checked, check_settable
from falconcal.trust import PERSON, CodeKind, Trust, check_takes, is_function

DATASETS: dict[str, Callable[..., Any]] = {
    "digits": digits.load,
    "mnist": mnist.Mnist,
    "fashion_mnist": fashion_mnist.FashionMnist,
    "cifar10": cifar10.Cifar10,
    "sequential_mnist": sequential_mnist.SequentialMnist,
    "newsgroups": newsgroups.Newsgroups,
    "sensors": sensors.Sensors,
    "imagenet": imagenet.ImageNet,
    "objectnet": objectnet.ObjectNet,
    "image_folder": image_folder.ImageFolder,
    "text_folder": text_folder.TextFolder,
    "npz": own_arrays.Npz,
    "csv": own_arrays.Csv,
}

__all__ = [
    "AT_ONCE",
    "DATASETS",
    "Augment",
    "Batches",
    "Bounds",
    "Dataset",
    "Examples",
    "Framing",
    "Images",
    "Part",
    "Preparation",
    "TensorBatches",
    "Texts",
    "check_dataset",
    "few",
    "few_tested",
    "is_loader",
    "load_dataset",
    "load_named",
    "load_named_test",
    "load_test",
    "some",
]


def load_dataset(name: str, **settings: Any) -> Dataset:
    """Return a dataset by its name in the table, with settings of its own."""
    return load_named(name, settings, PERSON)


def load_test(name: str, **settings: Any) -> Part:
    """Return the test part alone, from its own files where they are apart, as for outliers."""
    return load_named_test(name, settings, PERSON)


def load_named(name: str, settings: Mapping[str, Any], trust: Trust) -> Dataset:
    """Return a dataset that a file names, with settings of its own."""
    dataset = _verb(name, settings, "load", trust)()
    if not isinstance(dataset, Dataset):
        raise UserError(f"expected dataset {name!r} to load a falconcal.Dataset, got {dataset!r}.")
    return dataset


def load_named_test(name: str, settings: Mapping[str, Any], trust: Trust) -> Part:
    """Return the test part alone of a dataset that a file names."""
    alone = hasattr(look_up(KIND, name, DATASETS, trust), "load_test")
    part: Part = (
        _verb(name, settings, "load_test", trust)()
        if alone
        else load_named(name, settings, trust).test
    )
    return part


def check_dataset(name: str, settings: Mapping[str, Any], trust: Trust) -> None:
    """Refuse a name or settings that cannot be, before anything is loaded."""
    _verb(name, settings, "load", trust)


def is_loader(thing: object) -> bool:
    """Return whether a thing can be a dataset: a function, or a class with the verb ``load``."""
    if isinstance(thing, type):
        return callable(getattr(thing, "load", None))
    return is_function(thing)


KIND = CodeKind(
    "dataset", "a function that returns a falconcal.Dataset, or a class with load", is_loader
)


def _verb(name: str, settings: Mapping[str, Any], verb: str, trust: Trust) -> Callable[[], Any]:
    """Return what loads a dataset, its settings checked."""
    found = look_up(KIND, name, DATASETS, trust)
    if name not in DATASETS:
        check_takes(f"dataset {name}", found, **settings)
    if isinstance(found, type):
        bound: Callable[[], Any] = getattr(found(**settings), verb)
        return bound
    check_settable(f"dataset {name}", found, settings)
    return partial(call_checked, f"dataset {name}", found, **settings)
