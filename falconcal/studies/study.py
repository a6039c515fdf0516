"""A study as settings: what it trains, on which data, and under which shifts it measures."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf

from falconcal.core.distributed import settings_for_torchrun
from falconcal.core.method import Method, innermost_method, with_seed
from falconcal.core.settings import Count, StrTuple, as_dict, settings
from falconcal.core.trust import NOBODY, Trust, trusting
from falconcal.errors import UsageError, unknown_name_error
from falconcal.io.output_folder import DEFAULT_VARIANT
from falconcal.methods import make_method, plain_settings
from falconcal.shifts import (
    AnyShift,
    Outliers,
    Shift,
    find_computed_shift,
    find_outliers,
    find_shift,
    named_shifts,
)
from falconcal.shifts.affine import Centre
from falconcal.studies.drift import Drift, DriftedSample, LevelEntry
from falconcal.studies.overrides import (
    TUNING,
    set_value,
)
from falconcal.studies.study_checks import (
    check_seedless,
    check_study_methods,
    check_study_shifts,
    check_study_variants,
)
from falconcal.training.criterion import CRITERIA, FAMILIES

# left out where empty: folders of before them stay valid
OMITTED_WHEN_EMPTY = {
    "note", "outliers", "stored", "drift", "drifted", "examples", "test_examples",
    "selection_examples", "levels", "variants", "report", "conformal",
}  # fmt: skip
CriterionName = Literal["matched_levels", "fixed_levels"]
DriftName = Annotated[str, Field(pattern=r"^\w[\w-]*$")]
MethodName = Annotated[str, Field(pattern=r"^\w[\w.:-]*$")]
VariantName = Annotated[str, Field(pattern=r"^\w[\w.=+-]*$")]  # also the name of a folder
Entry = str | dict[str, Any]  # a name, or a table of a name and settings


@settings
class Study:
    """What to train, on which data, and under which shifts to measure it.

    Example:
        >>> from falconcal.studies import find_study
        >>> study = find_study("digits", ["falcon.epochs=3"])
        >>> study.dataset, study.method("falcon").epochs
        ('digits', 3)
    """

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    """Name of the study, and of its output folder."""
    title: str = ""
    """Heading of the report."""
    note: str = ""
    """What a reader of the report must know before any number."""
    dataset: Entry
    """Name of the dataset, or a table of its name and settings."""
    model: Entry
    """Name of the network, or a table of its name and settings."""
    batch_size: Count = 100
    """Training examples per step."""
    seeds: Count = 1
    """Number of runs per method and variant, with the seeds 0, 1, ..."""
    centre: Centre = "middle"
    """Centre of the affine shifts."""
    shifts: Annotated[StrTuple, Field(min_length=1)]
    """Shifts that the models are tested under."""
    criterion: CriterionName | None = None
    """By which number of validation data settings and epochs are chosen: ``matched_levels`` or
    ``fixed_levels``. None takes fixed levels where ``selection_shifts`` are named, so that studies
    and folders of before there was a choice stay what they were, and matched ones elsewhere."""
    selection_shifts: StrTuple = ()
    """Shifts of the validation data that choose settings and epochs, reported apart; none takes
    crafted ones for the kind of data, with matched levels."""
    outliers: StrTuple = ()
    """Inputs of no known class: names of datasets, or of ``falconcal list outliers``."""
    stored: str | None = None
    """Folder of the stored shifts, such as ``cifar10_c:fog``."""
    drift: dict[DriftName, list[LevelEntry]] = Field(default_factory=dict)
    """Labelled data of your own as levels of shifts, by name: changes of the dataset's settings, or
    names of other datasets."""
    drifted: dict[str, Any] | None = None
    """Which examples of a level of ``drift`` calibrators may be fitted on, as ``DriftedSample``
    says; no run tests them."""
    examples: Count | None = None
    """Examples of each part to use, for a quick look; None uses all."""
    test_examples: Count | None = None
    """Test examples to use, when prediction is expensive; None uses all."""
    selection_examples: Count | None = None
    """Validation examples that choose the epoch; None uses all."""
    levels: Count | None = None
    """Levels of each shift to use, from the first; None uses all."""
    conformal: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Fraction of conformal sets that may miss the true class, measured by level in the report;
    None makes none."""
    methods: Annotated[dict[MethodName, dict[str, Any]], Field(min_length=1)]
    """Settings of each method, by its name or by any other name beside a setting ``method``."""
    variants: dict[VariantName, dict[str, Any]] = Field(default_factory=dict)
    """Changes of each variant, with keys as for ``--set``; the plain variant changes nothing."""
    search: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Values that tuning tries, by method and setting."""
    tuning: dict[str, Any] = Field(default_factory=dict)
    """Budget of a trial of tuning."""
    report: dict[str, Any] = Field(default_factory=dict)
    """What its methods stand for in the report, as ``ReportRoles`` says; no run depends on it."""
    # given by the caller, never read from a file or written to one; passed on to other processes
    trust: InstanceOf[Trust] = NOBODY
    """Packages whose code the study may name."""

    def trusting(self, packages: Iterable[str]) -> "Study":
        """Return a study that may name code of these packages: ``package.module:Name``."""
        return replace(self, trust=trusting(packages))

    def method(self, name: str, seed: int = 0) -> Method:
        """Return a method of the study with its settings and a seed."""
        values = self._with_base_tables({"method": name, **self.methods[name]}, (name,))
        check_seedless(values, f"methods.{name}")
        return with_seed(make_method(values, self.trust), seed)

    def variant(self, name: str) -> "Study":
        """Return the study with the changes of a variant; it has no variants itself."""
        if name == DEFAULT_VARIANT:
            return replace(self, variants={})
        values = {field: getattr(self, field) for field in self.__dataclass_fields__}
        values = copy.deepcopy({**values, "variants": {}})
        for key, value in self.variants[name].items():
            set_value(values, key, copy.deepcopy(value), KNOWN, f"variants.{name}:")
        return Study(**values)

    def differs(self, other: "Study", method: str) -> bool:
        """Return whether a method would be trained differently in another variant."""
        return (
            self.method(method) != other.method(method)
            or (self.model, self.batch_size) != (other.model, other.batch_size)
        )  # fmt: skip

    def all_shifts(self) -> list[AnyShift]:
        return self.find_shifts((*self.shifts, *self.selection_shifts))

    @property
    def tested(self) -> tuple[str, ...]:
        """All that models are measured under, by name: shifts, those of selection, outliers."""
        return (*self.shifts, *self.selection_shifts, *self.outliers)

    def find_shifts(self, names: Iterable[str]) -> list[AnyShift]:
        """Return shifts by name, computed or stored."""
        found = (self._find(name) for name in names)
        # stored shifts have the levels that are on disk
        return [self._cut(one) if isinstance(one, Shift) else one for one in found]

    def _find(self, name: str) -> AnyShift:
        if name in self.drift:
            return self.own_drift.shift(name)
        return find_shift(name, self.centre, self.stored, self.trust)

    @property
    def own_drift(self) -> Drift:
        """Its labelled data of other times or sites, and what of it may be fitted on."""
        drifted = None if self.drifted is None else DriftedSample(**self.drifted)
        return Drift(self.drift, drifted, self.dataset, self.trust, self.levels, self.examples)

    def find_computed(self, names: Iterable[str]) -> list[Shift]:
        """Return computed shifts by name, with the centre and the levels of the study."""
        return [self._cut(find_computed_shift(name, self.centre, self.trust)) for name in names]

    @property
    def criterion_name(self) -> CriterionName:
        """The criterion that is named, or the one for the shifts that are named."""
        return self.criterion or ("fixed_levels" if self.selection_shifts else "matched_levels")

    def criterion_shifts(self, modality: str) -> list[Shift]:
        """Return the families that choose settings and epochs, none of them tested."""
        names: Iterable[str] = self.selection_shifts
        if not names and CRITERIA[self.criterion_name].matched:
            tested = named_shifts(self.shifts)
            names = [name for name in FAMILIES.get(modality, ()) if name not in tested]
        return [find_computed_shift(name, self.centre, self.trust) for name in names]

    def _cut(self, shift: Shift) -> Shift:
        if self.levels is None:
            return shift
        return replace(shift, strengths=shift.strengths[: self.levels + 1])  # level 0 is clean

    def all_outliers(self) -> list[Outliers]:
        return self.find_outlier_sets(self.outliers)

    def find_outlier_sets(self, names: Iterable[str]) -> list[Outliers]:
        """Return sets of outliers by name, with as many examples as the study says."""
        found = [find_outliers(name, self.trust) for name in names]
        return found if self.examples is None else [one.first(self.examples) for one in found]

    def resolved(self) -> dict[str, Any]:
        """Return the study as plain data, each method with all its settings, defaults too."""
        values = {
            name: value
            for name, value in as_dict(
                replace(self, trust=NOBODY, criterion=self.criterion_name)
            ).items()
            if name not in (*TUNING, "trust")
            and (value or name not in OMITTED_WHEN_EMPTY)
            and (name, value) != ("criterion", "fixed_levels")  # that of folders of before it
        }
        return {**values, "methods": {name: self._resolved(name) for name in self.methods}}

    def _resolved(self, name: str) -> dict[str, Any]:
        values = _seedless(plain_settings(self.method(name)))
        if "method" not in self.methods[name]:
            del values["method"]  # it is the name
        return values

    def _with_base_tables(self, values: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        """Return settings in which every base is a table, also where it was given by name."""
        base = values.get("base")
        if isinstance(base, str):
            if base in inside:
                raise UsageError(
                    f"methods.{base}: its base leads back to itself: name another base."
                )
            if base not in self.methods:
                raise unknown_name_error(f"base of methods.{inside[-1]}", base, self.methods)
            inside, base = (*inside, base), {"method": base, **self.methods[base]}
        if not isinstance(base, dict):
            return values
        return {**values, "base": self._with_base_tables(base, inside)}


KNOWN = [
    name
    for name in Study.__dataclass_fields__
    if name not in ("methods", "variants", "report", "trust", *TUNING)
]


def with_devices(study: Study, where: Mapping[str, Any]) -> Study:
    """Return the study with settings such as devices or precision in every method that trains."""
    where = settings_for_torchrun(
        {name: value for name, value in where.items() if value is not None}
    )
    methods = copy.deepcopy(study.methods)
    for name, table in methods.items():
        while isinstance(table.get("base"), dict):
            table = table["base"]
        if not isinstance(table.get("base"), str):  # a base by name is changed under its own name
            trained = innermost_method(study.method(name))
            table |= {key: value for key, value in where.items() if hasattr(trained, key)}
    changed = replace(study, methods=methods)
    check_study_methods(changed)
    check_study_variants(changed)
    return changed


def with_tests(study: Study, shifts: Iterable[str], outliers: Iterable[str]) -> Study:
    """Return the study with further shifts and outliers to test, checked like one from a file."""
    further = [name for name in shifts if name not in study.tested]
    sets = [name for name in outliers if name not in study.tested]
    if not further and not sets:
        return study
    grown = replace(study, shifts=(*study.shifts, *further), outliers=(*study.outliers, *sets))
    check_study_shifts(grown)
    check_study_methods(grown)
    check_study_variants(grown)
    return grown


def _seedless(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings without seeds, which each run sets, also in the base."""
    return {
        name: _seedless(value) if name == "base" and value is not None else value
        for name, value in values.items()
        if name != "seed"
    }
