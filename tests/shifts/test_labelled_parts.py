"""Labelled data of one's own as levels of a shift."""

import pytest
import torch
from torch import nn

from falconcal.data import Bounds, Examples
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import evaluate, score_under_shift
from falconcal.shifts import shift_from
from falconcal.shifts.stored.labelled_parts import PartLevels, alike, shift_of
from tests.helpers.small_data import small_network, stripes


def table(count: int, *classes: str, seed: int = 0, width: int = 3) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(classes)
    return Examples(torch.rand(count, width, generator=generator), labels, None, classes)


def test_parts_are_levels_with_their_own_examples_and_labels() -> None:
    clean, months = stripes(9), [stripes(7, 1), stripes(5, 2)]
    later = shift_from("later", months)
    scores = score_under_shift(small_network(), clean, [later])
    for level, month in enumerate(months, start=1):
        part = scores.filter(shift="later", level=level)
        assert part["label"].to_list() == month.labels.tolist()
    rows = evaluate(small_network(), clean, [later]).filter(shift="later", metric="accuracy")
    assert rows["examples"].to_list() == [9, 7, 5]
    inputs, labels = next(later.batches(2, clean, size=3))
    assert torch.equal(inputs, months[1].inputs[:3])
    assert labels.tolist() == [0, 1, 2]


def test_classes_are_matched_by_name() -> None:
    data, other = table(4, "up", "down"), table(4, "down", "up", seed=1)
    assert alike("level 1", other, data).labels.tolist() == [1, 0, 1, 0]
    with pytest.raises(UserError, match="of the classes up, down, got 'left'"):
        alike("level 1 of later", table(4, "up", "left"), data)


def test_a_level_of_another_kind_is_refused_in_words() -> None:
    data = table(4, "up", "down")
    with pytest.raises(UserError, match=r"level 1 of later of the data's shape \(3,\)"):
        next(shift_from("later", [table(4, "up", "down", width=2)]).batches(1, data))
    with pytest.raises(UserError, match="range"):
        alike("level 1", Examples(data.inputs, data.labels, Bounds(0, 1), data.classes), data)
    with pytest.raises(UserError, match="at least one level of later"):
        shift_from("later", [])
    with pytest.raises(UserError, match="expected parts of datasets"):
        shift_from("later", [torch.rand(3)])  # type: ignore[list-item]


def test_what_is_kept_for_fitting_is_never_tested() -> None:
    data, month = table(4, "up", "down"), table(20, "up", "down", seed=2)
    levels = PartLevels("later", [lambda: month, lambda: month], {2: 8})
    fitted = levels.for_fitting(2, data)
    tested = torch.cat([inputs for inputs, _ in shift_of(levels).batches(2, data, size=5)])
    assert len(fitted) == 8
    assert len(tested) == 12
    both = torch.cat([fitted.inputs, tested])
    assert len(torch.unique(both, dim=0)) == 20
    whole = torch.cat([inputs for inputs, _ in shift_of(levels).batches(1, data)])
    assert torch.equal(whole, month.inputs)
    with pytest.raises(UserError, match="all of which are kept for fitting"):
        next(shift_of(PartLevels("later", [lambda: month], {1: None})).batches(1, data))


def test_a_level_that_is_the_test_data_gives_its_rows() -> None:
    clean = stripes(12)
    model: nn.Module = small_network()
    rows = evaluate(model, clean, [shift_from("same", [clean])]).filter(shift="same")
    values = {
        level: part["value"].to_list()
        for (level,), part in rows.drop_nulls("level").group_by("level", maintain_order=True)
    }
    assert values[0] == values[1]
