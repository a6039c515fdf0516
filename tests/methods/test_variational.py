"""Methods with Bayesian layers: their loss, their draws, and what the training loop offers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from falconcal import (
    MNF,
    SVI,
    Ensemble,
    LastLayerSVI,
    Temperature,
    checkpointing,
    load,
    save,
)
from falconcal.core.method import Method
from falconcal.core.randomness import seeded_random
from falconcal.data import Batches, Dataset, Examples
from falconcal.errors import UserError
from falconcal.methods.variational import VariationalMethod, elbo_terms
from falconcal.models import PixelRecurrent, TokenTransformer
from falconcal.models.bayesian import BayesianLayer, Flipout, divergence
from falconcal.models.predict import predict
from falconcal.models.sampling import SampledModel
from falconcal.training import History, Step
from falconcal.training.batches import count_examples
from falconcal.training.losses import cross_entropy
from tests.helpers.small_data import small_network

METHODS: list[type[VariationalMethod]] = [SVI, LastLayerSVI, MNF]
pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def fitted(method: Method, tiny: Dataset, train: Batches | None = None) -> nn.Module:
    batches = train or tiny.train.batches(30)
    return method.fit(small_network(), batches, tiny.validation.batches())


def batch_step(model: nn.Module, tiny: Dataset, epoch: int = 20) -> Step:
    batch, random = (tiny.train.inputs, tiny.train.labels), torch.Generator()
    return Step(model, *batch, epoch, 20, random, training_examples=90)


@pytest.mark.parametrize("kind", METHODS)
def test_the_loss_is_the_mean_cross_entropy_and_the_summed_divergence_over_examples(
    kind: type[VariationalMethod], tiny: Dataset
) -> None:
    method = kind(divergence_weight=0.5, dropout=0.0)
    model = method.build(small_network()).train()
    with seeded_random(1):
        terms = elbo_terms(method, batch_step(model, tiny))
    with seeded_random(1):
        logits = model(tiny.train.inputs)
        expected = 0.5 * divergence(model) / 90
    torch.testing.assert_close(terms["cross_entropy"], cross_entropy(logits, tiny.train.labels))
    torch.testing.assert_close(terms["divergence"], expected)
    assert set(terms) == {"cross_entropy", "divergence"}


def test_the_divergence_rises_to_its_weight(tiny: Dataset) -> None:
    method = SVI(divergence_weight=2.0, divergence_annealing=0.5)
    model = method.build(small_network())
    full = 2.0 * divergence(model) / 90
    for epoch, share in ((1, 0.1), (5, 0.5), (10, 1.0), (20, 1.0)):
        found = elbo_terms(method, batch_step(model, tiny, epoch))["divergence"]
        torch.testing.assert_close(found, share * full)


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Examples whose number is not known beforehand."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter([(torch.zeros(2), torch.tensor(0))] * 17)


def test_examples_are_counted_whatever_the_loader(tiny: Dataset) -> None:
    data = TensorDataset(torch.zeros(50, 2), torch.zeros(50).long())
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(
        data, num_replicas=2, rank=0
    )
    batches = [
        (torch.zeros(4, 2), torch.zeros(4).long()),
        (torch.zeros(3, 2), torch.zeros(3).long()),
    ]
    assert count_examples(tiny.train.batches(7)) == len(tiny.train)
    assert count_examples(batches) == 7
    assert count_examples(DataLoader(data, batch_size=8)) == 50
    assert count_examples(DataLoader(data, sampler=SubsetRandomSampler(range(30)))) == 30
    assert count_examples(DataLoader(data, sampler=sampler)) == 50  # of all processes
    assert count_examples(DataLoader(Stream(), batch_size=5)) == 17
    assert count_examples(DataLoader(data, batch_sampler=[[0, 1, 2], [3, 4]])) == 5
    with pytest.raises(UserError, match="at least one training batch, got none"):
        count_examples([])


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", METHODS)
def test_a_prediction_is_the_mean_of_probabilities_over_seeded_draws(
    kind: type[VariationalMethod], tiny: Dataset
) -> None:
    model = kind(samples=400).build(small_network()).eval()
    assert isinstance(model, SampledModel)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, BayesianLayer):
                layer.rho.fill_(-0.5)  # so much noise that a mean of logits would be far off
        inputs = tiny.test.inputs[:5]
        torch.manual_seed(7)
        first = model(inputs)
        after = torch.rand(3)
        assert torch.equal(first, model(inputs))
        torch.manual_seed(7)
        assert torch.equal(after, torch.rand(3))
        for layer in model.modules():
            layer.training = isinstance(layer, BayesianLayer)
        passes = torch.stack([model.model(inputs).softmax(1) for _ in range(400)])
    error = passes.std(0) / 20
    gap = (first.exp() - passes.mean(0)).abs() / (2**0.5 * error)
    assert gap.max() < 5
    assert (passes.std(0) > 0.02).any()


@pytest.mark.parametrize("kind", METHODS)
def test_the_model_that_was_given_is_left_as_it_was(
    kind: type[VariationalMethod], tiny: Dataset
) -> None:
    network = small_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    model = kind(epochs=1).fit(network, tiny.train.batches(30), tiny.validation.batches())
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    rhos = [layer.rho for layer in model.modules() if isinstance(layer, BayesianLayer)]
    assert len(rhos) == (1 if kind is LastLayerSVI else 2)
    assert all((rho != -3).all() for rho in rhos)


@pytest.mark.parametrize("kind", [SVI, MNF])
def test_recurrent_networks_are_sent_to_the_last_layer(
    kind: type[VariationalMethod], tiny: Dataset
) -> None:
    with pytest.raises(UserError, match="LSTM at 'layer': use last_layer_svi"):
        kind(epochs=1).fit(PixelRecurrent(3), tiny.train.batches(30), tiny.validation.batches())
    with pytest.raises(UserError, match="the prior is the penalty"):
        fitted(kind(epochs=1, l2_weight=0.1), tiny)


def test_last_layer_svi_runs_a_recurrent_body_once(tiny: Dataset) -> None:
    pooled = Examples(nn.functional.avg_pool2d(tiny.train.inputs, 4), tiny.train.labels)
    method = LastLayerSVI(epochs=2, samples=50, keep="best", l2_weight=0.01, learning_rate=0.01)
    recurrent = PixelRecurrent(3, hidden=8)
    model = method.fit(recurrent, pooled.batches(30), pooled.batches(30))
    rows = rows_seen(model, "model.layer")
    predict(model, pooled.batches(20))
    assert sum(rows) == len(pooled)


def rows_seen(model: nn.Module, name: str) -> list[int]:
    """Return a list to which the layer adds how many rows it is given."""
    rows: list[int] = []
    layer = model.get_submodule(name)
    layer.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    return rows


def test_last_layer_svi_takes_tokens_and_names_of_layers() -> None:
    tokens = Examples(torch.randint(1, 20, (40, 5)), torch.arange(40) % 3)
    method = LastLayerSVI(epochs=1, samples=4, layer="classifier")
    model = method.fit(TokenTransformer(3, 20, 5), tokens.batches(20), tokens.batches(20))
    assert isinstance(model.get_submodule("model.classifier"), Flipout)
    assert predict(model, tokens).log_probs.isfinite().all()
    with pytest.raises(UserError, match="got 'head'"):
        LastLayerSVI(layer="head").build(TokenTransformer(3, 20, 5))


class StoppedError(Exception):
    """Thrown in the middle of a training."""


class Stopping:
    """Batches that end in an error after so many."""

    def __init__(self, batches: Batches, after: int) -> None:
        self.batches, self.left = batches, after

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.batches:
            if self.left == 0:
                raise StoppedError
            self.left -= 1
            yield batch


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", METHODS)
def test_an_interrupted_training_ends_with_the_same_bits(
    kind: type[VariationalMethod], tiny: Dataset, tmp_path: Path
) -> None:
    def fit(stop_after: int) -> nn.Module:
        method = kind(epochs=3, clip_norm=1.0, accumulate=2, samples=3)
        return fitted(method, tiny, Stopping(tiny.train.batches(15), stop_after))

    expected = fit(10**6).state_dict()
    once = len(tiny.train.batches(15)) + 2  # counting, and looking at the first batch
    with checkpointing(tmp_path), pytest.raises(StoppedError):
        fit(once + 9)
    with checkpointing(tmp_path):
        resumed = fit(10**6).state_dict()
    for name, value in expected.items():
        assert torch.equal(value, resumed[name])


@pytest.mark.slow
def test_two_processes_share_the_divergence(tiny: Dataset) -> None:
    """SVI's is the same number in both; that of MNF is tested beside other joined trainings."""
    records = []
    for devices in (1, 2):
        history = History()
        method = SVI(epochs=1, devices=devices, accelerator="cpu", samples=3)
        with history.recording():
            model = fitted(method, tiny, tiny.train.batches(len(tiny.train)))
        records.append(next(iter(history)).terms)
        fresh = method.build(small_network()).state_dict()
        unmoved = [name for name, v in model.state_dict().items() if torch.equal(v, fresh[name])]
        assert all(name.endswith("mask") for name in unmoved)
    one, two = (terms["bound/divergence"] for terms in records)
    assert one == pytest.approx(two, rel=1e-5)


@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
@pytest.mark.parametrize("kind", METHODS)
def test_it_is_saved_and_loaded_inside_a_calibration(
    kind: type[VariationalMethod], tiny: Dataset, tmp_path: Path
) -> None:
    method = Temperature(base=kind(epochs=2, samples=5))
    model = fitted(method, tiny)
    path = tmp_path / "model.safetensors"
    save(
        model, path, "tests.helpers.small_data:small_network", arguments={},
        classes=tiny.classes, shape=(1, 28, 28), bounds=tiny.bounds, method=method,
    )  # fmt: skip
    ours, theirs = (predict(one, tiny.test) for one in (model, load(path, ["tests"]).model))
    assert torch.equal(ours.log_probs, theirs.log_probs)


@pytest.mark.parametrize("kind", METHODS)
def test_an_ensemble_of_them_is_loaded_as_it_was(
    kind: type[VariationalMethod], tiny: Dataset
) -> None:
    """Members draw from seeds of their own, MNF's masks among them."""
    method = Ensemble(base=kind(epochs=1, samples=3), size=2)
    model = fitted(method, tiny)
    loaded = method.build(small_network(seed=5))
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(predict(model, tiny.test).log_probs, predict(loaded, tiny.test).log_probs)
    first, second = (
        [layer for layer in member.modules() if isinstance(layer, BayesianLayer)]
        for member in model.get_submodule("members").children()
    )
    assert not torch.equal(first[-1].mean.weight, second[-1].mean.weight)
