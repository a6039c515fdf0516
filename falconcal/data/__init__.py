"""Datasets: one file each, and the table of them.

Adding one: write ``data/NAME.py`` with ``load() -> Dataset`` and add a line to ``DATASETS``.
"""

from collections.abc import Callable
from typing import Any

from falconcal.data import digits
from falconcal.data.examples import Batches, Bounds, Dataset, Examples, TensorBatches
from falconcal.errors import UserError
from falconcal.registry import look_up

DATASETS: dict[str, Callable[..., Dataset]] = {
    "digits": digits.load,
}

__all__ = ["DATASETS", "Batches", "Bounds", "Dataset", "Examples", "TensorBatches", "load_dataset"]


def load_dataset(name: str, **settings: Any) -> Dataset:
    """Return a dataset by its name in the table, with settings where it has any."""
    dataset = look_up("dataset", name, DATASETS)(**settings)
    if not isinstance(dataset, Dataset):
        raise UserError(f"expected dataset {name!r} to load a falconcal.Dataset, got {dataset!r}.")
    return dataset
