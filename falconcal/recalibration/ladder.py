"""The ladder: the copies of the validation data that a calibrator is fitted on, and their weights.

A calibrator that has seen clean data alone is right at home alone (Tomani, Gruber, Erdem, Cremers &
Buettner, "Post-hoc Uncertainty Calibration for Domain Drift Scenarios", CVPR 2021). So any
calibrator can also be fitted on copies of the validation data under crafted shifts, and on
outliers, and on a labelled sample of data that has drifted. The sample has the fraction
``drifted_share`` of the total weight, and of the rest the clean copy has the fraction
``clean_share``, each set of outliers its part of ``outlier_share``, and the other copies have what
remains in equal parts. An outlier is of no class: it counts as an example whose class is drawn at
random, so that no confidence above chance pays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import nn

from falconcal.core.model_inputs import Inputs, main_of, with_main
from falconcal.core.settings import Fraction, PositiveFraction, Strengths
from falconcal.data import Bounds, Examples
from falconcal.errors import UserError
from falconcal.metrics import accuracy
from falconcal.models.predict import predict
from falconcal.recalibration.unit_range import UnitRange
from falconcal.shifts import (
    Shift,
    find_computed_shift,
    find_outliers,
    matched_strengths,
    named_shifts,
)
from falconcal.shifts.shift import shift_context, shift_inputs

Targets = Annotated[tuple[PositiveFraction, ...], Field(min_length=1, strict=False)]
InputForm = Literal["image", "signal", "table", "text"]


FamilyLevels = Literal["spread", "matched"] | Strengths | dict[Literal["accuracy"], Targets]
LEVELS_PER_FAMILY = 5  # levels of a family
DRIFTED_COPY = "drifted"  # the name of the drifted sample among the copies
TARGETS = (0.9, 0.7, 0.5, 0.3, 0.1)  # of the way from chance to the clean accuracy


def _as_table(value: Any) -> Any:
    """Return names alone as a table in which each family has five levels spread over its own."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return dict.fromkeys(value, "spread")
    return value


Perturbed = Annotated[
    Literal["crafted"] | dict[str, FamilyLevels], BeforeValidator(_as_table)
]  # no families at all: the clean copy alone

# what "crafted" stands for: noise and low contrast begin milder than in their own levels, whose
# first is already hard to read
LADDERS: dict[InputForm, dict[str, FamilyLevels]] = {
    "image": {
        "elastic_warp": "spread",
        "swirl": "spread",
        "wave": "spread",
        "patch_shuffle": "spread",
        "gaussian_noise": (0.1, 0.2, 0.35, 0.6, 1.0),
        "contrast": (0.7, 0.5, 0.3, 0.15, 0.05),
        "occlusion": "spread",
        "mixed_images": "spread",
        "row_jitter": "spread",
    },
    "signal": dict.fromkeys(
        ("sensor_noise", "gain", "group_offset", "missing_channels", "time_warp"), "spread"
    ),
    "table": dict.fromkeys(("sensor_noise", "gain", "group_offset", "missing_channels"), "spread"),
    "text": dict.fromkeys(("word_drop", "word_shuffle"), "spread"),
}


@dataclass(frozen=True, eq=False)
class Copy:
    """One copy of the validation data: what was done to it, and its part of the total weight.

    Its examples are made when they are asked for: all copies of large images at once would not fit
    into memory.
    """

    family: str
    level: int
    strength: float
    make: Callable[[], Examples]
    weight: float  # of the whole copy
    is_outliers: bool = False  # inputs of no known class, with labels drawn at random

    @property
    def examples(self) -> Examples:
        """The examples of the copy, made anew, each time the same."""
        return self.make()

    @property
    def is_clean(self) -> bool:
        return self.level == 0


@dataclass(frozen=True)
class Ladder:
    """Which copies there are, and which weights they have."""

    perturbed: Mapping[str, FamilyLevels] | Literal["crafted"]
    outliers: tuple[str, ...]
    clean_share: Fraction
    outlier_share: Fraction
    leave_out: tuple[str, ...] = ()
    seed: int = 0
    drifted_share: float = 0.5

    @property
    def is_clean_alone(self) -> bool:
        return not self.perturbed and not self.outliers

    def families(self, form: InputForm) -> dict[str, FamilyLevels]:
        """Return the families for such inputs and their levels, without those that are left out."""
        table = LADDERS[form] if self.perturbed == "crafted" else self.perturbed
        return {name: levels for name, levels in table.items() if not self._is_left_out(name)}

    def _is_left_out(self, name: str) -> bool:
        return name in named_shifts(self.leave_out)

    def tested_families(self, tested: Iterable[str]) -> list[str]:
        """Return those of its families and outliers that are among what is tested."""
        crafted = [name for table in LADDERS.values() for name in table]
        own = crafted if self.perturbed == "crafted" else list(self.perturbed)
        return sorted(named_shifts(tested) & {*own, *self.outliers})

    def copies(
        self,
        model: nn.Module,
        clean: Examples,
        classes: int,
        scale: UnitRange | None = None,
        drifted: Examples | None = None,
    ) -> list[Copy]:
        """Return the clean copy, every family and level, outliers and drifted data, weighted."""
        copies = self._made_copies(model, clean, classes, scale)
        if drifted is None:
            return copies
        share = self.drifted_share
        lighter = [replace(copy, weight=copy.weight * (1 - share)) for copy in copies]
        return [*lighter, Copy(DRIFTED_COPY, 1, 1.0, lambda: drifted, share)]

    def _made_copies(
        self, model: nn.Module, clean: Examples, classes: int, scale: UnitRange | None
    ) -> list[Copy]:
        """Return the copies that are made of the clean one, and the outliers, weighted."""
        rig = Rig(model, clean, scale, self.seed, 1 / classes)
        sets = [name for name in self.outliers if not self._is_left_out(name)]
        outside = [
            Copy(name, 1, 1.0, partial(self._outliers, name, rig, classes), 0.0, is_outliers=True)
            for name in sets
        ]
        perturbed = list(self._perturbed(rig))
        shares = self._shares(len(perturbed), len(outside))
        kept = Copy("clean", 0, 0.0, lambda: clean, shares[0])
        return [
            kept,
            *(replace(copy, weight=shares[1]) for copy in perturbed),
            *(replace(copy, weight=shares[2]) for copy in outside),
        ]

    def _shares(self, perturbed: int, outside: int) -> tuple[float, float, float]:
        """Return the weight of the clean copy, of each perturbed one and of each set of outliers.

        What has no copies gives its weight to the others in proportion.
        """
        outlier = self.outlier_share if outside else 0.0
        clean = self.clean_share if perturbed else 1.0
        rest = 1.0 - outlier
        shifted = (1 - clean) * rest
        return clean * rest, shifted / max(perturbed, 1), outlier / max(outside, 1)

    def _perturbed(self, rig: "Rig") -> Iterator[Copy]:
        for name, levels in self.families(input_form(rig.clean.inputs)).items():
            shift = _with_levels(find_computed_shift(name), levels, rig)
            for level in shift.levels[1:]:
                make = partial(rig.shifted, shift, level)
                yield Copy(name, level, shift.strengths[level], make, 0.0)

    def _outliers(self, name: str, rig: "Rig", classes: int) -> Examples:
        like = rig.pixels()
        batches = find_outliers(name).first(len(like)).batches(like, seed=self.seed)
        inputs = torch.cat([inputs for inputs, _ in batches])
        generator = torch.Generator().manual_seed(self.seed)
        labels = torch.randint(classes, (len(inputs),), generator=generator)
        inputs = inputs if rig.scale is None else rig.scale.from_unit(inputs)
        return Examples(
            with_main(rig.clean.inputs[: len(inputs)], inputs), labels, None, rig.clean.classes
        )


def input_form(inputs: Inputs) -> InputForm:
    """Return what kind of inputs these are by their shape: images, signals, tables or tokens."""
    if not inputs.is_floating_point():
        return "text"
    forms: dict[int, InputForm] = {2: "table", 3: "signal", 4: "image"}
    if inputs.ndim not in forms:
        raise UserError(
            "expected tables (N, channels), signals (N, time, channels), images (N, channels, "
            f"height, width) or tokens (N, length), got shape {tuple(inputs.shape)}: there are no "
            "crafted shifts for such inputs."
        )
    return forms[inputs.ndim]


@dataclass(frozen=True, eq=False)
class Rig:
    """What copies are made with: the model, the clean examples, and their scale as pixels."""

    model: nn.Module
    clean: Examples
    scale: UnitRange | None
    seed: int
    chance: float  # accuracy of a guess

    def shifted(self, shift: Shift, level: int) -> Examples:
        """Return the examples at a level; images are shifted as pixels from 0 to 1."""
        if self.scale is None or "model" in shift.needs:
            return self._copy(self._at(shift, level, self.clean))
        moved = main_of(self._at(shift, level, self.pixels())).clamp(0, 1)
        return self._copy(with_main(self.clean.inputs, self.scale.from_unit(moved)))

    def pixels(self) -> Examples:
        """Return the clean examples as pixels from 0 to 1, where they are images."""
        if self.scale is None:
            return self.clean
        unit = self.scale.to_unit(main_of(self.clean.inputs))
        inputs = with_main(self.clean.inputs, unit)
        return replace(self.clean, inputs=inputs, bounds=Bounds(0.0, 1.0))

    def accuracy(self, shift: Shift, level: int) -> float:
        return accuracy(predict(self.model, self.shifted(shift, level), single_process=True))

    def _at(self, shift: Shift, level: int, examples: Examples) -> Inputs:
        context = shift_context(examples, 0, examples.labels, self.model)
        return shift_inputs(shift, examples.inputs, level, seed=self.seed, **context)

    def _copy(self, inputs: Inputs) -> Examples:
        return replace(self.clean, inputs=inputs, bounds=None, texts=None)


def _with_levels(shift: Shift, levels: FamilyLevels, rig: Rig) -> Shift:
    """Return the shift with the strengths that are asked for as its levels 1, 2, ..."""
    if levels == "spread":
        strengths = _spread(shift.strengths[1:])
    elif levels == "matched" or isinstance(levels, Mapping):
        targets = TARGETS if levels == "matched" else levels["accuracy"]
        accuracies = [rig.accuracy(shift, level) for level in shift.levels]
        strengths = matched_strengths(shift, accuracies, targets, rig.chance)
    else:
        strengths = tuple(levels)
    return replace(shift, strengths=(shift.strengths[0], *strengths))


def _spread(strengths: tuple[float, ...]) -> tuple[float, ...]:
    """Return five of the strengths, from the first to the last."""
    count = min(LEVELS_PER_FAMILY, len(strengths))
    places = torch.linspace(0, len(strengths) - 1, count).round().long().tolist()
    return tuple(strengths[place] for place in places)
