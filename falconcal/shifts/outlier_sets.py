"""Outliers: examples of no class that the model knows, labels -1.

They are the test part of any dataset, as Fashion-MNIST for MNIST, or one of four kinds that are
made in the data's shape and range. Image files that are streamed are framed as the data's own are;
nothing else is resized: a set of another shape is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from falconcal.core.registry import check_name, look_up
from falconcal.core.trust import PERSON, CodeKind, Trust
from falconcal.data import (
    DATASETS,
    PREDICTION_BATCH_SIZE,
    Bounds,
    Part,
    is_loader,
    load_named_test,
)
from falconcal.data.streamed_images import framed_alike
from falconcal.errors import UsageError, UserError, described, unknown_name_error
from falconcal.shifts.keyed_noise import KeyedNoise
from falconcal.shifts.stored import objectnet


@dataclass(frozen=True)
class Outliers:
    """A named set of outliers, examples of no class that the model knows.

    Args:
        name: Its name.
        make: Called as ``make(data, size, seed)``; yields batches of inputs like those of
            the part ``data``, ``size`` at a time.
        summary: One line for ``falconcal list outliers``.

    Example:
        >>> import falconcal
        >>> part = falconcal.load_dataset("digits").test
        >>> inputs, labels = next(falconcal.shifts.OUTLIERS["uniform_noise"].batches(part, 4))
        >>> inputs.shape, labels.tolist()
        (torch.Size([4, 1, 28, 28]), [-1, -1, -1, -1])
    """

    name: str
    make: Callable[[Part, int, int], Iterator[Tensor]]
    summary: str = ""

    def batches(
        self, data: Part, size: int = PREDICTION_BATCH_SIZE, seed: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of outliers.

        Args:
            data: The part whose shape and range they have.
            size: Examples per batch.
            seed: The seed of those that are drawn at random.

        Yields:
            Inputs (N, ...) and labels (N,), all -1.

        Raises:
            UserError: They are not of the data's shape, kind or vocabulary.
        """
        for inputs in self.make(data, size, seed):
            _check(self.name, inputs, data)
            yield inputs, torch.full((len(inputs),), -1)

    def first(self, count: int) -> "Outliers":
        """Return a set of the first ``count`` of them."""
        return replace(self, make=partial(_first, self.make, count))


def outliers_from(name: str, part: Part) -> Outliers:
    """Return a part of any dataset as outliers; its own labels are not used.

    Args:
        name: A name for tables and figures.
        part: The examples.

    Returns:
        The set of outliers.

    Raises:
        UserError: ``part`` is not a part of a dataset.

    Example:
        >>> import falconcal, torch
        >>> noise = falconcal.Examples(torch.rand(5, 1, 28, 28), [0] * 5, falconcal.Bounds(0, 1))
        >>> falconcal.shifts.outliers_from("noise", noise).name
        'noise'
    """
    if not isinstance(part, Part):
        raise UserError(
            f"expected a part of a dataset, or falconcal.Examples, got {described(part)}."
        )
    return Outliers(name, partial(_inputs_of, name, lambda: part))


OUTLIERS_CODE = CodeKind(
    "outliers",
    "a dataset or falconcal.shifts.Outliers",
    lambda thing: isinstance(thing, Outliers) or is_loader(thing),
)


def find_outliers(name: str, trust: Trust = PERSON) -> Outliers:
    """Return outliers by name.

    Args:
        name: A name in ``OUTLIERS``, or a dataset, whose test part is taken.
        trust: Whose code may be named as ``package.module:Name``, where a file names it.

    Returns:
        The set of outliers; a dataset is loaded when its batches are asked for.

    Raises:
        UsageError: The name is not known.

    Example:
        >>> from falconcal.shifts import find_outliers
        >>> find_outliers("normal_noise").summary
        'every value normal about the middle of the range'
    """
    check_name("set of outliers", name)
    if name in OUTLIERS:
        return OUTLIERS[name]
    if name not in DATASETS and ":" not in name:
        raise unknown_name_error("outliers", name, [*OUTLIERS, *DATASETS])
    found = look_up(OUTLIERS_CODE, name, DATASETS, trust)
    if found is DATASETS["objectnet"]:
        raise UsageError(
            f"the test images of {name} are of classes that ImageNet has, so a model of ImageNet "
            "knows them: write objectnet_outliers for those of its other classes."
        )
    if isinstance(found, Outliers):
        return replace(found, name=name)
    load = partial(load_named_test, name, {}, trust)
    return Outliers(name, partial(_inputs_of, name, load))


def uniform(inputs: Tensor, bounds: Bounds, noise: KeyedNoise) -> Tensor:
    return bounds.low + bounds.range * noise.uniform(tuple(inputs.shape[1:]))


def normal(inputs: Tensor, bounds: Bounds, noise: KeyedNoise) -> Tensor:
    """Return noise about the middle of the range, a quarter of it the deviation, clipped."""
    middle = bounds.low + bounds.range / 2
    return bounds.clip(middle + bounds.range / 4 * noise.normal(tuple(inputs.shape[1:])))


def constant(inputs: Tensor, bounds: Bounds, noise: KeyedNoise) -> Tensor:
    """Return examples of one value each, images of one value per channel."""
    values = noise.uniform(tuple(inputs.shape[1:2]) if inputs.ndim == 4 else (1,))  # (N, channels)
    values = values.reshape(*values.shape, *[1] * (inputs.ndim - 2))
    return (bounds.low + bounds.range * values).expand_as(inputs)


def permuted(inputs: Tensor, bounds: Bounds, noise: KeyedNoise) -> Tensor:  # noqa: ARG001
    """Return each example with its values in an order of its own; channels of a pixel stay."""
    columns = inputs.flatten(2) if inputs.ndim == 4 else inputs.flatten(1)[:, None]  # (N, C, P)
    order = noise.uniform((1, columns.shape[2])).argsort(dim=2, stable=True)  # (N, 1, P)
    return columns.gather(2, order.expand_as(columns)).reshape(inputs.shape)


SYNTHETIC_OUTLIERS: tuple[tuple[str, Callable[[Tensor, Bounds, KeyedNoise], Tensor], str], ...] = (
    ("uniform_noise", uniform, "every value drawn evenly from the range"),
    ("normal_noise", normal, "every value normal about the middle of the range"),
    ("constant_images", constant, "one value everywhere, images one value per channel"),
    ("permuted_pixels", permuted, "the test examples, each with its pixels in random order"),
)


def _made(
    name: str,
    kind: Callable[[Tensor, Bounds, KeyedNoise], Tensor],
    data: Part,
    size: int,
    seed: int,
) -> Iterator[Tensor]:
    """Yield as many outliers as the data has examples, each keyed by seed and example."""
    if data.bounds is None or not data.head(1).inputs.is_floating_point():
        raise UserError(
            f"outliers {name} need data with floating-point inputs and bounds: give the data its "
            "bounds, or choose the test part of a dataset."
        )
    first = 0
    for inputs, _ in data.batches(size):
        examples = torch.arange(first, first + len(inputs), device=inputs.device)
        first += len(inputs)
        yield kind(inputs, data.bounds, KeyedNoise(name, seed, 1, examples)).to(inputs)


OUTLIERS: dict[str, Outliers] = {
    **{
        name: Outliers(name, partial(_made, name, kind), words)
        for name, kind, words in SYNTHETIC_OUTLIERS
    },
    "objectnet_outliers": Outliers(
        "objectnet_outliers", objectnet.outlier_batches, "ObjectNet's classes that ImageNet has not"
    ),
}
"""The sets of outliers by name; the test part of any dataset is one too."""


def _first(
    make: Callable[[Part, int, int], Iterator[Tensor]], count: int, data: Part, size: int, seed: int
) -> Iterator[Tensor]:
    for inputs in make(data, min(size, count), seed):
        yield inputs[:count]
        count -= len(inputs)
        if count <= 0:
            return


def _inputs_of(
    name: str,
    load: Callable[[], Part],
    data: Part,
    size: int,
    seed: int,  # noqa: ARG001 - they are what they are
) -> Iterator[Tensor]:
    part = framed_alike(f"outliers {name}", load(), data)
    if part.bounds != data.bounds:
        raise UserError(
            f"expected outliers {name} in the range of the data, {data.bounds}, got {part.bounds}: "
            "scale one like the other."
        )
    for inputs, _ in part.batches(size):
        yield inputs


def _check(name: str, inputs: Tensor, data: Part) -> None:
    """Refuse what is not shaped like the data, or has tokens that it has not."""
    if tuple(inputs.shape[1:]) != data.shape:
        raise UserError(
            f"expected outliers {name} of the data's shape {data.shape}, got "
            f"{tuple(inputs.shape[1:])}: nothing is resized here, so choose a set of that shape."
        )
    if inputs.is_floating_point() != data.head(1).inputs.is_floating_point():
        raise UserError(f"expected outliers {name} of the data's kind, got {inputs.dtype}.")
    if data.tokens is not None and int(inputs.max()) >= data.tokens:
        raise UserError(
            f"expected outliers {name} with tokens below {data.tokens}, got {int(inputs.max())}: "
            "encode them with the data's own vocabulary."
        )
