"""The ladder: which copies, which weights, and every calibrator fitted on them."""

import pytest
import torch
from torch import nn

import falconcal
from falconcal.data import Examples
from falconcal.errors import UserError
from falconcal.methods import make_method, plain_settings
from falconcal.recalibration import CalibratedModel, Temperature
from falconcal.recalibration.held_examples import held_examples
from falconcal.recalibration.ladder import LADDERS, Ladder, Rig
from falconcal.recalibration.unit_range import UnitRange, find_unit_range
from falconcal.shifts import SHIFTS, Shift, matched_strengths
from falconcal.shifts.keyed_noise import KeyedNoise
from tests.helpers.methods_by_kind import CALIBRATORS
from tests.helpers.small_data import small_network, stripes

UNIT = UnitRange((0.0,), (1.0,))


def ladder(**changes: object) -> Ladder:
    values = {
        "perturbed": {"elastic_warp": "spread", "contrast": (0.5, 0.1)},
        "outliers": (),
        "clean_share": 0.6,
        "outlier_share": 0.1,
    }
    return Ladder(**{**values, **changes})  # type: ignore[arg-type]


def test_copies_and_weights_by_hand() -> None:
    copies = ladder(outliers=("uniform_noise",)).copies(small_network(), stripes(30), 3, UNIT)
    assert [(copy.family, copy.level) for copy in copies] == [
        ("clean", 0),
        *(("elastic_warp", level) for level in range(1, 6)),
        ("contrast", 1),
        ("contrast", 2),
        ("uniform_noise", 1),
    ]
    assert [copy.weight for copy in copies] == pytest.approx([0.9 * 0.6, *[0.9 * 0.4 / 7] * 7, 0.1])
    assert sum(copy.weight for copy in copies) == pytest.approx(1)
    assert [copy.strength for copy in copies[1:6]] == [0.1, 0.3, 0.5, 0.7, 0.9]
    outside = copies[-1].examples.labels
    assert set(outside.tolist()) <= {0, 1, 2}  # drawn at random: no class is right


def test_copies_are_made_when_they_are_asked_for_and_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[float] = []

    def noisy(inputs: torch.Tensor, strength: float, noise: KeyedNoise) -> torch.Tensor:
        made.append(strength)
        return inputs + strength * noise.normal(tuple(inputs.shape[1:]))

    monkeypatch.setitem(SHIFTS, "counted", Shift("counted", (0.0, 0.1, 0.2), noisy))
    copies = ladder(perturbed={"counted": "spread"}).copies(small_network(), stripes(30), 3, UNIT)
    assert made == []  # all copies of large images at once would not fit into memory
    first, again = copies[2].examples, copies[2].examples
    assert made == [0.2, 0.2]
    assert torch.equal(first.inputs, again.inputs)


def test_what_is_tested_is_left_out() -> None:
    cut = ladder(leave_out=("rot_left | elastic_warp", "xshift"))
    assert list(cut.families("image")) == ["contrast"]
    assert "elastic_warp" not in ladder(perturbed="crafted", leave_out=("elastic_warp",)).families(
        "image"
    )


@pytest.mark.parametrize("form", LADDERS)
def test_every_crafted_family_is_a_shift_of_the_table(form: str) -> None:
    assert set(LADDERS[form]) <= set(SHIFTS)  # type: ignore[index]


class Threshold(nn.Module):
    """Answers class 1 where the mean is above a half."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mean = inputs.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


def test_strengths_are_matched_to_accuracy_by_linear_interpolation() -> None:
    falling = Shift("falling", (0.0, 1.0, 2.0), lambda x, strength, _: x - 0.25 * strength)
    inputs = torch.linspace(0.5, 1, 101)[1:].reshape(100, 1, 1, 1)
    clean = Examples(inputs, torch.ones(100).long(), classes=("low", "high"))
    rig = Rig(Threshold(), clean, None, 0, 0.5)

    def matched(shift: Shift, target: float) -> tuple[float, ...]:
        found = [rig.accuracy(shift, level) for level in shift.levels]
        return matched_strengths(shift, found, (target,), rig.chance)

    # accuracy 1, 0.5, 0: three quarters of the way from chance to 1 is 0.875, a quarter down
    assert matched(falling, 0.75)[0] == pytest.approx(0.25)
    assert matched(falling, 0.5)[0] == pytest.approx(0.5)
    still = Shift("still", (0.0, 1.0, 2.0), lambda x, *_: x)
    assert matched(still, 0.5) == (2.0,)  # never reached: the harshest
    assert matched_strengths(falling, (0.2, 0.1, 0.0), (0.5,), 0.5) == (0.0,)  # worse than a guess


def learned() -> nn.Module:
    """Return a network that knows the stripes, but for one in ten labels."""
    data = stripes(90)
    wrong = torch.where(torch.arange(90) % 10 == 0, (data.labels + 1) % 3, data.labels)
    noisy = Examples(data.inputs, wrong, data.bounds, data.classes)
    method = falconcal.L2Dropout(epochs=8, learning_rate=0.02)
    return method.fit(small_network(), noisy.batches(30), noisy.batches(30))


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibrator_can_be_fitted_under_shift(name: str) -> None:
    settings = {
        "method": name,
        "perturbed": ["contrast", "patch_shuffle"],
        "outliers": ["uniform_noise"],
    }
    method = make_method({**settings, "check_families": False})
    assert make_method(plain_settings(method)) == method
    data = stripes(90)
    fitted = method.fit(learned(), data.batches(30), data.batches(30))
    probs = falconcal.predict(fitted, data).log_probs.exp()
    torch.testing.assert_close(probs.sum(1), torch.ones(90, dtype=probs.dtype))
    assert isinstance(fitted, CalibratedModel)
    record = fitted.fit_record
    assert record is not None
    assert {copy.family for copy in record.copies} == {
        "clean",
        "contrast",
        "patch_shuffle",
        "uniform_noise",
    }


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if not CALIBRATORS[name].observes])
def test_alike_weights_give_what_no_weights_give(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    log_probs = torch.randn(300, 4, generator=generator, dtype=torch.float64).log_softmax(1)
    labels = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
    calibrator = CALIBRATORS[name]()
    alike = torch.full((300,), 1 / 300, dtype=torch.float64)
    plain, weighted = (
        calibrator.learn(log_probs, labels),
        calibrator.learn(log_probs, labels, alike),
    )
    torch.testing.assert_close(
        calibrator.apply(log_probs, **plain),
        calibrator.apply(log_probs, **weighted),
        atol=0.02,
        rtol=0,
    )


def test_weights_count_as_repeated_examples() -> None:
    generator = torch.Generator().manual_seed(4)
    log_probs = torch.randn(50, 3, generator=generator, dtype=torch.float64).log_softmax(1)
    labels = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
    weights = torch.cat([torch.full((25,), 2.0), torch.ones(25)]).double() / 75
    repeated = torch.cat([torch.arange(50), torch.arange(25)])
    ours = Temperature().learn(log_probs, labels, weights)["temperature"]
    theirs = Temperature().learn(log_probs[repeated], labels[repeated])["temperature"]
    torch.testing.assert_close(ours, theirs)


def test_held_examples_are_drawn_alike_per_class_and_by_the_seed() -> None:
    labels = torch.cat([torch.zeros(80), torch.ones(15), torch.full((5,), 2)]).long()
    data = Examples(torch.arange(100.0)[:, None], labels)
    drawn = held_examples(data.batches(7), 30, 0, 3, per_class=True)
    assert drawn.labels.bincount().tolist() == [10, 10, 5]
    again = held_examples(data.batches(7), 30, 0, 3, per_class=True)
    assert torch.equal(drawn.inputs, again.inputs)
    other = held_examples(data.batches(7), 30, 1, 3, per_class=True)
    assert not torch.equal(drawn.inputs, other.inputs)
    assert len(held_examples(data.batches(7), 30, 0, 3)) == 30
    assert torch.equal(labels[drawn.inputs[:, 0].long()], drawn.labels)


def test_the_range_of_images_is_found_stated_or_asked_for() -> None:
    data = stripes(6)
    assert find_unit_range(data.batches(3), "data", None) == UnitRange((0.0,), (1.0,))
    pairs = [(data.inputs, data.labels)]
    with pytest.raises(UserError, match=r"bounds=\(0, 1\)"):
        find_unit_range(pairs, "data", None)
    signed = find_unit_range(pairs, (-1.0, 1.0), None)
    torch.testing.assert_close(
        signed.to_unit(torch.tensor([[[[-1.0, 1.0]]]])), torch.tensor([[[[0.0, 1.0]]]])
    )
    scaled = find_unit_range(pairs, "data", ((0.5, 0.4), (0.2, 0.1)))
    pixels = torch.rand(2, 2, 3, 3)
    normal = (pixels - torch.tensor([0.5, 0.4]).view(2, 1, 1)) / torch.tensor([0.2, 0.1]).view(
        2, 1, 1
    )
    torch.testing.assert_close(scaled.to_unit(normal), pixels, atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.from_unit(pixels), normal, atol=1e-5, rtol=0)
