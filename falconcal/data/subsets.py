"""Some examples of each part of a dataset, for a quick look."""

from dataclasses import replace

import torch
from torch import Tensor

from falconcal.data.dataset import Dataset
from falconcal.data.images import Images
from falconcal.data.part import Examples, Part
from falconcal.data.streamed_images import StreamedImages
from falconcal.data.texts import Texts


def subset_all_parts(dataset: Dataset, count: int) -> Dataset:
    """Return a dataset with so many examples of each part, the same ones every time."""
    whole = (dataset.train, dataset.validation, dataset.test)
    train, validation, test = (sample(part, count) for part in whole)
    return replace(dataset, train=train, validation=validation, test=test)


def subset_test(dataset: Dataset, count: int | None) -> Dataset:
    """Return a dataset with so many test examples, or all, the same ones every time."""
    return replace(dataset, test=sample(dataset.test, count))


def sample_indices(total: int, count: int) -> Tensor:
    """Return which of all examples are the few."""
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(total, generator=generator)[:count].sort().values  # (count,)


def sample(part: Part, count: int | None) -> Part:
    """Return so many, or all, from all over the part: files often lie in the order of classes."""
    if count is None or count >= len(part):
        return part
    return select(part, sample_indices(len(part), count))


def select(part: Part, which: Tensor) -> Part:
    """Return the examples at some places, in that order, held as they were."""
    if isinstance(part, Images):
        return replace(part, pixels=part.pixels[which], labels=part.labels[which])
    if isinstance(part, Examples):
        texts = _texts(part.texts, which) if part.texts is not None else None
        return replace(part, inputs=part.inputs[which], labels=part.labels[which], texts=texts)
    if isinstance(part, StreamedImages):
        files = [part.files[place] for place in which.tolist()]
        return replace(part, files=files, labels=part.labels[which])
    return part.first(len(which))  # of a kind from outside, the only choice there is


def _texts(texts: Texts, which: Tensor) -> Texts:
    return replace(texts, raw=[texts.raw[place] for place in which.tolist()])
