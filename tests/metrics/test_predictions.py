"""Predictions: what comes in is checked, what goes out is a distribution."""

import numpy
import pytest
import torch
from torch import nn

from falconcal.data import Bounds, Examples
from falconcal.errors import UserError
from falconcal.metrics.predictions import Predictions
from falconcal.models.predict import predict
from tests.helpers.small_data import small_network, stripes


def test_raw_logits_are_refused_and_the_way_is_shown() -> None:
    with pytest.raises(UserError, match=r"row 0.*from_logits"):
        Predictions(torch.tensor([[2.0, 1.0]]), torch.tensor([0]))


def test_probabilities_that_do_not_sum_to_one_are_refused() -> None:
    rows = torch.tensor([[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(UserError, match=r"sum to 0\.9 in row 1"):
        Predictions.from_probabilities(rows, torch.tensor([0, 1]))


def test_negative_probabilities_are_refused() -> None:
    with pytest.raises(UserError, match="negative"):
        Predictions.from_probabilities(torch.tensor([[1.5, -0.5]]), torch.tensor([0]))


def test_nan_is_refused() -> None:
    with pytest.raises(UserError, match="NaN"):
        Predictions.from_logits(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0]))
    with pytest.raises(UserError, match="row 0"):
        Predictions(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0]))


@pytest.mark.parametrize("label", [2, -2])
def test_labels_out_of_range_are_refused(label: int) -> None:
    with pytest.raises(UserError, match=rf"from 0 to 1.*got {label} at index 1"):
        Predictions.from_logits(torch.zeros(2, 2), torch.tensor([0, label]))


def test_wrong_shapes_and_types_are_refused() -> None:
    with pytest.raises(UserError, match=r"shape \(2,\)"):
        Predictions.from_logits(torch.zeros(2, 2), torch.tensor([0]))
    with pytest.raises(UserError, match="whole-number"):
        Predictions.from_logits(torch.zeros(2, 2), torch.tensor([0.0, 1.0]))
    with pytest.raises(UserError, match="at least 2 classes"):
        Predictions.from_logits(torch.zeros(2, 1), torch.tensor([0, 0]))


def test_log_probabilities_are_logits_too() -> None:
    predictions = Predictions.from_logits(torch.tensor([[0.0, -torch.inf]]), torch.tensor([1]))
    assert predictions.scores().confidence.item() == 1


def test_labels_of_any_whole_number_type_are_taken() -> None:
    for kind in (torch.uint8, torch.int32):
        labels = torch.tensor([0, 1], dtype=kind)
        assert Predictions.from_logits(torch.zeros(2, 2), labels).labels.dtype == torch.int64


def test_examples_outside_their_bounds_are_refused() -> None:
    with pytest.raises(UserError, match="from 0 to 1, got 0 to 255"):
        Examples(torch.tensor([[0.0], [255.0]]), torch.tensor([0, 1]), Bounds(0.0, 1.0))


def test_arrays_and_lists_are_taken() -> None:
    rows = numpy.array([[0.25, 0.75], [0.5, 0.5]])
    predictions = Predictions.from_probabilities(rows, numpy.array([1, 0]))
    numpy.testing.assert_allclose(predictions.log_probs.exp(), rows)
    assert len(Predictions.from_logits([[1.0, 2.0]], [0])) == 1


def test_predict_gives_the_softmax_of_the_model_in_inference_mode() -> None:
    model, data = small_network().train(), stripes(10)
    model[0].eval()  # a part that the user holds in inference mode stays so
    predictions = predict(model, data)
    assert model.training
    assert not model[0].training
    with torch.no_grad():
        expected = model.eval()(data.inputs).double().softmax(1)
    torch.testing.assert_close(predictions.log_probs.exp(), expected)


def test_predict_does_not_depend_on_the_batch_size() -> None:
    model, data = small_network(), stripes(20)
    whole, cut = predict(model, data), predict(model, data.batches(7))
    torch.testing.assert_close(whole.log_probs, cut.log_probs)


def test_predict_refuses_an_empty_loader() -> None:
    with pytest.raises(UserError, match="loader empty"):
        predict(small_network(), [])


def test_predict_refuses_a_model_with_the_wrong_number_of_outputs() -> None:
    with pytest.raises(UserError, match=r"\(10, 3\).*\(10, 4\).*one output per class"):
        predict(small_network(outputs=4), stripes(10))


def test_predict_refuses_nan_inputs_by_index() -> None:
    inputs = torch.zeros(3, 2)
    inputs[1, 0] = torch.nan
    with pytest.raises(UserError, match="index 1"):
        predict(nn.Linear(2, 2), [(inputs, torch.zeros(3).long())])


def test_examples_refuse_what_is_not_finite_and_what_is_empty() -> None:
    with pytest.raises(UserError, match="infinity in 1 of 2"):
        Examples(torch.tensor([[1.0], [torch.inf]]), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="at least one example"):
        Examples(torch.zeros(0, 3), torch.zeros(0).long())


@pytest.mark.parametrize("decimals", [1, 8])
def test_answers_are_those_of_the_scores_ties_or_not(decimals: int) -> None:
    """Rounding makes ties, which the way without an index of the maximum must leave alone."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(200, 4, generator=generator).softmax(1).round(decimals=decimals)
    probs = probs / probs.sum(1, keepdim=True)
    labels = torch.randint(-1, 4, (200,), generator=generator)
    predictions = Predictions.from_probabilities(probs, labels)
    answers, scores = predictions.answers(), predictions.scores()
    assert torch.equal(answers.correct, scores.correct)
    assert torch.equal(answers.confidence, scores.confidence)
    assert torch.equal(answers.correct, probs.argmax(1) == labels)
