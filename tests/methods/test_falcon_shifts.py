"""FALCON's calibration step over any shift: what the shift does alone, per batch or example."""

import pytest
import torch
from torch import nn

import falconcal
from falconcal.data import Bounds
from falconcal.errors import CalibrationWarning, UsageError
from falconcal.methods.falcon import Falcon, perturbed
from falconcal.methods.falcon_directions import shift_batch
from falconcal.metrics import Predictions
from falconcal.shifts import SHIFTS
from falconcal.training import Step
from falconcal.training.collapse import warn_if_timid
from tests.helpers.small_data import small_network, stripes
from tests.helpers.small_studies import TEXT
from tests.helpers.stripes import read_own


def make_step(bounds: Bounds | None = None, seed: int = 0) -> Step:
    data = stripes(9)
    low, scale = (bounds.low, bounds.range) if bounds else (0.0, 1.0)
    inputs = data.inputs * scale + low
    random = torch.Generator().manual_seed(seed)
    return Step(
        small_network(), inputs, data.labels, 1, 5, random, bounds=bounds or Bounds(0.0, 1.0)
    )


def test_a_batch_is_shifted_by_one_level_drawn_for_all() -> None:
    moved = shift_batch(make_step(), "row_jitter", per_example=False)
    images, random = stripes(9).inputs, torch.Generator().manual_seed(0)
    seed = int(torch.randint(2**31, (), generator=random))
    level = int(torch.randint(1, 10, (9,), generator=random)[0])
    assert torch.equal(moved, SHIFTS["row_jitter"].at(images, level, seed=seed))


def test_each_example_may_have_its_own_level() -> None:
    moved = shift_batch(make_step(), "row_jitter", per_example=True)
    images, random = stripes(9).inputs, torch.Generator().manual_seed(0)
    seed = int(torch.randint(2**31, (), generator=random))
    levels = torch.randint(1, 10, (9,), generator=random)
    for number, level in enumerate(levels.tolist()):
        whole = SHIFTS["row_jitter"].at(images, level, seed=seed)
        assert torch.equal(moved[number], whole[number])


def test_images_of_another_range_are_shifted_as_pixels() -> None:
    unit = shift_batch(make_step(), "contrast", per_example=False)
    signed = shift_batch(make_step(Bounds(-1.0, 1.0)), "contrast", per_example=False)
    torch.testing.assert_close((signed + 1) / 2, unit, atol=1e-6, rtol=0)


def test_it_trains_over_a_shift_that_the_user_names() -> None:
    data = stripes(60)
    method = Falcon(
        epochs=6,
        entropy_weight=0.5,
        directions=("gaussian_blur", "adversarial"),
        learning_rate=0.02,
    )
    model = method.fit(small_network(), data.batches(20), data.batches(20))
    assert falconcal.accuracy(falconcal.predict(model, data)) > 0.8
    step = make_step()
    assert perturbed(Falcon(directions=("wave",)), step).shape == step.inputs.shape


def test_unknown_directions_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gaussian_blur'"):
        Falcon(directions=("gausian_blur",))
    with pytest.raises(UsageError, match="needs more than a batch"):
        Falcon(directions=("word_swap",))


def test_a_study_never_calibrates_on_what_it_tests() -> None:
    with pytest.raises(UsageError, match="which the study tests"):
        read_own(TEXT, "test", ['shifts=["shear", "wave"]', 'falcon.directions=["wave"]'])


def test_a_timid_model_is_warned_of() -> None:
    labels = torch.arange(30) % 3
    logits = 0.5 * nn.functional.one_hot(labels, 3).float()  # always right, 0.45 sure
    with pytest.warns(CalibrationWarning, match="accuracy 1.000 at mean confidence 0.45"):
        warn_if_timid(Predictions.from_logits(logits, labels))
    warn_if_timid(Predictions.from_logits(10 * logits, labels))
