"""Evaluation takes whatever people hold, and acts on pixels where inputs were normalised."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import falconcal
from falconcal.data import Dataset, Examples, Loader, Preparation, as_part, sample
from falconcal.errors import ClassOrderWarning, UserError
from falconcal.models.prepared_model import PreparedModel
from tests.helpers.small_data import small_network

CHOSEN = [falconcal.SHIFTS["contrast"], falconcal.SHIFTS["gaussian_noise"]]
MEAN, DEVIATION = (0.3,), (0.25,)


def forms_of(part: Any) -> dict[str, Any]:
    pair = part.inputs, part.labels
    return {
        "loader": DataLoader(TensorDataset(*pair), 7),
        "dataset of torch": TensorDataset(*pair),
        "tuple": pair,
        "arrays": tuple(one.numpy() for one in pair),
        "mapping": {"images": pair[0], "labels": pair[1]},
        "list": [tuple(one[:20] for one in pair), tuple(one[20:] for one in pair)],
    }


@pytest.mark.parametrize("form", forms_of(Examples(torch.zeros(30, 1), torch.zeros(30).long())))
def test_every_form_gives_the_rows_of_examples(form: str, tiny: Dataset) -> None:
    model = Named(small_network().eval()) if form == "mapping" else small_network().eval()
    rows = falconcal.evaluate(model, forms_of(tiny.test)[form], CHOSEN)
    expected = falconcal.evaluate(small_network().eval(), tiny.test, CHOSEN)
    assert rows["shift"].equals(expected["shift"])
    torch.testing.assert_close(
        torch.tensor(rows["value"].to_list()), torch.tensor(expected["value"].to_list())
    )


@pytest.mark.parametrize("form", forms_of(Examples(torch.zeros(30, 1), torch.zeros(30).long())))
def test_every_form_gives_the_predictions_of_examples(form: str, tiny: Dataset) -> None:
    model = Named(small_network().eval()) if form == "mapping" else small_network().eval()
    found = falconcal.predict(model, forms_of(tiny.test)[form])
    expected = falconcal.predict(small_network().eval(), tiny.test)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    assert torch.equal(found.labels, expected.labels)


class Named(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> Any:
        return {"logits": self.model(images)}


def test_a_dataset_is_measured_on_its_test_part(tiny: Dataset) -> None:
    model = small_network().eval()
    rows = falconcal.evaluate(model, tiny, CHOSEN)
    assert rows.equals(falconcal.evaluate(model, tiny.test, CHOSEN))


def test_a_loader_that_shuffles_is_refused(tiny: Dataset) -> None:
    pairs = TensorDataset(tiny.test.inputs, tiny.test.labels)
    shuffled = DataLoader(pairs, 7, shuffle=True)
    for loader in (shuffled, Loader(shuffled)):
        with pytest.raises(UserError, match="shuffle=False"):
            falconcal.evaluate(small_network(), loader, CHOSEN)


def test_normalised_inputs_are_shifted_as_pixels(tiny: Dataset) -> None:
    """A network of normalised images is the prepared network of pixels."""
    network = small_network().eval()
    preparation = Preparation(mean=MEAN, deviation=DEVIATION)
    normal = (tiny.test.inputs - MEAN[0]) / DEVIATION[0]
    shifts = [*CHOSEN, falconcal.SHIFTS["fgsm"]]
    rows = falconcal.evaluate(network, (normal, tiny.test.labels), shifts, preparation=preparation)
    expected = falconcal.evaluate(PreparedModel(network, preparation).eval(), tiny.test, shifts)
    torch.testing.assert_close(
        torch.tensor(rows["value"].to_list()),
        torch.tensor(expected["value"].to_list()),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_wrong_mean_is_refused(tiny: Dataset) -> None:
    normal = (tiny.test.inputs - 0.3) / 0.1
    preparation = Preparation(mean=(0.9,), deviation=(0.5,))
    with pytest.raises(UserError, match="mean and deviation that the data"):
        falconcal.evaluate(small_network(), (normal, tiny.test.labels), [], preparation=preparation)


def test_a_part_of_a_loader_has_what_a_part_has(tiny: Dataset) -> None:
    part = as_part(Loader(DataLoader(TensorDataset(tiny.test.inputs, tiny.test.labels), 7)))
    assert len(part) == 30
    assert part.shape == (1, 28, 28)
    assert torch.equal(part.inputs, tiny.test.inputs)
    assert torch.equal(part.first(9).labels, tiny.test.labels[:9])


def test_what_load_returns_is_a_model(tiny: Dataset, tmp_path: Path) -> None:
    model = falconcal.make_model("mlp", tiny)
    file = tmp_path / "weights.safetensors"
    falconcal.save(model, file, "mlp", classes=tiny.classes, shape=tiny.test.shape)
    for given in (file, tmp_path):  # the folder of a run holds it by that name
        saved = falconcal.load(given)
        answers = falconcal.predict(saved, tiny.test)
        assert torch.equal(answers.log_probs, falconcal.predict(model.eval(), tiny.test).log_probs)
        rows = falconcal.evaluate(saved, tiny.test, CHOSEN)
        assert rows.equals(falconcal.evaluate(model, tiny.test, CHOSEN))
    calibrated = falconcal.VectorScaling().fit(saved, validation=tiny.validation.batches())
    again = tmp_path / "calibrated.safetensors"
    method = falconcal.VectorScaling()
    falconcal.save(
        calibrated, again, "mlp", classes=tiny.classes, shape=tiny.test.shape, method=method
    )
    both = (
        falconcal.predict(one, tiny.test).log_probs for one in (calibrated, falconcal.load(again))
    )
    assert torch.equal(*both)


def test_the_first_examples_of_data_in_class_order_come_with_a_warning() -> None:
    ordered = Examples(torch.rand(60, 2), torch.arange(60) // 20)
    with pytest.warns(ClassOrderWarning, match="have 1 of 3 classes.*sample"):
        assert ordered.first(10).labels.unique().tolist() == [0]
    assert len(ordered.head(10)) == 10  # asked for as they are
    assert ordered.first(60).labels.unique().tolist() == [0, 1, 2]
    assert len(sample(ordered, 10).labels.unique()) == 3
    mixed = Examples(torch.rand(60, 2), torch.arange(60) % 3)
    assert len(mixed.first(10)) == 10


def test_a_model_in_double_precision_gets_shift_temperature_too(tiny: Dataset) -> None:
    method = falconcal.ShiftTemperature(perturbed={"contrast": "spread"}, stored=30)
    model = small_network().double().eval()
    trusted = method.fit(model, tiny.train.batches(30), tiny.validation.batches())
    assert falconcal.predict(trusted, tiny.test).log_probs.isfinite().all()
