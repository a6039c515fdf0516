"""Datasets: one file each, and the table of them.

Adding one: write ``data/NAME.py`` and add a line to ``DATASETS``: a function ``load() -> Dataset``
or, where there is something to choose, a class of settings with the verb ``load``. Where the test
part can be had alone, as outliers are, the class has ``load_test`` too.
"""

from collections.abc import Callable
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
    "load_dataset",
    "load_test",
    "some",
]


def load_dataset(name: str, **settings: Any) -> Dataset:
    """Return a dataset by its name in the table, with settings of its own."""
    dataset = _verb(name, settings, "load")()
    if not isinstance(dataset, Dataset):
        raise UserError(f"expected dataset {name!r} to load a falconcal.Dataset, got {dataset!r}.")
    return dataset


def load_test(name: str, **settings: Any) -> Part:
    """Return the test part alone, from its own files where they are apart, as for outliers."""
    alone = hasattr(look_up("dataset", name, DATASETS), "load_test")
    part: Part = (
        _verb(name, settings, "load_test")() if alone else load_dataset(name, **settings).test
    )
    return part


def check_dataset(name: str, **settings: Any) -> None:
    """Refuse a name or settings that cannot be, before anything is loaded."""
    _verb(name, settings, "load")


def _verb(name: str, settings: dict[str, Any], verb: str) -> Callable[[], Any]:
    """Return what loads a dataset, its settings checked."""
    found = look_up("dataset", name, DATASETS)
    if isinstance(found, type):
        bound: Callable[[], Any] = getattr(found(**settings), verb)
        return bound
    check_settable(f"dataset {name}", found, settings)
    return partial(call_checked, f"dataset {name}", found, **settings)
