"""Datasets under one contract, and the digits' fixed split."""

import hashlib
from itertools import product
from pathlib import Path

import pytest
import torch

from falconcal.core.randomness import combined_seed
from falconcal.core.trust import NOBODY
from falconcal.data import (
    DATASETS,
    Bounds,
    Examples,
    Texts,
    check_dataset,
    load_dataset,
    load_test,
)
from falconcal.data.sets.digits import split_digits
from falconcal.errors import UserError
from tests.helpers.official_layouts import MADE
from tests.helpers.small_data import stripes

FOR_TESTING_ONLY = ("objectnet", "notmnist")
TRAINABLE = [name for name in DATASETS if name not in FOR_TESTING_ONLY]


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", TRAINABLE)
def test_every_dataset_is_finite_within_bounds_and_labelled(name: str, tmp_path: Path) -> None:
    settings = MADE[name](tmp_path / name) if name in MADE else {}
    check_dataset(name, settings, NOBODY)
    dataset = load_dataset(name, **settings)
    for part in (dataset.train, dataset.validation, dataset.test):
        assert part.classes == dataset.classes
        assert part.bounds == dataset.bounds
        assert set(part.labels.tolist()) == set(range(len(dataset.classes)))
        first = part.first(2)
        assert first.inputs.shape == (2, *part.shape)
        assert first.tokens == part.tokens
        assert torch.isfinite(first.inputs).all()
        if dataset.bounds is not None:
            for inputs, _ in part.batches(500):
                dataset.bounds.check(inputs)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", DATASETS)
def test_batches_of_every_dataset_are_its_examples(name: str, tmp_path: Path) -> None:
    settings = MADE[name](tmp_path / name) if name in MADE else {}
    part = load_test(name, **settings)
    inputs, labels = (torch.cat(parts) for parts in zip(*part.batches(7), strict=True))
    few = part.first(10).inputs
    torch.testing.assert_close(inputs[: len(few)], few, rtol=0, atol=0)
    assert torch.equal(labels, part.labels)
    shuffled = part.batches(7, shuffle=True, seed=3)
    shuffled.set_epoch(1)
    once, again = (torch.cat([labels for _, labels in shuffled]) for _ in range(2))
    assert torch.equal(once, again)
    assert torch.equal(once.sort().values, labels.sort().values)
    assert len(shuffled) == len(list(shuffled)) == -(-len(part) // 7)


def test_digits_are_1797_images_of_28_by_28() -> None:
    digits = load_dataset("digits")
    sizes = [len(part) for part in (digits.train, digits.validation, digits.test)]
    assert sizes == [1200, 200, 397]
    assert digits.train.inputs.shape == (1200, 1, 28, 28)
    assert digits.train.inputs.min() == 0
    assert digits.train.inputs.max() == 1


def test_the_split_of_digits_is_fixed_disjoint_and_stratified() -> None:
    from sklearn.datasets import load_digits

    labels = load_digits().target
    parts = split_digits(labels)
    together = sorted(index for part in parts for index in part.tolist())
    assert together == list(range(1797))
    for part in parts:
        shares = torch.bincount(torch.from_numpy(labels[part])) / len(part)
        assert shares.min() > 0.09
        assert shares.max() < 0.11
    indices = ",".join(str(index) for part in parts for index in part.tolist())
    assert hashlib.sha256(indices.encode()).hexdigest() == SPLIT_CHECKSUM


SPLIT_CHECKSUM = "d419b222778f842609b842b44ce497b19ce8002854b114c29c1b9510786705db"


def test_seeds_are_mixed_so_that_each_place_counts() -> None:
    """Seed 0 in epoch 1 is not seed 1 in epoch 0, and so for three numbers."""
    for places in (2, 3):
        keys = list(product(range(6), repeat=places))
        assert len({combined_seed(*key) for key in keys}) == len(keys)
    assert 0 <= combined_seed(2**63, 2**40, 7) < 2**63


def test_the_order_of_an_epoch_is_not_that_of_another_seed() -> None:
    examples = stripes(30)

    def order(seed: int, epoch: int) -> list[float]:
        batches = examples.batches(10, shuffle=True, seed=seed)
        batches.set_epoch(epoch)
        return [float(image.sum()) for inputs, _ in batches for image in inputs]

    orders = {tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_shuffled_batches_hold_every_example_once_and_depend_on_seed_and_epoch() -> None:
    data = stripes(25)
    batches = data.batches(10, shuffle=True, seed=1)
    first = [labels for _, labels in batches]
    assert [len(labels) for labels in first] == [10, 10, 5]
    seen = torch.cat([inputs for inputs, _ in batches]).flatten(1).sum(1).sort().values
    torch.testing.assert_close(seen, data.inputs.flatten(1).sum(1).sort().values)
    again = [labels for _, labels in data.batches(10, shuffle=True, seed=1)]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    batches.set_epoch(2)
    assert not torch.equal(torch.cat([labels for _, labels in batches]), torch.cat(first))


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (0.0, 0.0), (0.0, float("nan"))])
def test_bounds_out_of_order_are_refused(low: float, high: float) -> None:
    with pytest.raises(UserError, match="low below high"):
        Bounds(low, high)


def test_a_batch_of_no_examples_is_refused() -> None:
    with pytest.raises(UserError, match="batch size of 1 or more"):
        stripes(3).batches(0)


def test_an_unknown_dataset_is_refused_with_a_hint() -> None:
    with pytest.raises(UserError, match=r"Did you mean 'digits'\?"):
        load_dataset("digit")


def test_a_dataset_from_outside_comes_by_its_import_path() -> None:
    assert load_dataset("tests.helpers.stripes:load_stripes").name == "stripes"
    with pytest.raises(UserError, match=r"package\.module:Name"):
        load_dataset("tests.helpers.stripes:nothing")
    with pytest.raises(UserError, match="goes by the names of its tables"):
        load_dataset("falconcal.data.sets.digits:load")


def test_tokens_and_their_texts_travel_with_the_examples() -> None:
    tokens, labels = torch.tensor([[1, 2], [3, 0]]), torch.tensor([0, 1])
    texts = Texts(["one two", "three"], lambda raw: torch.zeros(len(raw), 2).long())
    data = Examples(tokens, labels, tokens=4, texts=texts)
    first = data.first(1)
    assert first.tokens == 4
    assert first.texts is not None
    assert list(first.texts.raw) == ["one two"]
    assert data.repeated(tokens.repeat(2, 1)).texts is None
    with pytest.raises(UserError, match="from 0 to 2, got 0 to 3"):
        Examples(tokens, labels, tokens=3)
    with pytest.raises(UserError, match="leave tokens empty"):
        Examples(tokens.float(), labels, tokens=4)
    with pytest.raises(UserError, match=r"one text per example \(2\), got 1"):
        Examples(tokens, labels, texts=texts.part(0, 1))
