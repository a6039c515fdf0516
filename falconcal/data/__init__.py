"""Datasets: one file each, and the table of them.

Adding one: write ``data/NAME.py`` with ``load() -> Dataset`` and add a line to ``DATASETS``.
"""

from collections.abc import Callable

from falconcal.data import digits
from falconcal.data.examples import Batches, Bounds, Dataset, Examples, TensorBatches
from falconcal.data.texts import Texts
from falconcal.errors import UserError
from falconcal.registry import look_up

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits.load,
}

__all__ = [
    "DATASETS",
    "Batches",
    "Bounds",
    "Dataset",
    "Examples",
    "TensorBatches",
    "Texts",
    "load_dataset",
]


def load_dataset(name: str) -> Dataset:
    """Return a dataset by its name in the table."""
    dataset = look_up("dataset", name, DATASETS)()
    if not isinstance(dataset, Dataset):
        raise UserError(f"expected dataset {name!r} to load a falconcal.Dataset, got {dataset!r}.")
    return dataset
