"""Datasets: parts of examples, batches of them, and the table of datasets.

To add one, write ``data/sets/NAME.py`` and add a line to ``DATASETS``: a function
``load() -> Dataset`` or, where there is something to choose, a class of settings with a method
``load``. If the test part has files of its own, the class has ``load_test`` too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from falconcal.core.batch import Batches
from falconcal.core.registry import look_up
from falconcal.core.settings import call_checked, check_settable
from falconcal.core.trust import PERSON, CodeKind, Trust, check_takes, is_function
from falconcal.data.bounds import Bounds, ChannelBounds
from falconcal.data.dataset import Dataset
from falconcal.data.given_data import as_part
from falconcal.data.images import Images
from falconcal.data.loader import Loader
from falconcal.data.part import PREDICTION_BATCH_SIZE, Augment, Examples, Part, TensorBatches
from falconcal.data.preparation import Preparation
from falconcal.data.sets import (
    cifar10,
    cifar10h,
    digits,
    elec2,
    fashion_mnist,
    gas_drift,
    image_folder,
    imagenet,
    imagenet_val,
    mnist,
    newsgroups,
    notmnist,
    objectnet,
    own_arrays,
    sensors,
    sequential_mnist,
    text_folder,
    usps,
)
from falconcal.data.subsets import sample, subset_all_parts, subset_test
from falconcal.data.texts import Texts
from falconcal.errors import UserError
from falconcal.io.image_files import Framing

DATASETS: dict[str, Callable[..., Any]] = {
    "digits": digits.load_digits_dataset,
    "mnist": mnist.Mnist,
    "fashion_mnist": fashion_mnist.FashionMnist,
    "cifar10": cifar10.Cifar10,
    "sequential_mnist": sequential_mnist.SequentialMnist,
    "newsgroups": newsgroups.Newsgroups,
    "sensors": sensors.Sensors,
    "gas_drift": gas_drift.GasDrift,
    "elec2": elec2.Elec2,
    "usps": usps.Usps,
    "notmnist": notmnist.NotMnist,
    "cifar10h": cifar10h.Cifar10H,
    "imagenet": imagenet.ImageNet,
    "imagenet_val": imagenet_val.ImageNetVal,
    "objectnet": objectnet.ObjectNet,
    "image_folder": image_folder.ImageFolder,
    "text_folder": text_folder.TextFolder,
    "npz": own_arrays.Npz,
    "csv": own_arrays.Csv,
}
"""The datasets by name: functions, or classes of settings with ``load``."""

__all__ = [
    "DATASETS",
    "PREDICTION_BATCH_SIZE",
    "Augment",
    "Batches",
    "Bounds",
    "ChannelBounds",
    "Dataset",
    "Examples",
    "Framing",
    "Images",
    "Loader",
    "Part",
    "Preparation",
    "TensorBatches",
    "Texts",
    "as_part",
    "load_dataset",
    "load_test",
    "sample",
    "subset_all_parts",
    "subset_test",
]


def load_dataset(name: str, **settings: Any) -> Dataset:
    """Return a dataset by name.

    ``falconcal list datasets`` shows the names. Only ``digits`` and ``sensors`` need no files;
    others are looked for in the folder that ``FALCONCAL_DATA`` names, then in the cache, and
    downloaded where that is possible.

    Args:
        name: A name in ``DATASETS``, or ``package.module:Name`` of your own loader.
        **settings: The settings of the dataset.

    Returns:
        The dataset, with its three parts.

    Raises:
        UsageError: The name or a setting is not known.
        UserError: Files are missing or damaged.

    Example:
        >>> import falconcal
        >>> digits = falconcal.load_dataset("digits")
        >>> len(digits.train), len(digits.validation), len(digits.test), len(digits.classes)
        (1200, 200, 397, 10)
    """
    return load_named(name, settings, PERSON)


def load_test(name: str, **settings: Any) -> Part:
    """Return only the test part of a dataset, for example to use it as outliers.

    Args:
        name: A name in ``DATASETS``, or ``package.module:Name`` of your own loader.
        **settings: The settings of the dataset.

    Returns:
        The test part; other files are not read where the test part has its own.

    Raises:
        UsageError: The name or a setting is not known.
        UserError: Files are missing or damaged.

    Example:
        >>> import falconcal
        >>> len(falconcal.data.load_test("digits"))
        397
    """
    return load_named_test(name, settings, PERSON)


def load_named(name: str, settings: Mapping[str, Any], trust: Trust) -> Dataset:
    """Return a dataset that a file names, with its settings."""
    dataset = _verb(name, settings, "load", trust)()
    if not isinstance(dataset, Dataset):
        raise UserError(f"expected dataset {name!r} to load a falconcal.Dataset, got {dataset!r}.")
    return dataset


def load_named_test(name: str, settings: Mapping[str, Any], trust: Trust) -> Part:
    """Return only the test part of a dataset that a file names."""
    alone = hasattr(look_up(DATASET_CODE, name, DATASETS, trust), "load_test")
    part: Part = (
        _verb(name, settings, "load_test", trust)()
        if alone
        else load_named(name, settings, trust).test
    )
    return part


def check_dataset(name: str, settings: Mapping[str, Any], trust: Trust) -> None:
    """Refuse a name or settings that are not valid, before anything is loaded."""
    _verb(name, settings, "load", trust)


def is_loader(thing: object) -> bool:
    """Return whether a thing can load a dataset: a function, or a class with ``load``."""
    if isinstance(thing, type):
        return callable(getattr(thing, "load", None))
    return is_function(thing)


DATASET_CODE = CodeKind(
    "dataset", "a function that returns a falconcal.Dataset, or a class with load", is_loader
)


def _verb(name: str, settings: Mapping[str, Any], verb: str, trust: Trust) -> Callable[[], Any]:
    """Return what loads a dataset, its settings checked."""
    found = look_up(DATASET_CODE, name, DATASETS, trust)
    if name not in DATASETS:
        check_takes(f"dataset {name}", found, **settings)
    if isinstance(found, type):
        bound: Callable[[], Any] = getattr(found(**settings), verb)
        return bound
    check_settable(f"dataset {name}", found, settings)
    return partial(call_checked, f"dataset {name}", found, **settings)
