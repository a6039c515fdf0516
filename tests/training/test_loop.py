"""The loop: what it steps, records, keeps and refuses."""

import copy
import logging

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from falconcal.data import Bounds, Dataset
from falconcal.errors import UserError
from falconcal.methods import Falcon, L2Dropout
from falconcal.training import CollapseWarning, History, Objective, Step
from falconcal.training.common_settings import TrainingSettings
from falconcal.training.loop import fit_objectives
from falconcal.training.model_setup import set_dropout
from falconcal.training.step import bounds_of
from tests.helpers.small_data import small_network, stripes

# a few steps teach these networks little, and falconcal rightly says so
pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def weights(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_one_epoch_is_a_plain_adam_loop(tiny: Dataset) -> None:
    """The independent truth: the same updates written out in plain torch."""
    ours, plain = small_network(), small_network()
    batches = tiny.train.batches(30, shuffle=True, seed=3)
    L2Dropout(epochs=2, learning_rate=0.01, dropout=0.0).fit(
        ours, batches, tiny.validation.batches()
    )
    set_dropout(plain, 0.0)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    for epoch in (1, 2):
        batches.set_epoch(epoch)
        for inputs, labels in batches:
            optimizer.zero_grad()
            functional.cross_entropy(plain(inputs), labels).backward()
            optimizer.step()
    torch.testing.assert_close(weights(ours), weights(plain))


def test_history_holds_every_term_of_every_epoch(tiny: Dataset) -> None:
    history = History()
    with history.recording():
        Falcon(epochs=3, l2_weight=0.001).fit(
            small_network(), tiny.train.batches(30), tiny.validation.batches()
        )
    assert [record.epoch for record in history] == [1, 2, 3]
    names = {"clean/cross_entropy", "clean/l2", "clean/entropy", "calibration/calibration"}
    assert set(history[0].terms) == names
    table = history.table()
    assert table.columns == ["epoch", "term", "value"]
    assert len(table) == 3 * len(names)


def test_nobody_watches_after_the_with(tiny: Dataset) -> None:
    history = History()
    with history.recording():
        pass
    L2Dropout(epochs=1).fit(small_network(), tiny.train.batches(), tiny.validation.batches())
    assert history == []


def test_the_callers_random_state_is_left_alone(tiny: Dataset) -> None:
    pairs = torch.utils.data.TensorDataset(tiny.train.inputs, tiny.train.labels)
    loader = torch.utils.data.DataLoader(pairs, batch_size=30, shuffle=True)
    model = small_network()
    state = torch.get_rng_state()
    L2Dropout(epochs=1).fit(model, loader, loader)
    assert torch.equal(torch.get_rng_state(), state)


def test_any_loader_will_do(tiny: Dataset) -> None:
    pairs = torch.utils.data.TensorDataset(tiny.train.inputs, tiny.train.labels)
    loader = torch.utils.data.DataLoader(pairs, batch_size=30)
    model = Falcon(epochs=1, bounds=Bounds(0.0, 1.0)).fit(small_network(), loader, loader)
    assert not model.training


def test_a_fraction_of_batches_gets_the_objective(tiny: Dataset) -> None:
    steps: list[int] = []

    def terms(step: Step) -> dict[str, Tensor]:
        steps.append(step.epoch)
        return {"loss": step.logits().square().mean()}

    objective = Objective("some", terms, torch.optim.SGD, batch_fraction=0.3)
    training = TrainingSettings(epochs=50)
    with pytest.warns(CollapseWarning):
        fit_objectives(
            small_network(),
            tiny.train.batches(30),
            tiny.validation.batches(),
            [objective],
            training,
        )
    assert 0.15 < len(steps) / 150 < 0.45


def test_the_kept_input_gradient_is_that_of_the_clean_loss(tiny: Dataset) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def clean(step: Step) -> dict[str, Tensor]:
        loss = functional.cross_entropy(step.logits(), step.labels)
        alone = copy.deepcopy(model)
        inputs = step.inputs.detach().clone().requires_grad_()
        (expected,) = torch.autograd.grad(
            functional.cross_entropy(alone(inputs), step.labels), inputs
        )
        seen.append((expected, torch.empty(0)))
        return {"loss": loss}

    def after(step: Step) -> dict[str, Tensor]:
        assert step.input_gradient is not None
        seen[-1] = (seen[-1][0], step.input_gradient)
        assert not step.inputs.requires_grad
        return {"loss": step.logits().mean() * 0}

    model = small_network()
    objectives = [
        Objective("clean", clean, torch.optim.SGD, keeps_input_gradient=True),
        Objective("after", after, torch.optim.SGD),
    ]
    fit_objectives(
        model,
        tiny.train.batches(30),
        tiny.validation.batches(),
        objectives,
        TrainingSettings(epochs=20, dropout=0.0),
    )
    for expected, kept in seen:
        torch.testing.assert_close(kept, expected)


def test_no_input_gradient_is_kept_for_nobody(tiny: Dataset) -> None:
    seen: list[bool] = []

    def clean(step: Step) -> dict[str, Tensor]:
        seen.append(step.keep_input_gradient)
        return {"loss": functional.cross_entropy(step.logits(), step.labels)}

    def after(step: Step) -> dict[str, Tensor]:
        assert step.input_gradient is not None
        return {"loss": 0 * step.logits().mean()}

    objectives = [
        Objective("clean", clean, torch.optim.SGD, keeps_input_gradient=True),
        Objective("after", after, torch.optim.SGD, batch_fraction=0.3),
    ]
    history = History()
    with history.recording():
        fit_objectives(
            small_network(),
            tiny.train.batches(30),
            tiny.validation.batches(),
            objectives,
            TrainingSettings(epochs=40),
        )
    assert 0.15 < sum(seen) / len(seen) < 0.45


def test_training_that_collapses_says_so(tiny: Dataset) -> None:
    model = small_network()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    with pytest.warns(CollapseWarning, match=r"validation accuracy 0\.333"):
        L2Dropout(epochs=1, learning_rate=1e-9).fit(
            model, tiny.train.batches(), tiny.validation.batches()
        )


@pytest.mark.parametrize("kind", [L2Dropout, Falcon])
def test_training_that_diverges_says_so(kind: type[L2Dropout | Falcon], tiny: Dataset) -> None:
    with pytest.raises(UserError, match=r"diverged.*epoch"):
        kind(epochs=20, learning_rate=1e38, dropout=0.0).fit(
            small_network(), tiny.train.batches(), tiny.validation.batches()
        )


def test_inputs_outside_of_stated_bounds_are_refused(tiny: Dataset) -> None:
    loader = [(6 * inputs - 3, labels) for inputs, labels in tiny.train.batches(30)]
    with pytest.raises(UserError, match="expected inputs from 0 to 1, got -2"):
        Falcon(epochs=1, bounds=Bounds(0, 1)).fit(small_network(), loader, loader)


def test_an_empty_loader_is_refused(tiny: Dataset) -> None:
    with pytest.raises(UserError, match="loader empty"):
        L2Dropout(epochs=1).fit(small_network(), [], tiny.validation.batches())


def test_a_model_with_the_wrong_number_of_outputs_is_refused(tiny: Dataset) -> None:
    with pytest.raises(UserError, match=r"expected logits of shape \(90, 3\).*got \(90, 4\)"):
        L2Dropout(epochs=1).fit(small_network(4), tiny.train.batches(), tiny.validation.batches())


def test_labels_beyond_the_outputs_are_refused_from_any_loader() -> None:
    loader = [(torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 7]))]
    with pytest.raises(UserError, match=r"from 0 to 2.*got 7 at index 3"):
        L2Dropout(epochs=1).fit(small_network(), loader, loader)


def test_labels_of_no_known_class_are_refused() -> None:
    loader = [(torch.rand(2, 1, 28, 28), torch.tensor([0, -1]))]
    with pytest.raises(UserError, match="true class"):
        L2Dropout(epochs=1).fit(small_network(), loader, loader)


def test_nan_inputs_are_refused() -> None:
    loader = [(torch.full((2, 1, 28, 28), torch.nan), torch.tensor([0, 1]))]
    with pytest.raises(UserError, match="NaN or infinity in 2 of 2"):
        L2Dropout(epochs=1).fit(small_network(), loader, loader)


def test_whole_number_inputs_cannot_be_perturbed() -> None:
    loader = [(torch.ones(2, 1, 28, 28).byte(), torch.tensor([0, 1]))]
    with pytest.raises(UserError, match=r"floating-point inputs to perturb, got torch\.uint8"):
        Falcon(epochs=1, bounds=None).fit(small_network(), loader, loader)


@pytest.mark.parametrize("batch", [{"inputs": 1}, (1, 2, 3), (torch.zeros(2), [0, 1])])
def test_batches_that_are_no_pairs_are_refused(batch: object) -> None:
    with pytest.raises(UserError, match=r"batches (of|with)|labels (under|that are)"):
        L2Dropout(epochs=1).fit(small_network(), [batch], [batch])


def test_labels_with_a_point_are_refused_not_cut_off() -> None:
    loader = [(torch.rand(2, 1, 28, 28), torch.tensor([0.4, 1.4]))]
    with pytest.raises(UserError, match="whole-number labels"):
        L2Dropout(epochs=1).fit(small_network(), loader, loader)


def test_a_generator_is_refused_before_training(tiny: Dataset) -> None:
    one_way = iter(tiny.train.batches())
    with pytest.raises(UserError, match="iterated more than once"):
        L2Dropout(epochs=1).fit(small_network(), one_way, tiny.validation.batches())


def test_a_frozen_model_is_refused_and_frozen_parts_stay_frozen(tiny: Dataset) -> None:
    model = small_network()
    model[2].requires_grad_(False)
    before = model[2].weight.clone()  # type: ignore[operator]
    Falcon(epochs=2).fit(model, tiny.train.batches(30), tiny.validation.batches())
    assert torch.equal(model[2].weight, before)  # type: ignore[arg-type]
    model.requires_grad_(False)
    with pytest.raises(UserError, match="frozen"):
        L2Dropout(epochs=1).fit(model, tiny.train.batches(30), tiny.validation.batches())


def test_other_precisions_label_types_and_large_seeds_will_do(tiny: Dataset) -> None:
    loader = [(tiny.train.inputs, tiny.train.labels.int())]
    method = Falcon(
        epochs=1, precision="64-true", keep="best", seed=2**32 - 1, bounds=Bounds(0.0, 1.0)
    )
    model = method.fit(small_network(), loader, loader)
    assert next(model.parameters()).dtype == torch.float64


def test_networks_for_volumes_can_be_trained() -> None:
    model = nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(2 * 27, 2))
    loader = [(torch.rand(6, 1, 4, 4, 4), torch.tensor([0, 1] * 3))]
    L2Dropout(epochs=1).fit(model, loader, loader)


def test_images_and_convolutions_are_laid_out_with_channels_last(tiny: Dataset) -> None:
    seen: list[bool] = []

    class Spy(nn.Conv2d):
        def forward(self, images: Tensor) -> Tensor:
            last = torch.channels_last
            seen.append(self.weight.is_contiguous(memory_format=last))
            seen.append(images.is_contiguous(memory_format=last))
            return super().forward(images)

    model = nn.Sequential(Spy(3, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, 3))
    loader = [(tiny.train.inputs.expand(-1, 3, -1, -1), tiny.train.labels)]
    L2Dropout(epochs=1).fit(model, loader, loader)
    assert all(seen[:2])


def test_dropout_is_set_on_every_layer_or_refused() -> None:
    outer, inner = nn.Dropout(0.1), nn.Dropout2d(0.2)
    set_dropout(nn.Sequential(outer, nn.Sequential(inner)), 0.4)
    assert [outer.p, inner.p] == [0.4, 0.4]
    with pytest.raises(UserError, match=r"nn\.Dropout layers"):
        set_dropout(nn.Linear(1, 1), 0.5)


def test_bounds_come_from_the_data_or_must_be_stated() -> None:
    assert bounds_of(stripes(3).batches(), "data", torch.rand(1)) == Bounds(0.0, 1.0)
    assert bounds_of([], Bounds(-1.0, 1.0), torch.rand(1)) == Bounds(-1.0, 1.0)
    assert bounds_of([], None, torch.rand(1)) is None
    assert bounds_of([], "data", torch.tensor([1])) is None
    with pytest.raises(UserError, match=r"bounds=Bounds\(0, 1\)"):
        bounds_of([], "data", torch.rand(1))


def test_every_epoch_is_logged(tiny: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="falconcal.training"):
        L2Dropout(epochs=2).fit(small_network(), tiny.train.batches(), tiny.validation.batches())
    assert [record.getMessage()[:12] for record in caplog.records] == [
        "epoch 1 of 2",
        "epoch 2 of 2",
    ]


def test_batch_norm_with_a_batch_of_one_says_what_to_do(tiny: Dataset) -> None:
    model = nn.Sequential(small_network(), nn.BatchNorm1d(3))
    with pytest.raises(UserError, match="batch norm, got a batch of 1: choose another batch size"):
        L2Dropout(epochs=1).fit(model, tiny.train.batches(89), tiny.validation.batches())
