"""Members that differ, mixtures of probabilities, and the adversarial training of members."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from falconcal import (
    Adversarial,
    Ensemble,
    Falcon,
    L2Dropout,
    MCDropout,
    Temperature,
    checkpointing,
)
from falconcal.data import Batches, Bounds, Dataset
from falconcal.errors import UserError
from falconcal.methods import METHODS, make_method
from falconcal.methods.adversarial import adversarial_terms
from falconcal.methods.ensemble import EnsembleModel, fresh_copy, member_seed, reordered
from falconcal.methods.mc_dropout import has_active_dropout
from falconcal.models import MODELS, LeNet, PixelRecurrent, TokenTransformer, make_model
from falconcal.models.predict import predict
from falconcal.training import History, Step, on_epoch
from tests.helpers.small_data import data_for, small_network

pytestmark = [
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning"),
]


def fit(method: Any, tiny: Dataset, model: nn.Module | None = None) -> Any:
    train = tiny.train.batches(30, shuffle=True, seed=7)
    return method.fit(model or small_network(), train, tiny.validation.batches())


@pytest.mark.parametrize("seed", range(3))
def test_no_member_is_drawn_by_the_seed_of_the_model(seed: int, tiny: Dataset) -> None:
    torch.manual_seed(seed)
    given = nn.Sequential(nn.Flatten(), nn.Linear(784, 3))
    members = fit(Ensemble(base=L2Dropout(epochs=1, seed=seed), size=3), tiny, given).members
    assert len(members) == 3  # a member that began as the model would have been refused


def test_a_mixture_averages_probabilities(tiny: Dataset) -> None:
    members = [small_network(seed=seed).eval() for seed in range(3)]
    with torch.no_grad():
        expected = sum(member(tiny.test.inputs).softmax(1) for member in members) / 3
        torch.testing.assert_close(EnsembleModel(members)(tiny.test.inputs).exp(), expected)


def test_members_start_apart_and_from_other_weights_than_given(tiny: Dataset) -> None:
    seen: list[nn.Module] = []

    class Watched(L2Dropout):
        def fit(self, model: nn.Module, train: Batches, *rest: Any, **options: Any) -> nn.Module:
            seen.append(copy.deepcopy(model))
            orders.append(next(iter(train))[1].tolist())
            return super().fit(model, train, *rest, **options)

    orders: list[list[int]] = []
    given = small_network()
    before = copy.deepcopy(given.state_dict())
    mixture = fit(Ensemble(base=Watched(epochs=1), size=3), tiny, given)
    starts = [dict(model.named_parameters()) for model in (given, *seen)]
    for name in starts[0]:
        values = [start[name] for start in starts]
        for first in range(4):
            assert not any(torch.equal(values[first], other) for other in values[first + 1 :])
    assert len({tuple(order) for order in orders}) == 3
    for name, value in given.state_dict().items():
        assert torch.equal(value, before[name])
    assert len(mixture.members) == 3


def test_each_member_is_what_the_base_would_train_alone(tiny: Dataset) -> None:
    mixture = fit(Ensemble(base=L2Dropout(epochs=2, seed=4), size=2), tiny)
    train = tiny.train.batches(30, shuffle=True, seed=7)
    for number, member in enumerate(mixture.members):
        seed = member_seed(4, number)
        given = small_network()
        torch.manual_seed(seed)
        start = fresh_copy(given)
        alone = L2Dropout(epochs=2, seed=seed)
        alone.fit(start, reordered(train, number), tiny.validation.batches())
        for ours, theirs in zip(member.parameters(), start.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_a_loader_without_a_seed_is_in_another_order_for_each_member(tiny: Dataset) -> None:
    loader = DataLoader(
        TensorDataset(tiny.train.inputs, tiny.train.labels), batch_size=30, shuffle=True
    )
    orders: list[list[int]] = []

    class Watched(L2Dropout):
        def objectives(self) -> list[Any]:
            (clean,) = super().objectives()
            terms = clean.terms

            def watched(step: Step) -> dict[str, Tensor]:
                orders.append(step.labels.tolist())
                return terms(step)

            object.__setattr__(clean, "terms", watched)
            return [clean]

    Ensemble(base=Watched(epochs=1), size=2).fit(small_network(), loader, tiny.validation.batches())
    assert len(orders) == 2 * len(loader)
    assert orders[0] != orders[len(loader)]


def test_members_can_start_from_the_weights_given(tiny: Dataset) -> None:
    base = L2Dropout(epochs=1, learning_rate=1e-9, dropout=0.0)
    given = small_network()
    for member in fit(Ensemble(base=base, size=2, fresh=False), tiny, given).members:
        for ours, theirs in zip(member.parameters(), given.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0.0)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_the_table_can_be_drawn_anew(name: str) -> None:
    model = make_model(name, data_for(name))
    torch.manual_seed(1)
    pairs = zip(model.named_parameters(), fresh_copy(model).parameters(), strict=True)
    for (weight_name, given), drawn in pairs:
        stays = not given.requires_grad or bool((given == given.flatten()[0]).all())
        assert torch.equal(given, drawn) == stays, weight_name


def test_a_resnet_is_drawn_anew_as_it_was_drawn_first() -> None:
    """He's deviation is sqrt(2 / (outputs * size)), not that of the layers themselves."""
    model = make_model("resnet_small", data_for("resnet_small"))
    torch.manual_seed(1)
    fresh = fresh_copy(model)
    weight = max(
        (layer.weight for layer in fresh.modules() if isinstance(layer, nn.Conv2d)),
        key=lambda weight: weight.numel(),
    )
    expected = (2 / weight[:, 0].numel()) ** 0.5
    assert weight.std().item() == pytest.approx(expected, rel=0.02)


def test_a_transformer_can_be_drawn_anew() -> None:
    model = TokenTransformer(3, 20, 6, 8, 2)
    attention = "encoder.layers.0.self_attn.in_proj_weight"
    assert not torch.equal(
        model.get_parameter(attention), fresh_copy(model).get_parameter(attention)
    )


def test_frozen_layers_stay_with_their_statistics() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model(torch.randn(9, 4))
    model[:2].requires_grad_(False)
    fresh: Any = fresh_copy(model)
    assert torch.equal(fresh[0].weight, model[0].weight)
    assert torch.equal(fresh[1].running_mean, model[1].running_mean)
    assert not torch.equal(fresh[2].weight, model[2].weight)


class Token(nn.Module):
    """Weights of its own that nobody can draw anew."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(3))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)[:, :3] * self.token


class Stubborn(Token):
    def reset_parameters(self) -> None:
        """Do nothing."""


class Willing(Token):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.token)


def make_token() -> nn.Module:
    return nn.Sequential(Token())


def make_other() -> nn.Module:
    return nn.Linear(2, 3)


def test_weights_that_cannot_be_drawn_are_refused_by_name(tiny: Dataset) -> None:
    method = Ensemble(base=L2Dropout(epochs=1), size=2)
    with pytest.raises(UserError, match=r"0, a Token, has weights but no reset_par.*factory="):
        fit(method, tiny, make_token())
    with pytest.raises(UserError, match=r"0\.token kept its values.*factory="):
        fit(method, tiny, nn.Sequential(Stubborn()))
    fit(method, tiny, nn.Sequential(Willing()))


def test_a_factory_makes_the_members(tiny: Dataset) -> None:
    base = L2Dropout(epochs=1, learning_rate=1e-9)
    made = Ensemble(base=base, size=2, factory="tests.methods.test_ensembles:make_token")
    first, second = fit(made, tiny, make_token()).members
    assert not torch.allclose(first[0].token, second[0].token)
    wrong = Ensemble(base=base, size=2, factory="tests.methods.test_ensembles:make_other")
    with pytest.raises(UserError, match="make_other to make a network with the weights of"):
        fit(wrong, tiny, make_token())
    missing = Ensemble(base=base, factory="tests.methods.test_ensembles:nothing")
    with pytest.raises(UserError, match="cannot import factory"):
        fit(missing, tiny, make_token())


def test_ensembles_and_temperatures_go_into_each_other(tiny: Dataset) -> None:
    plain = L2Dropout(epochs=2)
    outer = fit(Temperature(base=Ensemble(base=plain, size=2)), tiny)
    inner = fit(Ensemble(base=Temperature(base=plain), size=2), tiny)
    assert outer.calibration.temperature.numel() == 1
    assert len({float(member.calibration.temperature) for member in inner.members}) == 2
    sampled = fit(Ensemble(base=MCDropout(epochs=2, samples=3), size=2), tiny)
    for model in (outer, inner, sampled):
        assert predict(model, tiny.test).log_probs.isfinite().all()


def test_members_that_draw_draw_the_same_once_loaded(tiny: Dataset) -> None:
    method = Ensemble(base=MCDropout(epochs=1, samples=3), size=2)
    trained = fit(method, tiny)
    loaded = method.build(small_network(seed=5))
    loaded.load_state_dict(trained.state_dict())
    assert torch.equal(predict(trained, tiny.test).probs, predict(loaded, tiny.test).probs)
    assert len({member.seed for member in trained.members}) == 2


def test_by_default_members_are_trained_adversarially_and_falcons_are_not() -> None:
    assert Ensemble() == Ensemble(base=Adversarial(epsilon=0.01), size=5)
    assert METHODS["falcon_ensemble"]() == Ensemble(base=Falcon())
    assert make_method({"method": "falcon_ensemble", "size": 2}) == Ensemble(base=Falcon(), size=2)
    assert make_method({"method": "ensemble"}) == Ensemble()


@pytest.mark.end_to_end
def test_a_broken_off_ensemble_goes_on_and_ends_with_the_same_bits(
    tiny: Dataset, tmp_path: Path
) -> None:
    method = Ensemble(base=Adversarial(epochs=3, keep="best"), size=3)
    whole, trained = fit(method, tiny), History()

    def stop_in_the_second(record: object) -> None:
        del record
        if len(trained) == 5:
            raise InterruptedError

    stopping = on_epoch(stop_in_the_second)
    with pytest.raises(InterruptedError), checkpointing(tmp_path), trained.recording(), stopping:
        fit(method, tiny)
    with checkpointing(tmp_path):
        resumed = fit(method, tiny)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert len(list(tmp_path.glob("training-*.safetensors"))) == 3


def test_the_loss_is_that_of_the_clean_and_of_the_moved_batch(tiny: Dataset) -> None:
    """Written out in plain torch; a range of 2 doubles the step."""
    model = small_network().eval()
    inputs, labels = tiny.train.inputs[:8], tiny.train.labels[:8]
    step = Step(
        model, inputs, labels, 1, 1, torch.Generator().manual_seed(0), bounds=Bounds(-1.0, 1.0)
    )
    terms = adversarial_terms(Adversarial(epsilon=0.05), step)
    variable = inputs.clone().requires_grad_()
    clean = nn.functional.cross_entropy(model(variable), labels)
    (gradient,) = torch.autograd.grad(clean, variable, retain_graph=True)
    moved = (inputs + 0.05 * 2 * gradient.sign()).clamp(-1, 1)
    adversarial = nn.functional.cross_entropy(model(moved), labels)
    assert adversarial > clean
    assert terms.keys() == {"cross_entropy", "adversarial"}
    torch.testing.assert_close(terms["cross_entropy"], clean)
    torch.testing.assert_close(terms["adversarial"], adversarial)
    weights = list(model.parameters())
    ours = torch.autograd.grad(sum(terms.values()), weights)  # type: ignore[arg-type]
    theirs = torch.autograd.grad(clean + adversarial, weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_adversarial_training_without_known_bounds_asks_for_them(tiny: Dataset) -> None:
    loader = [(tiny.train.inputs, tiny.train.labels)]
    with pytest.raises(UserError, match=r"bounds=Bounds\(0, 1\)"):
        Adversarial(epochs=1).fit(small_network(), loader, loader)
    Adversarial(epochs=1, epsilon=0.0).fit(small_network(), loader, loader)


def test_mc_dropout_is_trained_as_dropout(tiny: Dataset) -> None:
    sampled, plain = fit(MCDropout(epochs=2), tiny), fit(L2Dropout(epochs=2), tiny)
    for ours, theirs in zip(sampled.model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(predict(sampled, tiny.test).probs, predict(plain, tiny.test).probs)


def test_mc_dropout_keeps_its_probability_when_it_is_rebuilt() -> None:
    network = small_network()
    MCDropout(dropout=0.7).build(network)
    assert [layer.p for layer in network if isinstance(layer, nn.Dropout)] == [0.7]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_mc_dropout_really_samples(kind: Any, tiny: Dataset) -> None:
    model = PixelRecurrent(3, 1, kind, hidden=5, dropout=0.3)
    inputs = tiny.test.inputs[:2, :, ::7, ::7]
    with torch.no_grad():
        few, more = (MCDropout(samples=n).build(model).eval()(inputs) for n in (1, 2))
        assert not torch.allclose(few, more, atol=1e-5)
        assert not torch.allclose(few, model.eval()(inputs).log_softmax(1), atol=1e-5)


def test_dropout_between_recurrent_layers_is_sampled() -> None:
    class TwoLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(2, 5, num_layers=2, dropout=0.5, batch_first=True)
            self.classifier = nn.Linear(5, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            logits: Tensor = self.classifier(self.layers(inputs)[0][:, -1])
            return logits

    model, inputs = TwoLayers(), torch.randn(4, 6, 2)
    with torch.no_grad():
        sampled = MCDropout(samples=3).build(model).eval()(inputs)
        assert not torch.allclose(sampled, model.eval()(inputs).log_softmax(1), atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.1),
        nn.Dropout1d(0.1),
        nn.Dropout2d(0.1),
        nn.Dropout3d(0.1),
        nn.AlphaDropout(0.1),
        nn.FeatureAlphaDropout(0.1),
        nn.GRU(2, 2, num_layers=2, dropout=0.1),
        nn.MultiheadAttention(4, 2, dropout=0.1),
    ],
)
def test_every_kind_of_dropout_counts(layer: nn.Module) -> None:
    assert has_active_dropout(layer)


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda: nn.Linear(2, 3), {}),
        (lambda: nn.Sequential(nn.Dropout(0.0), nn.MultiheadAttention(4, 2)), {}),
        (LeNet, {"dropout": 0.0}),
        (lambda: nn.LSTM(2, 3, dropout=0.5), {}),
    ],
)
def test_a_model_in_which_no_dropout_acts_is_refused(make: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="needs a model with dropout that acts, found none"):
        MCDropout(**settings).build(make())
