"""Whatever people hold as a part: a loader, a tuple, a mapping, a dataset of torch or of ours."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torch.utils.data import Dataset as TorchDataset

from falconcal.core.batch import Batches, check_batches, checked_batches, read_batch
from falconcal.core.data_frames import is_table
from falconcal.core.model_inputs import Inputs, join_inputs, main_of, with_main
from falconcal.data.bounds import Bounds
from falconcal.data.dataset import Dataset
from falconcal.data.part import PREDICTION_BATCH_SIZE, Augment, Examples, Part
from falconcal.data.preparation import Preparation
from falconcal.errors import UserError, described

UNIT = Bounds(0.0, 1.0)
AnyData = Part | Dataset | Batches | tuple[Any, ...] | Mapping[str, Any]


class LoadedPart(Part):
    """The batches of a loader as a part: read anew whenever they are needed, never all held.

    Args:
        loader: Batches in any form, in the same order every time.
        preparation: How the inputs were normalised; given, the part has pixels from 0 to 1.

    Raises:
        UserError: The loader shuffles, or is no batches at all.
    """

    tokens = texts = framing = None

    def __init__(self, loader: Batches, preparation: Preparation | None = None) -> None:
        check_batches(loader)
        _check_order(loader)
        self.loader, self.preparation = loader, preparation
        self.classes = getattr(loader, "classes", None)
        self.bounds = getattr(loader, "bounds", None) if preparation is None else UNIT

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        for inputs, labels in checked_batches(self.loader):
            yield _as_pixels(inputs, self.preparation), labels

    @cached_property
    def labels(self) -> Tensor:  # type: ignore[override]
        """The labels of all batches, (N,)."""
        return torch.cat([labels for _, labels in self])

    @property
    def inputs(self) -> Inputs:
        """The inputs of all batches, in memory."""
        return join_inputs([inputs for inputs, _ in self])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.first(1).shape

    def first(self, count: int) -> Examples:
        parts, labels, held = [], [], 0
        for batch, truth in self:
            parts.append(batch)
            labels.append(truth)
            held += len(truth)
            if held >= count:
                break
        if not parts:
            raise UserError("expected at least one batch, got none: is the loader empty?")
        inputs = join_inputs(parts)[:count]
        return Examples(inputs, torch.cat(labels)[:count], self.bounds, self.classes)

    def batches(  # type: ignore[override]
        self,
        size: int = 100,  # noqa: ARG002 - a loader has batches of its own size
        *,
        shuffle: bool = False,
        seed: int = 0,  # noqa: ARG002
        augment: Augment | None = None,
    ) -> "LoadedPart":
        """Return the loader's own batches, of its own size."""
        assert not shuffle
        assert augment is None
        return self


def as_part(data: Any, preparation: Preparation | None = None) -> Part:
    """Return data of any form as a part.

    Args:
        data: A part; a dataset, of which the test part is taken; a loader, or a list of batches;
            ``(inputs, labels)`` or a mapping with ``labels`` that hold all examples; a dataset of
            torch.
        preparation: The mean and deviation that the inputs were normalised by, if they were. The
            part then has pixels from 0 to 1.

    Returns:
        The part.

    Raises:
        UserError: The data is none of these.

    Example:
        >>> import torch
        >>> from falconcal.data import as_part
        >>> part = as_part((torch.rand(6, 2), torch.arange(6) % 2))
        >>> len(part), part.shape
        (6, (2,))
    """
    if not isinstance(preparation, Preparation | None):
        raise UserError(
            "expected a preparation, as in falconcal.data.Preparation(mean=(0.5,), "
            f"deviation=(0.2,)), got {described(preparation)}."
        )
    if isinstance(data, Dataset):
        data = data.test
    if isinstance(data, Part):
        return data if preparation is None else LoadedPart(_whole(data), preparation)
    if isinstance(data, Mapping) or _is_pair(data):
        inputs, labels = read_batch(data)
        bounds = None if preparation is None else UNIT
        return Examples(_as_pixels(inputs, preparation), labels, bounds)
    if isinstance(data, TorchDataset):
        data = DataLoader(data, PREDICTION_BATCH_SIZE)
    return LoadedPart(data, preparation)


def as_part_or_batches(data: Any) -> Part | Batches:
    """Return what holds all examples as a part; batches, in any order, as they are."""
    if isinstance(data, TorchDataset) and not isinstance(data, IterableDataset):
        return DataLoader(data, PREDICTION_BATCH_SIZE)
    whole = isinstance(data, Dataset | Part | Mapping) or _is_pair(data)
    return as_part(data) if whole else data


def _whole(part: Part) -> Batches:
    return part.batches(PREDICTION_BATCH_SIZE)


def _is_pair(data: object) -> bool:
    """Return whether data is a tuple whose last item are the labels of all examples."""
    if not isinstance(data, tuple) or len(data) < 2:
        return False
    return isinstance(data[-1], Tensor | numpy.ndarray) or is_table(data[-1])


def _check_order(loader: Any) -> None:
    inner = getattr(loader, "batches", loader)
    if isinstance(getattr(inner, "sampler", None), RandomSampler):
        raise UserError(
            "expected data in the same order every time, got a DataLoader that shuffles: pass one "
            "with shuffle=False, so that every level of a shift has the same examples."
        )


def _as_pixels(inputs: Inputs, preparation: Preparation | None) -> Inputs:
    """Return normalised images as the pixels that they were."""
    if preparation is None or preparation.mean is None or preparation.deviation is None:
        return inputs
    images = main_of(inputs)
    if images.ndim != 4 or images.shape[1] not in (len(preparation.mean), 1):
        raise UserError(
            f"expected images (N, {len(preparation.mean)}, height, width) that were normalised "
            f"with one mean per channel, got shape {tuple(images.shape)}."
        )
    mean, deviation = (
        torch.tensor(values).to(images)[:, None, None]
        for values in (preparation.mean, preparation.deviation)
    )
    pixels = images * deviation + mean
    UNIT.check(pixels, "state the mean and deviation that the data was normalised by")
    return with_main(inputs, UNIT.clip(pixels))
