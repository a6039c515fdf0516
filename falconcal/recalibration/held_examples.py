"""A seeded draw of examples out of any batches, in one pass."""

import torch
from torch import Tensor

from falconcal.core.batch import Batches, checked_batches
from falconcal.core.model_inputs import Inputs, join_inputs
from falconcal.data import PREDICTION_BATCH_SIZE, Examples, Part
from falconcal.errors import UserError


def held_examples(
    data: Batches | Part, count: int, seed: int, classes: int, *, per_class: bool = False
) -> Examples:
    """Return at most so many examples, drawn at random; ``per_class`` draws as many of each class.

    Every example has a random number; those with the lowest are kept as batches come in, so that no
    more than these and one batch are ever held.
    """
    batches = data.batches(PREDICTION_BATCH_SIZE) if isinstance(data, Part) else data
    generator = torch.Generator().manual_seed(seed)
    most = -(-count // classes) if per_class else count
    inputs: Inputs | None = None
    labels, keys = torch.empty(0, dtype=torch.long), torch.empty(0)
    for batch, truth in checked_batches(batches):
        keys = torch.cat([keys, torch.rand(len(truth), generator=generator)])
        labels = torch.cat([labels, truth.cpu()])
        inputs = batch.cpu() if inputs is None else join_inputs([inputs, batch.cpu()])
        kept = _lowest(keys, labels if per_class else torch.zeros_like(labels), most)
        inputs, labels, keys = inputs[kept], labels[kept], keys[kept]
    if inputs is None:
        raise UserError("expected at least one batch, got none: is the loader empty?")
    order = keys.argsort()[:count]
    tokens = getattr(getattr(batches, "examples", None), "tokens", None)
    return Examples(inputs[order], labels[order], None, getattr(batches, "classes", None), tokens)


def _lowest(keys: Tensor, groups: Tensor, most: int) -> Tensor:
    """Return which are among the lowest of their group, in the order of the keys: (N,) -> (K,)."""
    order = keys.argsort(stable=True)
    order = order[groups[order].argsort(stable=True)]
    ordered = groups[order]
    first = torch.searchsorted(ordered, ordered)  # where each group begins
    return order[torch.arange(len(order)) - first < most]
