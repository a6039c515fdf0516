"""The mean of draws: of probabilities, seeded, nothing twice, and nothing left behind."""

import copy
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from falconcal.core.hashing import content_keys
from falconcal.core.layout import weights_to_channels_last
from falconcal.core.perturbation_point import input_gradient
from falconcal.core.randomness import combined_seed, seeded_random
from falconcal.errors import UserError
from falconcal.methods import METHODS
from falconcal.models import LeNet, PixelRecurrent, TokenTransformer, sampling
from falconcal.models.keyed_masks import KeyedMasks
from falconcal.models.sampling import SampledModel, mean_probabilities


def is_dropout(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Dropout | nn.Dropout2d | nn.MultiheadAttention)


class Counted(nn.Module):
    """A layer that counts its calls and the rows it was given."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.rows = layer, list[int]()

    def forward(self, inputs: Tensor) -> Tensor:
        self.rows.append(len(inputs))
        outputs: Tensor = self.layer(inputs)
        return outputs


class Skipping(nn.Module):
    """A block with a connection past its dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.dropout = nn.Linear(6, 6), nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs + self.dropout(self.dense(inputs))
        return outputs


class Network(nn.Module):
    """A layer before the dropout and one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Counted(nn.Linear(4, 6)), Counted(nn.Linear(6, 3))
        self.middle = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.after(self.middle(self.before(inputs)))
        return logits


def test_probabilities_are_averaged_not_logits() -> None:
    """By hand: (0.9, 0.1) and (0.5, 0.5) have the mean (0.7, 0.3)."""
    logits = torch.tensor([[[math.log(9.0), 0.0]], [[3.0, 3.0]]])
    expected = torch.tensor([[0.7, 0.3]])
    torch.testing.assert_close(mean_probabilities(logits).exp(), expected)


def test_half_precision_is_averaged_in_float32() -> None:
    assert mean_probabilities(torch.randn(4, 2, 3).half()).dtype == torch.float32


def masks_of(seed: int, inputs: Tensor, draws: int, features: int) -> Tensor:
    """Return what dropout of one half multiplies by: (draws, N, features)."""
    with KeyedMasks(seed, content_keys(inputs), range(draws)).drawing_for(0, 0):
        mask = nn.functional.dropout(torch.ones(draws * len(inputs), features))
    return mask.view(draws, len(inputs), features)


def test_the_mean_is_that_of_passes_with_the_same_masks() -> None:
    """One dropout layer: its mask of all rows is that of the draws one after another."""
    network = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)).eval()
    inputs, model = torch.randn(5, 4), SampledModel(network, 7, is_dropout, seed=3).eval()
    with torch.no_grad():
        masks = masks_of(3, inputs, 7, 6)
        draws = [network[2](network[0](inputs) * mask).softmax(1) for mask in masks]
        expected = torch.stack(draws).mean(0)
        torch.testing.assert_close(model(inputs).exp(), expected)


def test_the_mean_comes_near_the_expectation() -> None:
    """Two units, each dropped or not: four cases that can be written out."""
    network = nn.Sequential(nn.Dropout(0.25), nn.Linear(2, 3))
    inputs = torch.tensor([[1.0, -2.0]])
    kept = {(a, b): (0.75 if a else 0.25) * (0.75 if b else 0.25) for a in (0, 1) for b in (0, 1)}
    with torch.no_grad():
        cases = {case: network[1](inputs * torch.tensor([case]) / 0.75).softmax(1) for case in kept}
        expected = sum(kept[case] * cases[case] for case in kept)
        outer = nn.Sequential(nn.Identity(), network)
        found = SampledModel(outer, 20_000, is_dropout).eval()(inputs).exp()
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0.0)


def test_what_is_the_same_in_all_draws_is_computed_once() -> None:
    network = Network()
    model = SampledModel(network, 50, is_dropout).eval()
    model(torch.randn(8, 4))  # where the rows are multiplied is tried once
    network.before.rows.clear()
    network.after.rows.clear()
    model(torch.randn(8, 4))
    assert network.before.rows == [8]
    assert network.after.rows == [400]


def test_large_batches_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    model, inputs = SampledModel(network, 50, is_dropout).eval(), torch.randn(8, 4)
    model(inputs)
    network.before.rows.clear()
    monkeypatch.setattr(sampling, "ELEMENTS", 3 * 50 * 6)
    log_probs = model(inputs)
    assert network.before.rows == [3, 3, 2]  # each example once all the same
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(8))


def test_large_batches_of_tokens_go_in_parts_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(20, 3))
    model, tokens = SampledModel(network, 50, is_dropout).eval(), torch.randint(9, (8, 5))
    whole = model(tokens)
    monkeypatch.setattr(sampling, "ELEMENTS", 20 * 8 * 20)
    assert network[3].weight.grad is None
    # 20, 20 and 10 draws of the one layer: the same masks in the same order
    torch.testing.assert_close(model(tokens), whole)
    gradient = input_gradient(model, tokens, torch.zeros(8, dtype=torch.long))
    assert gradient.shape == (8, 5, 4)
    assert gradient.abs().min() > 0


def test_a_batch_gets_the_same_answer_again_and_the_callers_random_numbers_are_left() -> None:
    model, inputs = SampledModel(Network(), 5, is_dropout).eval(), torch.randn(8, 4)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = model(inputs), model(inputs)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, second)
    model.seed = 1
    assert not torch.equal(model(inputs), first)


def test_it_leaves_the_network_as_it_was() -> None:
    network = Network()
    model = SampledModel(network, 5, is_dropout).eval()
    before = copy.deepcopy(network.state_dict())
    model(torch.randn(8, 4))
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name  # BatchNorm's statistics among them
    assert not any(layer.training for layer in model.modules())
    assert not any(layer._forward_pre_hooks for layer in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()


def test_in_training_it_is_the_network() -> None:
    network = Network()
    model, inputs = SampledModel(network, 5, is_dropout).train(), torch.randn(8, 4)
    with seeded_random(1):
        ours = model(inputs)
    with seeded_random(1):
        theirs = network(inputs)
    assert torch.equal(ours, theirs)
    assert network.before.rows == [8, 8]


def test_gradients_reach_the_inputs() -> None:
    model = SampledModel(Network(), 5, is_dropout).eval()
    inputs = torch.randn(8, 4, requires_grad=True)
    model(inputs)[:, 0].sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.abs().min() > 0


def test_rows_are_multiplied_before_a_connection_past_the_dropout() -> None:
    network = nn.Sequential(Counted(nn.Linear(4, 6)), Skipping(), Skipping(), nn.Linear(6, 3))
    model, inputs = SampledModel(network, 40, is_dropout).eval(), torch.randn(8, 4)
    with torch.no_grad():
        together = model(inputs)
        (branch,) = model.branch_points.values()
        assert branch is not None
        assert branch.name == "1"
        model.branch_points = dict.fromkeys(model.branch_points)  # one by one
        alone = model(inputs)
    torch.testing.assert_close(together, alone)


def test_one_example_is_no_reason_to_broadcast_several() -> None:
    model = SampledModel(nn.Sequential(Skipping(), nn.Linear(6, 3)), 5, is_dropout).eval()
    model(torch.randn(1, 6))
    assert model(torch.randn(4, 6)).shape == (4, 3)


class Around(nn.Module):
    """A connection past everything that is random, in the network itself."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.dense = nn.Dropout(0.5), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.dense(inputs + self.dropout(inputs))
        return logits


def test_where_nothing_can_be_shared_passes_go_one_by_one() -> None:
    network, inputs = Around(), torch.randn(8, 6)
    model = SampledModel(network, 5, is_dropout).eval()
    with torch.no_grad():
        masks = masks_of(0, inputs, 5, 6)
        passes = [network.dense(inputs * (1 + mask)).softmax(1) for mask in masks]
    torch.testing.assert_close(model(inputs).exp(), torch.stack(passes).mean(0))
    assert list(model.branch_points.values()) == [None]


class Reordering(nn.Module):
    """A layer behind the dropout that puts multiplied rows in another order."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flip(0) if len(inputs) > 8 else inputs


def test_rows_that_come_out_in_another_order_are_noticed() -> None:
    network = nn.Sequential(nn.Dropout(0.5), Reordering(), nn.Linear(6, 3))
    model = SampledModel(network, 5, is_dropout).eval()
    model(torch.randn(8, 6))
    assert list(model.branch_points.values()) == [None]


def small_convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize(
    ("make", "shape", "name"),
    [
        (LeNet, (1, 28, 28), "classifier.2"),
        (partial(PixelRecurrent, hidden=5, dropout=0.5), (1, 4, 4), "dropout"),
        (partial(TokenTransformer, 3, 20, 6, 8, 2), (6,), "encoder"),
        (small_convolutions, (1, 4, 4), "1"),
    ],
)
def test_networks_are_sampled_from_their_first_random_layer(
    make: Callable[[], nn.Module], shape: tuple[int, ...], name: str
) -> None:
    """The average of many draws hardly has any noise."""
    network, inputs = make(), torch.rand(4, *shape)
    inputs = inputs if len(shape) == 3 else (20 * inputs).long()
    model = SampledModel(network, 3, is_dropout).eval()
    with torch.no_grad():
        log_probs, rest = model(inputs), network.eval()(inputs).log_softmax(1)
    (branch,) = model.branch_points.values()
    assert branch is not None
    assert branch.name == name
    assert not torch.allclose(log_probs, rest, atol=1e-4)
    first, second = (SampledModel(network, 400, is_dropout, seed).eval()(inputs) for seed in (0, 1))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.exp(), second.exp(), atol=0.1, rtol=0.0)


class Recurrent(nn.Module):
    """Layers whose dropout is inside, with the rows first or after the places."""

    def __init__(self, rows_first: bool) -> None:
        super().__init__()
        self.rows_first = rows_first
        self.embedding, self.dense = nn.Embedding(20, 6), nn.Linear(8, 3)
        self.layers = nn.LSTM(6, 8, 3, dropout=0.4, batch_first=rows_first)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.embedding(tokens)
        if self.rows_first:
            logits: Tensor = self.dense(self.layers(places)[0][:, -1])
        else:
            logits = self.dense(self.layers(places.transpose(0, 1))[0][-1])
        return logits


class PlacesFirst(nn.Module):
    """Dropout of what has the places along its first axis and the rows along its second."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout, self.dense = (
            nn.Embedding(20, 6),
            nn.Dropout(),
            nn.Linear(6, 3),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.dense(self.dropout(self.embedding(tokens.T)).mean(0))
        return logits


class Branches(nn.Module):
    """Two random layers side by side, neither behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.dense = nn.Dropout(0.5), nn.Dropout(0.5), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.dense(self.one(inputs) + self.two(inputs))
        return logits


class DroppedWeights(nn.Module):
    """Dropout of weights, which have no rows; as wide as a batch has rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.dropout = nn.Parameter(torch.randn(8, 8)), nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = inputs @ self.dropout(self.weight)
        return logits


def features() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.ReLU(), nn.FeatureAlphaDropout(0.2), nn.Flatten(),
        nn.AlphaDropout(0.3), nn.Linear(16, 3),
    )  # fmt: skip


def drops_out(layer: nn.Module) -> bool:
    return is_dropout(layer) or isinstance(layer, (nn.LSTM, *sampling.DROPOUTS))


TOKENS, IMAGES, ROWS = (6,), (1, 4, 4), (8,)
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (LeNet, (1, 28, 28)),
    "features": (features, IMAGES),
    "recurrent": (partial(Recurrent, True), TOKENS),
    "recurrent, places first": (partial(Recurrent, False), TOKENS),
    "dropout, places first": (PlacesFirst, TOKENS),
    "transformer": (partial(TokenTransformer, 3, 20, 6, 8, 2, dropout=0.3), TOKENS),
    "branches": (Branches, ROWS),
    "weights": (DroppedWeights, ROWS),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_to_a_row_does_not_depend_on_its_batch(kind: str) -> None:
    make, shape = KINDS[kind]
    torch.manual_seed(0)
    inputs = torch.randint(20, (24, *shape)) if shape == TOKENS else torch.rand(24, *shape)
    model, order = SampledModel(make(), 5, drops_out, seed=4).eval(), torch.randperm(24)
    with torch.no_grad():
        whole = model(inputs)
        torch.testing.assert_close(model(inputs[order]), whole[order], atol=1e-5, rtol=1e-5)
        for size in (1, 6, 8):
            parts = torch.cat([model(part) for part in inputs.split(size)])
            torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(model(inputs), whole, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(whole, model.model.eval()(inputs).log_softmax(1), atol=1e-3)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["svi", "mnf", "last_layer_svi"])
def test_weights_are_drawn_by_the_number_of_the_draw(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In however many parts, of examples or of draws, and in whatever order weights lie."""
    torch.manual_seed(0)
    model, inputs = METHODS[name](samples=7).build(LeNet()).eval(), torch.rand(12, 1, 28, 28)  # type: ignore[attr-defined]
    with torch.no_grad():
        whole = model(inputs)
        monkeypatch.setattr(sampling, "ELEMENTS", 20_000)
        parts = torch.cat([model(part) for part in inputs.split(5)])
        torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
        weights_to_channels_last(model)
        torch.testing.assert_close(model(inputs), whole, atol=1e-5, rtol=1e-5)


def test_every_row_has_masks_of_its_own() -> None:
    """Rows that differ where the network does not look get other draws, equal rows the same."""
    first_layer = nn.Linear(4, 6)
    network = nn.Sequential(first_layer, nn.Dropout(0.5), nn.Linear(6, 3))
    with torch.no_grad():
        first_layer.weight[:, 3] = 0
    rows = torch.tensor([[1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, -0.0], [1.0, 2.0, 3.0, 4.0]])
    first, same, other = SampledModel(network, 20, is_dropout).eval()(rows)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other, atol=1e-4)


def test_masks_are_independent_between_rows_draws_and_features() -> None:
    torch.manual_seed(0)
    masks = masks_of(1, torch.rand(40, 3), 50, 60)
    assert set(masks.flatten().tolist()) == {0.0, 2.0}
    assert masks.mean().item() == pytest.approx(1, abs=0.02)
    for axis in range(3):
        columns = masks.movedim(axis, 0).flatten(1)  # (K, the others)
        between = columns.corrcoef().fill_diagonal_(0).abs() * columns.shape[1] ** 0.5
        assert between.max() < 5  # standard errors
        one_axis = masks.mean([one for one in range(3) if one != axis])
        assert (one_axis - 1).abs().max() < 5 * columns.shape[1] ** -0.5


def test_masks_of_other_devices_are_the_same() -> None:
    """Their kernel draws and drops at once."""
    rows, ones = content_keys(torch.rand(4, 3)), torch.ones(12, 5)
    with KeyedMasks(0, rows, range(3)).drawing_for(0, 0):
        dropped, kept = torch.native_dropout(ones, 0.25, True)
    with KeyedMasks(0, rows, range(3)).drawing_for(0, 0):
        expected = nn.functional.dropout(ones, 0.25)
    torch.testing.assert_close(dropped, expected)
    assert torch.equal(kept, expected > 0)


class DrawnWeight(nn.Module):
    """A layer whose weight is drawn, one for all rows of a draw."""

    def __init__(self) -> None:
        super().__init__()
        self.draws, self.seen = tuple[int, ...](), list[tuple[bool, int]]()

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append((self.training, len(self.draws)))
        if not self.training:
            return inputs
        noise = torch.stack([self.noise(seed, inputs.shape[1]) for seed in self.draws])
        rows: Tensor = inputs.unflatten(0, (len(self.draws), -1)) * noise
        return rows.flatten(0, 1)

    @staticmethod
    def noise(seed: int, size: int) -> Tensor:
        return torch.randn(1, size, generator=torch.Generator().manual_seed(seed))


def test_layers_that_draw_weights_are_told_how_many_draws_there_are() -> None:
    layer, inputs = DrawnWeight(), torch.randn(8, 6)
    network = nn.Sequential(Counted(nn.Linear(6, 4)), layer, nn.Linear(4, 3))
    model = SampledModel(network, 5, lambda part: part is layer, seed=2).eval()
    with torch.no_grad():
        noise = torch.stack([layer.noise(combined_seed(2, 0, draw), 4) for draw in range(5)])
        expected = network[2](network[0](inputs) * noise).softmax(2).mean(0)
        torch.testing.assert_close(model(inputs).exp(), expected)
    assert layer.seen[-1] == (True, 5)
    assert not any(training for training, _ in layer.seen[:-1])
    assert layer.draws == ()


def test_a_network_whose_random_layers_are_not_called_is_refused() -> None:
    with pytest.raises(UserError, match="expected a random layer that the model calls"):
        SampledModel(nn.Linear(4, 3), 5, is_dropout).eval()(torch.randn(2, 4))
