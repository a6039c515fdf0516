"""Subsets of a dataset, the same examples every time."""

from dataclasses import replace

import torch
from torch import Tensor

from falconcal.data.dataset import Dataset
from falconcal.data.images import Images
from falconcal.data.part import Examples, Part
from falconcal.data.streamed_images import StreamedImages
from falconcal.data.texts import Texts


def subset_all_parts(dataset: Dataset, count: int) -> Dataset:
    """Return a dataset with at most ``count`` examples per part, the same ones every time.

    Args:
        dataset: The whole dataset.
        count: Examples per part.

    Returns:
        The smaller dataset.

    Example:
        >>> import falconcal
        >>> small = falconcal.data.subset_all_parts(falconcal.load_dataset("digits"), 50)
        >>> len(small.train), len(small.validation), len(small.test)
        (50, 50, 50)
    """
    whole = (dataset.train, dataset.validation, dataset.test)
    train, validation, test = (sample(part, count) for part in whole)
    return replace(dataset, train=train, validation=validation, test=test)


def subset_test(dataset: Dataset, count: int | None) -> Dataset:
    """Return a dataset with at most ``count`` test examples, the same ones every time.

    Args:
        dataset: The whole dataset.
        count: Test examples; None keeps all.

    Returns:
        The dataset with the smaller test part.

    Example:
        >>> import falconcal
        >>> small = falconcal.data.subset_test(falconcal.load_dataset("digits"), 50)
        >>> len(small.test)
        50
    """
    return replace(dataset, test=sample(dataset.test, count))


def sample_indices(total: int, count: int) -> Tensor:
    """Return which examples are in a subset, in order."""
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(total, generator=generator)[:count].sort().values  # (count,)


def sample(part: Part, count: int | None) -> Part:
    """Return at most ``count`` examples from all over a part, the same ones every time.

    Args:
        part: The whole part.
        count: Examples; None keeps all.

    Returns:
        The smaller part, with its examples in the same order.

    Example:
        >>> import falconcal
        >>> part = falconcal.load_dataset("digits").test
        >>> len(falconcal.data.sample(part, 20))
        20
    """
    if count is None or count >= len(part):
        return part
    return select(part, sample_indices(len(part), count))


def select(part: Part, which: Tensor) -> Part:
    """Return the examples at some indices, in that order, as a part of the same kind."""
    if isinstance(part, Images):
        return replace(part, pixels=part.pixels[which], labels=part.labels[which])
    if isinstance(part, Examples):
        texts = _texts(part.texts, which) if part.texts is not None else None
        weights = None if part.weights is None else part.weights[which]
        inputs, labels = part.inputs[which], part.labels[which]
        return replace(part, inputs=inputs, labels=labels, texts=texts, weights=weights)
    if isinstance(part, StreamedImages):
        files = [part.files[index] for index in which.tolist()]
        return replace(part, files=files, labels=part.labels[which])
    return part.head(len(which))  # a user's own kind of part has no other subset


def _texts(texts: Texts, which: Tensor) -> Texts:
    return replace(texts, raw=[texts.raw[index] for index in which.tolist()])
