"""Shift temperature: truths in closed form, brute-force distances, any batch, saved and loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import falconcal
from falconcal.data import Bounds, Examples
from falconcal.errors import UserError
from falconcal.recalibration import Isotonic, ShiftTemperature, Temperature
from falconcal.recalibration.calibrated_model import CalibratedModel
from falconcal.recalibration.neighbours import (
    MKL_BLOCK,
    MKL_MULTIPLE,
    OTHER_BLOCK,
    Neighbours,
    StoredLayout,
    in_blocks,
    log_ratio,
    narrowed,
    products,
    stored_neighbours,
)
from falconcal.recalibration.stages import BEFORE, INPUT, LOGITS, find_stages, observe, views
from falconcal.recalibration.temperature_map import (
    LOWEST_TEMPERATURE,
    fit_temperatures,
    lowest_weights,
    temperatures,
    weight_count,
)
from tests.helpers.short_fits import short_fits
from tests.helpers.small_data import small_network, stripes

QUICK: dict[str, Any] = {"perturbed": ("contrast", "patch_shuffle"), "check_families": False}


def sample(count: int = 200, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.randn(count, classes, generator=generator, dtype=torch.float64).log_softmax(1)
    labels = torch.multinomial((0.5 * log_probs).softmax(1), 1, generator=generator)[:, 0]
    return log_probs, labels


@pytest.mark.parametrize("heat", [0.3, 1.0, 4.0])
def test_a_constant_temperature_is_temperature_scaling(heat: float) -> None:
    log_probs, _ = sample()
    offset = torch.tensor([heat - LOWEST_TEMPERATURE], dtype=torch.float64).expm1().log()
    ours = ShiftTemperature().apply(
        log_probs, features=torch.zeros(200, 3).double(), weights=offset
    )
    theirs = Temperature().apply(log_probs, temperature=torch.tensor(heat, dtype=torch.float64))
    torch.testing.assert_close(ours.exp(), theirs.exp(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("classes", [2, 4, 1000])
def test_a_constant_form_finds_the_best_temperature(classes: int) -> None:
    log_probs, labels = sample(classes=classes)
    weights = torch.full((200,), 1 / 200, dtype=torch.float64)
    found = fit_temperatures(
        log_probs, labels, weights, torch.zeros(200, 1).double(),
        form="constant", rising=1, penalty=0.0, seed=0,
    )  # fmt: skip
    heat = temperatures(found, torch.zeros(1, 1).double())
    best = Temperature().learn(log_probs, labels)["temperature"]
    assert float(heat) == pytest.approx(float(best), abs=1e-4)


DISTANCES, FEATURES = 3, 5  # the last two features are free


@pytest.fixture(scope="module")
def monotone_weights() -> list[Tensor]:
    """Two fits to features that say nothing: without bounds many weights would be below 0."""
    log_probs, labels = sample(60)
    uniform = torch.full((60,), 1 / 60, dtype=torch.float64)
    with short_fits():
        return [
            fit_temperatures(
                log_probs, labels, uniform, some_features(seed, 60),
                form="monotone", rising=DISTANCES, penalty=1e-4, seed=seed,
            )
            for seed in range(2)
        ]  # fmt: skip


def some_features(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)


def rises_with_distances(weights: Tensor, seed: int, rise: float) -> bool:
    """Whether each distance, made larger at 60 places alone, leaves no temperature lower."""
    features = some_features(seed, 60)
    further = features + rise * torch.eye(FEATURES).double()[:DISTANCES, None]  # (D, 60, F)
    changed = torch.stack([temperatures(weights, one) for one in further])
    return bool((changed >= temperatures(weights, features) - 1e-12).all())


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), rise=st.floats(0.01, 5))
def test_in_the_monotone_form_temperature_never_falls_as_a_distance_grows(
    monotone_weights: list[Tensor], seed: int, rise: float
) -> None:
    assert all(rises_with_distances(weights, seed, rise) for weights in monotone_weights)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), rise=st.floats(0.01, 5), scale=st.floats(0.1, 10))
def test_any_weights_within_the_bounds_of_the_monotone_form_are_monotone(
    seed: int, rise: float, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    count = weight_count("monotone", FEATURES)
    drawn = scale * torch.randn(count, generator=generator, dtype=torch.float64)
    bounded = torch.maximum(drawn, lowest_weights("monotone", FEATURES, DISTANCES))
    assert rises_with_distances(bounded, seed, rise)


def test_a_fit_stays_within_the_bounds_of_the_monotone_form(
    monotone_weights: list[Tensor],
) -> None:
    lowest = lowest_weights("monotone", FEATURES, DISTANCES)
    assert int((lowest == 0).sum()) == 16 * (DISTANCES + 1) + DISTANCES
    for weights in monotone_weights:
        assert (weights >= lowest).all()


def test_the_network_of_units_by_hand() -> None:
    weights = torch.zeros(weight_count("free", 2), dtype=torch.float64)
    weights[:4] = torch.tensor([0.5, -1.0, 0.25, 2.0])  # unit 1: weights, bias, outer weight
    weights[-3:] = torch.tensor([0.1, 0.2, 0.75])  # the weighted sum and the offset
    features = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    raw = 2 * torch.tensor(0.5 - 2.0 + 0.25).double().tanh() + 0.1 + 0.4 + 0.75
    expected = raw.exp().log1p() + LOWEST_TEMPERATURE
    torch.testing.assert_close(temperatures(weights, features)[0], expected)


def kept(count: int = 30, **changes: object) -> tuple[nn.Module, Examples, Neighbours]:
    model, home = small_network().eval(), stripes(count)
    values = {
        "k": 3,
        "labels": True,
        "logits": True,
        "kind": "both",
        "widest": 1024,
        "dtype": torch.float32,
    }
    stages = find_stages(model, home.inputs[:2])
    return model, home, stored_neighbours(model, home, stages, **{**values, **changes})  # type: ignore[arg-type]


def test_distances_equal_brute_force() -> None:
    model, home, neighbours = kept()
    inputs = stripes(5, seed=8).inputs
    logits, outputs = observe(model, inputs, neighbours.layout.stages)
    features = neighbours.features(views(outputs, "both"), logits)
    _, stored = observe(model, home.inputs, neighbours.layout.stages)
    for number, name in enumerate(neighbours.layout.views):
        mine, theirs = (
            nn.functional.normalize(views(one, "both")[name], dim=1) for one in (outputs, stored)
        )
        distances = (mine[:, None] - theirs[None]).double().square().sum(2).sqrt()  # (5, 30)
        third = distances.sort(1).values[:, 2]
        torch.testing.assert_close(features[:, number], third, atol=2e-3, rtol=0)
    width = len(neighbours.layout.views)
    assert features.shape == (5, 3 * width + 3)
    assert neighbours.rising == 3 * width
    top = logits.double().sort(1, descending=True).values
    torch.testing.assert_close(features[:, -3], top[:, 0] - top[:, 1])


@pytest.mark.parametrize("stored", [1, 3, 30])
def test_any_batch_gives_the_same_bits_of_the_same_stages(stored: int) -> None:
    model, _, neighbours = kept(stored)
    inputs = stripes(70, seed=8).inputs
    logits, outputs = observe(model, inputs, neighbours.layout.stages)
    seen = views(outputs, "both")
    whole = neighbours.features(seen, logits)
    for size in (1, 3, 32, 50):
        parts = [
            neighbours.features(
                {name: view[start : start + size] for name, view in seen.items()},
                logits[start : start + size],
            )
            for start in range(0, 70, size)
        ]
        assert torch.equal(torch.cat(parts), whole)


def slow_features(neighbours: Neighbours, seen: dict[str, Tensor], logits: Tensor) -> Tensor:
    """Return the features before the logits' numbers, from all distances, each sorted: (N, F)."""
    layout = neighbours.layout
    kept = torch.split(neighbours.stored.double(), list(layout.widths), 1)
    columns: list[list[Tensor]] = [[], [], []]
    for name, width, stored in zip(layout.views, layout.widths, kept, strict=True):
        rows = narrowed(name, seen[name], width).double()
        distances = (rows[:, None] - stored[None]).square().sum(2).sqrt()  # (N, M)
        same = neighbours.labels[None] == logits.argmax(1)[:, None]
        order = distances.argsort(1)[:, : layout.k]
        columns[0].append(distances.gather(1, order)[:, -1])
        columns[1].append(1 - same.gather(1, order).double().mean(1))
        own = distances.masked_fill(~same, torch.inf).amin(1)
        other = distances.masked_fill(same, torch.inf).amin(1)
        columns[2].append((own / other).log().clamp(-2, 2))
    return torch.stack([column for kind in columns for column in kind], 1)


def scattered(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return two views far from ties, logits of four classes and labels."""
    generator = torch.Generator().manual_seed(seed)
    seen = {
        name: torch.randn(count, width, generator=generator)
        for name, width in (("narrow", 13), ("wide", 200))
    }
    logits = torch.randn(count, 4, generator=generator)
    return seen, logits, logits.argmax(1)


@pytest.mark.parametrize("stored", [2, 90, 1500])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("widest", [200, 64])
def test_the_fast_features_equal_the_slow_ones(stored: int, k: int, widest: int) -> None:
    seen, _, labels = scattered(stored, 3)
    names = ("narrow", "wide")
    neighbours = Neighbours()
    layout = StoredLayout(names, names, (13, widest), k, labels=True, logits=True)
    neighbours.store(layout, seen, labels, torch.float32)
    seen, logits, _ = scattered(300 if stored < 1000 else 60, 4)  # the slow ones take all pairs
    fast = neighbours.features(seen, logits)[:, : neighbours.rising]
    torch.testing.assert_close(fast, slow_features(neighbours, seen, logits), atol=1e-4, rtol=0)


@pytest.mark.parametrize("stored", [1, 2, 7, 30, 257, 2000])
@pytest.mark.parametrize("width", [3, 10, 49, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_any_number_of_rows_give_the_same_bits(
    stored: int, width: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(stored)
    rows = torch.randn(300, width, generator=generator).to(dtype)
    matrix = torch.randn(stored, width, generator=generator).to(dtype)

    def blocked(part: Tensor) -> Tensor:
        return in_blocks(lambda block: products(block, matrix), part)

    whole = blocked(rows)
    torch.testing.assert_close(whole, rows @ matrix.T, atol=1e-4, rtol=1e-4)
    for size in (1, 3, 8, 33, 100, 257):
        assert torch.equal(torch.cat([blocked(part) for part in rows.split(size)]), whole)


@pytest.mark.parametrize("form", ["linear", "monotone"])
def test_any_batch_gives_the_same_bits_of_the_same_features(form: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(70, 10, generator=generator, dtype=torch.float64)
    weights = torch.randn(weight_count(form, 10), generator=generator, dtype=torch.float64)
    log_probs = sample(70)[0]
    whole = ShiftTemperature().apply(log_probs, features=features, weights=weights)
    for size in (1, 3, 32, 50):
        parts = [
            ShiftTemperature().apply(one, features=other, weights=weights)
            for one, other in zip(log_probs.split(size), features.split(size), strict=True)
        ]
        assert torch.equal(torch.cat(parts), whole)


def test_neighbours_labels_by_hand() -> None:
    similarities = 1 - torch.tensor([[0.1, 0.2, 0.4]]).double().square() / 2
    same = torch.tensor([[False, True, True]])
    torch.testing.assert_close(log_ratio(similarities, same), torch.tensor([2.0]).double().log())
    # no stored one of the class, and none of another
    assert log_ratio(similarities, torch.zeros(1, 3).bool()).item() == 2
    assert log_ratio(similarities, torch.ones(1, 3).bool()).item() == -2


def test_stages_of_a_chain_of_layers_are_where_the_shape_changes() -> None:
    model = falconcal.make_model("lenet", falconcal.load_dataset("digits"))
    stages = find_stages(model, torch.rand(2, 1, 28, 28))
    assert stages[0] == INPUT
    assert stages[-1] == LOGITS
    assert stages[-2].startswith(BEFORE)
    assert 4 <= len(stages) <= 7
    _, outputs = observe(model, torch.rand(2, 1, 28, 28), stages)
    assert set(outputs) == set(stages)


class OneLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.layer(inputs.flatten(1))
        return output


def fitted(model: nn.Module, **changes: Any) -> CalibratedModel:
    data = stripes(120)
    method = ShiftTemperature(**{**QUICK, **changes})
    return method.fit(model, train=data.batches(40), validation=stripes(90, seed=5).batches(40))


FORMS = [
    {},
    {"stored": 1},
    {"form": "linear"},
    {"form": "free"},
    {"widest": 8},
    {"use_labels": True},
    {"views": "pooled"},
    {"views": "both"},
    {"half_precision": True},
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("changes", FORMS)
def test_it_fits_and_the_predicted_class_never_changes(changes: dict[str, object]) -> None:
    model = small_network()
    trusted = fitted(model, **changes)
    data = stripes(50, seed=9)
    raw, new = falconcal.predict(model, data), falconcal.predict(trusted, data)
    assert torch.equal(raw.log_probs.argmax(1), new.log_probs.argmax(1))


@pytest.mark.end_to_end  # fits to the end
def test_a_model_with_one_layer_and_a_class_missing_from_validation() -> None:
    data = stripes(120)
    known = data.labels != 2
    validation = Examples(data.inputs[known], data.labels[known], Bounds(0, 1))
    trusted = ShiftTemperature(**QUICK).fit(OneLayer(), data.batches(40), validation.batches(40))
    assert falconcal.predict(trusted, data).log_probs.isfinite().all()


@pytest.mark.end_to_end  # fits to the end
def test_batches_agree_end_to_end() -> None:
    trusted = fitted(small_network())
    inputs = stripes(41, seed=9).inputs
    with torch.no_grad():
        whole = trusted(inputs).exp()
        parts = torch.cat([trusted(part).exp() for part in inputs.split(7)])
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("short_fits")
def test_without_training_data_no_example_finds_itself() -> None:
    data = stripes(100)
    trusted = ShiftTemperature(**QUICK).fit(small_network(), validation=data.batches(50))
    assert trusted.observer is not None
    assert trusted.fit_record is not None
    stored = len(trusted.observer.labels)
    assert stored == 50  # the other half is fitted on
    clean = next(copy for copy in trusted.fit_record.copies if copy.family == "clean")
    assert clean.level == 0


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="fit needs validation="):
        ShiftTemperature().fit(small_network(), train=stripes(30).batches(10))
    with pytest.raises(UserError, match="looks at examples, not at predictions alone"):
        ShiftTemperature().fit_predictions(falconcal.predict(small_network(), stripes(30)))
    with pytest.raises(UserError, match="unknown stage"):
        fitted(small_network(), stages=("input", "nothing"))


@pytest.mark.usefixtures("short_fits")
def test_saved_and_loaded_it_gives_the_same_bits(tmp_path: Path) -> None:
    dataset = falconcal.load_dataset("digits")
    model = falconcal.make_model("lenet", dataset)
    few = dataset.train.first(80)
    method = ShiftTemperature(**QUICK, stored=20)
    trusted = method.fit(model, few.batches(40), dataset.validation.first(60).batches(30))
    file = tmp_path / "trusted.safetensors"
    falconcal.save(
        trusted, file, "lenet", classes=dataset.classes, shape=few.shape, bounds=dataset.bounds,
        method=method,
    )  # fmt: skip
    saved = falconcal.load(file)
    assert saved.metadata.training_examples == 20  # whoever gets the file can know
    loaded = saved.model
    inputs = dataset.test.first(33).inputs
    with torch.no_grad():
        assert torch.equal(loaded(inputs), trusted(inputs))


@pytest.mark.usefixtures("short_fits")
def test_after_an_ensemble_and_after_a_calibrator() -> None:
    data = stripes(60)
    trained = falconcal.L2Dropout(epochs=8, learning_rate=0.02)
    base = falconcal.Ensemble(base=trained, size=2)
    for inner in (base, Isotonic(base=trained)):
        method = ShiftTemperature(**QUICK, base=inner)
        trusted = method.fit(small_network(), data.batches(20), data.batches(20))
        assert falconcal.predict(trusted, data).log_probs.isfinite().all()


@pytest.mark.usefixtures("short_fits")
def test_the_record_says_what_to_expect() -> None:
    trusted = fitted(
        small_network(), perturbed=("contrast", "patch_shuffle", "row_jitter"), check_families=True
    )
    assert trusted.fit_record is not None
    words = str(trusted.fit_record)
    assert "At home, on examples not fitted on" in words
    assert "left out of the fit" in words
    assert {one.family for one in trusted.fit_record.left_out} == {
        "clean",
        "contrast",
        "patch_shuffle",
        "row_jitter",
    }


def noted_sizes(rows: int) -> set[int]:
    sizes: set[int] = set()

    def note(block: Tensor) -> Tensor:
        sizes.add(len(block))
        return block * 2

    given = torch.arange(float(rows))[:, None]
    assert torch.equal(in_blocks(note, given), given * 2)
    return sizes


def test_without_mkl_all_blocks_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert {size for rows in (0, 1, 32, 70, 300) for size in noted_sizes(rows)} == {OTHER_BLOCK}


def test_with_mkl_blocks_are_large_and_filled_up_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert noted_sizes(0) == noted_sizes(1) == {MKL_MULTIPLE}
    assert noted_sizes(100) == {112}
    assert noted_sizes(300) == {MKL_BLOCK, 48}
