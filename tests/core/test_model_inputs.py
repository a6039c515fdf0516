"""Batches, inputs and outputs of any form."""

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from falconcal.core.batch import Batch, BatchForm, read_batch
from falconcal.core.model_inputs import (
    ModelInputs,
    call_model,
    join_inputs,
    logits_of,
    packed,
    two_logits,
)
from falconcal.core.perturbation_point import find_perturbation_point, input_gradient
from falconcal.data import Loader
from falconcal.errors import UserError

NUMBERS, KINDS, LABELS = torch.rand(4, 3), torch.arange(4), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        ((NUMBERS, LABELS), None),
        ([NUMBERS, LABELS], None),
        ((NUMBERS, KINDS, LABELS), [0, 1]),
        (((NUMBERS, KINDS), LABELS), [0, 1]),
        ({"a": NUMBERS, "b": KINDS, "labels": LABELS}, ["a", "b"]),
        (UserDict({"a": NUMBERS, "labels": LABELS}), ["a"]),
        (({"a": NUMBERS}, LABELS), ["a"]),
        ((NUMBERS.numpy(), KINDS.numpy(), LABELS.numpy()), [0, 1]),
    ],
)
def test_every_form_of_batch_is_read(batch: Any, names: list[Any] | None) -> None:
    inputs, labels = read_batch(batch)
    assert torch.equal(labels, LABELS)
    if names is None:
        assert isinstance(inputs, Tensor)
        assert torch.equal(inputs, NUMBERS)
    else:
        assert isinstance(inputs, ModelInputs)
        assert list(inputs.tensors) == names
        assert torch.equal(inputs.main, NUMBERS)


def test_keys_of_labels_and_weights_can_be_named() -> None:
    batch = {"x": NUMBERS, "y": LABELS, "w": torch.tensor([1.0, 2.0, 0.0, 1.0])}
    read = read_batch(batch, BatchForm(labels="y", weights="w"))
    assert isinstance(read[0], ModelInputs)
    assert list(read[0].named) == ["x"]
    assert read.weights is not None
    assert read.weights.tolist() == [1, 2, 0, 1]
    last = read_batch((NUMBERS, LABELS, batch["w"]), BatchForm(weights="last"))
    assert last.weights is not None
    assert isinstance(last[0], Tensor)
    with pytest.raises(UserError, match="weights under the key 'weight', got the keys x, w"):
        read_batch(batch, BatchForm(labels="y", weights="weight"))


def test_soft_labels_are_distributions_whose_modes_are_the_classes() -> None:
    soft = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.0, 1.0]])
    read = read_batch((NUMBERS, soft))
    assert read[1].tolist() == [0, 1, 0, 1]
    assert read.targets is soft
    with pytest.raises(UserError, match="each row of sum 1"):
        read_batch((NUMBERS, 2 * soft))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": NUMBERS}, "labels under the key 'labels', got the keys x"),
        ((NUMBERS,), r"batches of \(inputs, labels\)"),
        ("text", r"batches of \(inputs, labels\)"),
        ((NUMBERS, LABELS.float()), "whole-number labels"),
        ((NUMBERS, KINDS[:2], LABELS), "one row per example"),
        ((NUMBERS, [0, 1, 0, 1]), "labels that are a tensor"),
        ((NUMBERS[0], LABELS[0]), r"a single example .*DataLoader\(dataset"),
        ({"x": NUMBERS[0], "labels": 1}, "a single example"),
    ],
)
def test_other_forms_are_refused_with_what_came(batch: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_batch(batch)


def test_a_batch_is_a_pair_that_can_be_split() -> None:
    batch = read_batch({"x": NUMBERS, "labels": LABELS, "w": torch.ones(4)}, BatchForm(weights="w"))
    parts = batch.split(2)
    assert [part[1].tolist() for part in parts] == [[0, 1], [0, 1]]
    assert all(part.weights is not None and len(part.weights) == 2 for part in parts)
    assert len(Batch(NUMBERS, LABELS)) == 2


@pytest.mark.parametrize(
    "output",
    [
        NUMBERS,
        (NUMBERS, "state"),
        [NUMBERS],
        {"logits": NUMBERS, "loss": 1},
        UserDict({"logits": NUMBERS}),
        SimpleNamespace(logits=NUMBERS),
    ],
)
def test_every_form_of_output_has_its_logits_found(output: Any) -> None:
    assert logits_of(output) is NUMBERS


@pytest.mark.parametrize("output", [None, {"scores": NUMBERS}, "x", (None, NUMBERS), ()])
def test_an_output_without_logits_is_refused(output: Any) -> None:
    with pytest.raises(UserError, match="expected logits from the model"):
        logits_of(output)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_a_single_logit_gives_the_probability_of_its_sigmoid(shape: tuple[int, ...]) -> None:
    single = torch.linspace(-4, 4, 5).reshape(shape)
    probs = two_logits(single).softmax(1)
    torch.testing.assert_close(probs[:, 1], single.flatten().sigmoid())
    labels = torch.tensor([0, 1, 0, 1, 1])
    loss = nn.functional.cross_entropy(two_logits(single), labels)
    expected = nn.functional.binary_cross_entropy_with_logits(single.flatten(), labels.float())
    torch.testing.assert_close(loss, expected)


def test_the_main_input_is_the_only_one_of_numbers_or_the_tokens_or_as_named() -> None:
    tokens = torch.zeros(4, 5).long()
    mask = torch.ones(4, 5)
    assert ModelInputs((KINDS, NUMBERS)).main_name == 1
    inputs = {"input_ids": tokens, "token_type_ids": tokens, "attention_mask": mask}
    assert ModelInputs((), inputs).main_name == "input_ids"
    both = {"image": NUMBERS, "table": NUMBERS}
    assert ModelInputs((), both, "table").main_name == "table"
    with pytest.raises(UserError, match="name it once"):
        _ = ModelInputs((), both).main
    with pytest.raises(UserError, match="among image, table, got 'sound'"):
        _ = ModelInputs((), both, "sound").main


def test_masked_places_stay_as_they_are() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    signals = torch.zeros(2, 3, 4)
    inputs = ModelInputs((), {"signal": signals, "attention_mask": mask})
    moved = inputs.with_main(torch.ones(2, 3, 4)).main
    assert torch.equal(moved, mask[..., None].expand(2, 3, 4).float())
    pixels = torch.zeros(1, 3, 2, 2)
    seen = torch.tensor([[[1, 0], [1, 1]]])
    images = ModelInputs((), {"pixel_values": pixels, "pixel_mask": seen})
    assert torch.equal(images.with_main(pixels + 1).main[0, 0], seen[0].float())


def test_batches_of_other_lengths_are_joined_where_a_mask_hides_the_padding() -> None:
    short, long = (
        ModelInputs((), {"input_ids": torch.ones(2, n).long(), "attention_mask": torch.ones(2, n)})
        for n in (2, 3)
    )
    joined = join_inputs([short, long])
    assert isinstance(joined, ModelInputs)
    assert joined.named["attention_mask"].sum(1).tolist() == [2, 2, 3, 3]
    with pytest.raises(UserError, match="without an attention_mask"):
        join_inputs([ModelInputs((torch.ones(2, 2),)), ModelInputs((torch.ones(2, 3),))])


def test_a_model_is_called_as_its_inputs_are() -> None:
    class Both(nn.Module):
        def forward(self, a: Tensor, *, b: Tensor) -> Tensor:
            return a + b[:, None]

    inputs = packed((NUMBERS,), {"b": KINDS})
    assert torch.equal(call_model(Both(), inputs), NUMBERS + KINDS[:, None])


class TokenModel(nn.Module):
    """A token model in the manner of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        vectors = (self.words(input_ids) * real[..., None]).sum(1)
        return SimpleNamespace(logits=self.last(vectors))


@pytest.mark.parametrize("masked", [True, False])
def test_tokens_are_perturbed_at_the_stated_embedding_but_for_padding(masked: bool) -> None:
    model, tokens = TokenModel(), torch.tensor([[1, 2, 0], [3, 0, 0]])
    named = {"input_ids": tokens} | ({"attention_mask": tokens != 0} if masked else {})
    inputs = ModelInputs((), named)
    point = find_perturbation_point(model, inputs)
    clean = point.point(inputs).detach()
    moved = point.kept(inputs, clean + 1)
    changed = (moved != clean).any(2)
    assert torch.equal(changed, tokens != 0)
    logits = point.run(model, inputs, moved)
    expected = model.last((moved * (tokens != 0)[..., None]).sum(1)) if masked else None
    if expected is not None:
        torch.testing.assert_close(logits, expected)
    gradient = input_gradient(model, inputs, torch.tensor([0, 1]), point)
    assert gradient.shape == (2, 3, 4)


def test_a_loader_says_what_its_batches_do_not() -> None:
    batches = [{"x": NUMBERS, "z": NUMBERS, "y": LABELS}]
    loader = Loader(batches, labels="y", perturb="z", classes=("no", "yes"))
    ((inputs, labels),) = loader
    assert isinstance(inputs, ModelInputs)
    assert inputs.main_name == "z"
    assert torch.equal(labels, LABELS)
    assert loader.classes == ("no", "yes")
    assert not hasattr(loader, "bounds")
    assert len(loader) == 1
    with pytest.raises(UserError, match="iterated more than once"):
        list(Loader(iter(batches)))


def test_arrays_of_one_kind_become_tensors() -> None:
    (inputs, _) = read_batch({"x": numpy.zeros((2, 3), "float32"), "labels": numpy.array([0, 1])})
    assert isinstance(inputs, ModelInputs)
    assert isinstance(inputs.main, Tensor)
