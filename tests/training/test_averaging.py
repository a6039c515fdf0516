"""The running mean of weights: by hand, in place and back, judged, and kept."""

import pytest
import torch
from torch import nn

from falconcal import Falcon, L2Dropout
from falconcal.core.module_state import flush_denormals
from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.training import History
from falconcal.training.averaging import Average
from falconcal.training.criterion import validation_criterion
from tests.helpers.small_data import small_network

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def test_the_mean_by_hand() -> None:
    """At first that of all steps, then each earlier one counts less by the decay."""
    model = nn.Linear(1, 1, bias=False)
    average = Average(model, 0.5)
    seen = []
    for value in (1.0, 2.0, 3.0):
        nn.init.constant_(model.weight, value)
        average.update()
        seen.append(average.state["weight"].item())
    assert seen == [1.0, 1.5, 2.25]


def test_training_goes_on_from_where_it_was_with_tied_weights_too() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    average = Average(model, 0.9)
    before = {name: value.clone() for name, value in average.state.items()}
    model(torch.rand(4, 2)).sum().backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with average.in_place():
        found = model.state_dict()
        assert all(torch.equal(found[name], before[name]) for name in before)
    found = model.state_dict()
    assert all(torch.equal(found[name], own[name]) for name in own)
    assert all(torch.equal(average.state[name], before[name]) for name in before)
    average.update()
    assert average.state["1.num_batches_tracked"] == 1  # no mean of a count


def test_a_trained_model_is_the_mean_of_its_steps(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    update = Average.update

    def spy(self: Average) -> None:
        steps.append([weight.detach().clone() for weight in self.model.parameters()])
        update(self)

    monkeypatch.setattr(Average, "update", spy)
    method = L2Dropout(epochs=2, average=0.99)
    model = method.fit(small_network(), tiny.train.batches(30), tiny.validation.batches())
    assert 4 < len(steps) < 100  # so few that it is the plain mean
    for number, weight in enumerate(model.parameters()):
        mean = torch.stack([step[number] for step in steps]).double().mean(0)
        torch.testing.assert_close(weight.double(), mean, rtol=1e-4, atol=1e-6)


def test_a_model_that_cannot_be_copied_has_a_mean_too(tiny: Dataset) -> None:
    """After a pass, spectral norm holds a tensor that was computed from the weights."""
    layers = nn.Flatten(), nn.utils.spectral_norm(nn.Linear(784, 8)), nn.ReLU(), nn.Linear(8, 3)
    model = nn.Sequential(*layers)
    model(tiny.train.inputs[:5])
    with pytest.raises(RuntimeError, match="deepcopy"):
        torch.optim.swa_utils.AveragedModel(model)
    method = L2Dropout(epochs=1, average=0.9)
    fitted = method.fit(model, tiny.train.batches(30), tiny.validation.batches())
    assert fitted(tiny.test.inputs).isfinite().all()


def test_the_mean_is_what_is_judged(tiny: Dataset) -> None:
    history = History()
    validation = tiny.validation.batches()
    with history.recording():
        model = Falcon(epochs=4, average=0.9, keep="best", bounds=tiny.bounds).fit(
            small_network(), tiny.train.batches(30), validation
        )
    judged = {record.epoch: record.validation["criterion"] for record in history}
    kept = history[-1].kept
    assert kept is not None
    found = validation_criterion(model, validation, tiny.bounds)
    assert found.criterion == pytest.approx(judged[kept])


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_a_decay_that_means_nothing_is_refused(decay: float) -> None:
    with pytest.raises(UserError, match="average should be"):
        Falcon(average=decay)


def test_denormal_values_are_zero_inside_and_themselves_after() -> None:
    small = torch.full((1,), 1e-40)
    assert (small * 1).item() > 0
    with flush_denormals():
        assert (small * 1).item() == 0
        with flush_denormals():
            pass
        assert (small * 1).item() == 0
    assert (small * 1).item() > 0
