"""The criterion: one number of validation data alone, by which settings and epochs are chosen.

It is the mean over families of the mean ECE over a family's levels, and it counts only where a
model is as accurate as the plain reference, less ``ACCURACY_SLACK``, because a model that knows
nothing is perfectly calibrated. ``CRITERIA`` has two of them.

``matched_levels``: crafted families at nine levels each, where the reference's accuracy has fallen
to ``1/K + (accuracy - 1/K)(1 - i/9)^2``, and clean data as level 0 of each. Every family then asks
for the whole way from right to lost, and none rewards confidence alone. The clean ECE may be at
most the reference's plus ``ECE_SLACK``.

``fixed_levels``: clean data, FGSM at the ten epsilons and given shifts at their own levels. It was
measured and does not select: a network is underconfident under noise and blur and overconfident
far away, and a mean of errors of opposite sign says nothing. It is kept to repeat earlier results.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from falconcal.core.batch import checked_batches
from falconcal.core.model_inputs import Inputs, join_inputs, main_of, with_main
from falconcal.core.perturbation_point import input_gradient
from falconcal.data import PREDICTION_BATCH_SIZE, Batches, Bounds, Examples, Part, sample
from falconcal.metrics import Scores, accuracy, expected_calibration_error
from falconcal.models.predict import predict
from falconcal.shifts import Shift, matched_strengths, shift_context, shift_inputs
from falconcal.shifts.fgsm import EPSILONS, perturb

ACCURACY_SLACK = 0.01
ECE_SLACK = 0.02
MATCHED_STEPS = 9
# from clean to chance
MATCHED_TARGETS = tuple((1 - step / MATCHED_STEPS) ** 2 for step in range(1, MATCHED_STEPS + 1))


@dataclass(frozen=True)
class Criterion:
    """Which levels of the families count, and what is required of a model besides accuracy.

    Args:
        matched: Whether levels are matched to the reference's accuracy, the clean one included.
        fgsm: Whether FGSM through the reference is a family.
        clean_family: Whether clean data is a family of its own.
        ece_slack: How far the clean ECE may lie above the reference's.
    """

    matched: bool
    fgsm: bool
    clean_family: bool
    ece_slack: float


CRITERIA: dict[str, Criterion] = {
    "matched_levels": Criterion(True, fgsm=False, clean_family=False, ece_slack=ECE_SLACK),
    "fixed_levels": Criterion(False, fgsm=True, clean_family=True, ece_slack=math.inf),
}
FIXED_LEVELS = CRITERIA["fixed_levels"]

# crafted families by the kind of data, for criteria whose levels are matched; of twelve families of
# images those that rank networks as the tested shifts do: docs/results/criterion.md
IMAGE_FAMILIES = ("elastic_warp", "patch_shuffle", "occlusion")
FAMILIES: dict[str, tuple[str, ...]] = {
    "image": IMAGE_FAMILIES,
    "sequence": IMAGE_FAMILIES,  # of pixels: shifts act on the image before it is read
    "signal": ("sensor_noise", "gain", "group_offset", "time_warp"),
    "text": ("word_drop", "word_shuffle"),
}
FEWEST_JUDGED = 200  # examples
JUDGING_COST = 0.1  # of training for one epoch, which is about three passes per example


@dataclass(frozen=True)
class CriterionResult:
    """Validation accuracy, clean ECE, and the criterion, of which lower is better."""

    accuracy: float
    criterion: float
    families: Mapping[str, float] = field(default_factory=dict)  # mean ECE over its levels
    clean_ece: float = 0.0


@dataclass(frozen=True)
class Requirements:
    """What a model must reach before its criterion counts."""

    accuracy: float = 0.0
    clean_ece: float = math.inf

    def shortfall(self, result: CriterionResult) -> float:
        """Return how far a model is from what is required, 0 where it is there."""
        missing = max(self.accuracy - result.accuracy, 0.0)
        return missing + max(result.clean_ece - self.clean_ece, 0.0)


@dataclass(frozen=True, eq=False)
class ShiftedValidation:
    """Validation data with its families made once, so that every method sees the same images.

    Iterating over it gives all of the clean validation data, so it can be passed as that.
    """

    whole: Part
    clean: Examples  # those that the criterion is computed on
    families: Mapping[str, tuple[Any, ...]]  # name -> inputs (N, ...) of each level
    criterion: Criterion = FIXED_LEVELS
    required: Requirements = Requirements()  # it is frozen

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.whole.classes

    @property
    def bounds(self) -> Bounds | None:
        return self.whole.bounds

    def __iter__(self) -> Iterator[Any]:
        return iter(self.whole.batches(PREDICTION_BATCH_SIZE))


def shifted_validation(
    data: Part,
    reference: nn.Module,
    shifts: Iterable[Shift],
    examples: int | None = None,
    criterion: Criterion = FIXED_LEVELS,
) -> ShiftedValidation:
    """Make the families once, against a fixed reference model.

    ``examples`` is the number of validation examples that they are made of; None takes all. Tokens
    are whole numbers and cannot be moved along a gradient, so they have no family of FGSM.
    """
    clean = sample(data, examples)
    clean = clean.head(len(clean))
    families: dict[str, tuple[Inputs, ...]] = {}
    if criterion.clean_family:
        families["clean"] = (clean.inputs,)
    if criterion.fgsm and clean.inputs.is_floating_point():
        families["fgsm"] = _attacked(reference, clean)
    for shift in shifts:
        levels = _matched(shift, reference, clean) if criterion.matched else shift
        families[shift.name] = _shifted(levels, reference, clean)
    return ShiftedValidation(
        data, clean, families, criterion, _requirements(reference, clean, criterion)
    )


def examples_to_judge(levels: int, training_examples: int) -> int:
    """Return on how many examples an epoch is judged, so that it costs a tenth of training it.

    At least 200: on small data that costs more, but seconds.
    """
    affordable = int(3 * JUDGING_COST * training_examples / levels)
    return max(affordable, FEWEST_JUDGED)


def _requirements(reference: nn.Module, clean: Examples, criterion: Criterion) -> Requirements:
    """Return what the reference reaches on the same examples, less the slack."""
    found = predict(reference, clean, single_process=True)
    return Requirements(
        accuracy(found) - ACCURACY_SLACK, expected_calibration_error(found) + criterion.ece_slack
    )


def _shifted(shift: Shift, reference: nn.Module, clean: Examples) -> tuple[Inputs, ...]:
    context = shift_context(clean, 0, clean.labels, reference)
    return tuple(shift_inputs(shift, clean.inputs, level, **context) for level in shift.levels[1:])


def _matched(shift: Shift, reference: nn.Module, clean: Examples) -> Shift:
    """Return the shift with levels at which the reference's accuracy has fallen to the targets.

    A target that the shift cannot reach gives its harshest strength, which counts once.
    """
    inputs = (clean.inputs, *_shifted(shift, reference, clean))
    found = [accuracy(one) for one in level_scores(reference, clean, inputs)]
    chance = 1 / predict(reference, clean.first(1), single_process=True).log_probs.shape[1]
    strengths = dict.fromkeys(matched_strengths(shift, found, MATCHED_TARGETS, chance))
    return replace(shift, strengths=(shift.strengths[0], *strengths))


def level_scores(model: nn.Module, clean: Examples, levels: Sequence[Inputs]) -> list[Scores]:
    """Return the scores of the same examples at several levels."""
    predictions = predict(model, clean.repeated(join_inputs(levels)), single_process=True)
    return predictions.scores().split(len(clean))


def _attacked(reference: nn.Module, clean: Examples) -> tuple[Inputs, ...]:
    """Return the inputs under FGSM at every epsilon; one gradient serves all of them."""
    gradients = (input_gradient(reference, *pair) for pair in clean.batches(PREDICTION_BATCH_SIZE))
    direction = torch.cat([gradient.sign() for gradient in gradients])  # (N, ...)
    main, bounds = main_of(clean.inputs), clean.bounds
    moved = (perturb(main, direction, epsilon, bounds) for epsilon in EPSILONS)
    return tuple(with_main(clean.inputs, one) for one in moved)


def validation_criterion(
    model: nn.Module, validation: Batches, bounds: Bounds | None = None
) -> CriterionResult:
    """Return the criterion; plain validation data is taken clean and under the model's own FGSM."""
    if not isinstance(validation, ShiftedValidation):
        validation = shifted_validation(_in_memory(validation, bounds), model, ())
    clean = validation.clean
    (home,) = level_scores(model, clean, [clean.inputs])
    scores = {name: level_scores(model, clean, made) for name, made in validation.families.items()}
    return criterion_result(validation.criterion, home, scores)


def criterion_result(
    criterion: Criterion, clean: Scores, families: Mapping[str, Sequence[Scores]]
) -> CriterionResult:
    """Return the criterion of the scores on clean data and at each family's levels."""
    home = [clean] if criterion.matched else []
    errors = {name: _mean_ece([*home, *levels]) for name, levels in families.items()}
    mean = sum(errors.values()) / len(errors)
    return CriterionResult(accuracy(clean), mean, errors, expected_calibration_error(clean))


def _mean_ece(levels: Sequence[Scores]) -> float:
    return sum(map(expected_calibration_error, levels)) / len(levels)


def _in_memory(validation: Batches, bounds: Bounds | None) -> Examples:
    parts = list(checked_batches(validation))
    inputs, labels = zip(*parts, strict=True)
    return Examples(
        join_inputs(inputs), torch.cat(labels), bounds, getattr(validation, "classes", None)
    )
