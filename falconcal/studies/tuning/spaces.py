"""The search space of a method: lists of values and ranges, by default the paper's grids.

The points of a search are drawn here, not by Optuna's GridSampler or BruteForceSampler: those know
no ranges of real numbers, and their points depend on which worker asks when. Here the points follow
from the seed alone, so stored trials can be continued and repeated.
"""

import dataclasses
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falconcal.core.settings import RENAMED
from falconcal.core.trust import Trust
from falconcal.errors import UsageError, did_you_mean
from falconcal.methods import make_method, method_name, plain_settings
from falconcal.studies import Study
from falconcal.studies.tuning.target import TuningTarget, find_target

if TYPE_CHECKING:
    import optuna

Point = dict[str, Any]  # one value for each setting that is searched

# the values that the paper searched: Tomani & Buettner, AAAI 2021, supplement
COMMON: dict[str, list[Any]] = {
    "learning_rate": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3],
    "dropout": [0.0, 0.5],
    "l2_weight": [0.0, 0.001, 0.005, 0.01, 0.05],
}
WEIGHTS = [0.5, 1.0, 5.0, 10.0, 15.0, 30.0, 50.0, 100.0]
# further settings of a method; values that the paper did not search are our choice
OWN: dict[str, dict[str, list[Any]]] = {
    "falcon": {
        "entropy_weight": WEIGHTS,
        "calibration_weight": [0.25, 0.1, 0.01, 0.001, 1e-4, 1e-6],
    },
    "evidential": {"divergence_weight": WEIGHTS},
    "mc_dropout": {"dropout": [0.2, 0.5]},  # without dropout there is nothing to sample
    "joint_gan": {"uniform_weight": [0.1, 1.0]},
    "mixup": {"alpha": [0.1, 0.2, 0.3, 0.4]},  # the range its authors recommend
    "label_smoothing": {"smoothing": [0.02, 0.05, 0.1, 0.2]},
    "entropy_smoothing": {"smoothing": [0.02, 0.05, 0.1], "entropy_weight": [0.05, 0.1, 0.3]},
    "reg_mixup": {"alpha": [5.0, 10.0, 20.0], "mixed_weight": [0.5, 1.0]},
    "augmix": {"strength": [0.1, 0.3, 0.5], "agreement_weight": [1.0, 6.0, 12.0]},
    "sngp": {"norm_bound": [1.0, 3.0, 6.0], "length_scale": [0.5, 1.0, 2.0]},
    "focal": {"gamma": [1.0, 2.0, 3.0, 5.0]},
}
NOT_SEARCHED = {
    "seed": "--seed sets it for all trials",
    "epochs": "set epochs in [tuning], the length of every trial",
    "keep": "a trial always keeps the epoch with the best criterion",
    "base": "the settings of the base are searched: name those",
}
RANGE_KEYS = ("low", "high", "log")


@dataclass(frozen=True)
class Choices:
    """A list of values, one of which is taken."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:  # noqa: ARG002
        return True  # the study's own value is tried too, whether it is listed or not

    def draw(self, source: random.Random) -> Any:
        return source.choice(self.values)

    def suggest(self, trial: "optuna.Trial", name: str, own: Any) -> Any:
        """Return the value that was planned, or else the one that Optuna chooses."""
        known = {optuna_value(value): value for value in (*self.values, own)}
        return known[trial.suggest_categorical(name, list(known))]

    def edges(self) -> tuple[Any, ...]:
        return self.values

    def plain(self) -> Any:
        return list(self.values)


@dataclass(frozen=True)
class Range:
    """Any number from low to high, an integer where both ends are; uniform, or in the logarithm."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def draw(self, source: random.Random) -> float:
        if self.log:
            drawn = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
            return round(drawn) if self.whole else min(max(drawn, self.low), self.high)
        if self.whole:
            return source.randint(int(self.low), int(self.high))
        return source.uniform(self.low, self.high)

    def suggest(self, trial: "optuna.Trial", name: str, own: Any) -> float:  # noqa: ARG002
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def edges(self) -> tuple[float, ...]:
        return (self.low, self.high)

    def plain(self) -> Any:
        return dataclasses.asdict(self)


Space = dict[str, Choices | Range]


def find_space(study: Study, target: TuningTarget) -> Space:
    """Return the search space of a method: the study's table, or else the paper's values."""
    stated = study.search.get(target.name, default_space(target))
    where = f"search.{target.name}"
    if not stated:
        raise UsageError(f"[{where}]: expected at least one setting to search, got none.")
    space = {name: _read(f"{where}.{name}", value) for name, value in stated.items()}
    _check(where, target, space, study.trust)
    return space


def default_space(target: TuningTarget) -> dict[str, Any]:
    """Return the paper's values of those settings that the method has."""
    known = plain_settings(target.method)
    values = {**COMMON, **OWN.get(method_name(target.method), {})}
    return {name: value for name, value in values.items() if name in known}


def check_search(study: Study) -> None:
    """Refuse a table ``[search.NAME]`` that would not be used."""
    for name in study.search:
        if name not in study.methods:
            raise UsageError(
                f"[search.{name}]: the study has no method {name!r}. "
                f"{did_you_mean(name, study.methods)}"
            )
        target = find_target(study, name)
        if target.name != name:
            raise UsageError(
                f"[search.{name}]: {name} is tuned through {target.name}, write "
                f"[search.{target.name}] instead."
            )
        find_space(study, target)


def study_point(target: TuningTarget, space: Space) -> Point:
    """Return the point of the study's own settings."""
    values = plain_settings(target.method)
    return {name: values[_present(name, values)] for name in space}


def points(space: Space, own: Point, seed: int) -> Iterator[Point]:
    """Yield the study's own point, then random points without repeats until none is left.

    Each point depends on the seed and its position only, not on how many are asked for.
    """
    seen = set()
    if all(space[name].holds(value) for name, value in own.items()):
        seen.add(point_key(own))
        yield own
    source, left = random.Random(f"tuning/{seed}"), _size(space) - _inside(space, own)
    while left > 0:
        point = {name: values.draw(source) for name, values in space.items()}
        if point_key(point) not in seen:
            seen.add(point_key(point))
            left -= 1
            yield point


def point_key(point: Point) -> str:
    """Return a key that equal points share; 0 and 0.0 are equal."""
    equal = {name: float(value) if _number(value) else value for name, value in point.items()}
    return json.dumps(equal, sort_keys=True)


def optuna_value(value: Any) -> Any:
    """Return a value as Optuna stores it: a list becomes text."""
    scalar = value is None or isinstance(value, bool | int | float | str)
    return value if scalar else json.dumps(value)


def _size(space: Space) -> float:
    """Return how many points there are, infinitely many where a range is of real numbers."""
    return math.prod(_count(values) for values in space.values())


def _count(values: Choices | Range) -> float:
    if isinstance(values, Choices):
        return len({point_key({"": value}) for value in values.values})
    return values.high - values.low + 1 if values.whole else math.inf


def _inside(space: Space, own: Point) -> bool:
    """Return whether the study's own point is one of the grid, and so already counted."""
    return all(
        own[name] in values.values
        if isinstance(values, Choices)
        else values.whole and values.holds(own[name])
        for name, values in space.items()
    )


def _read(where: str, stated: Any) -> Choices | Range:
    if isinstance(stated, list) and stated:
        return Choices(tuple(stated))
    if isinstance(stated, dict):
        return _read_range(where, stated)
    raise UsageError(
        f"{where}: expected a list of values, or a range such as {{low = 1e-4, high = 1e-2, "
        f"log = true}}, got {stated!r}."
    )


def _read_range(where: str, stated: dict[str, Any]) -> Range:
    for name in stated:
        if name not in RANGE_KEYS:
            raise UsageError(
                f"{where}: unknown key {name!r} of a range. {did_you_mean(name, RANGE_KEYS)}"
            )
    low: Any = stated.get("low")
    high: Any = stated.get("high")
    log = stated.get("log", False)
    if not _number(low) or not _number(high) or not isinstance(log, bool) or not low < high:
        raise UsageError(
            f"{where}: expected numbers, low below high, and log true or false, got {stated}."
        )
    if log and low <= 0:
        raise UsageError(f"{where}: a range with log = true begins above 0, got low = {low}.")
    return Range(low, high, log)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check(where: str, target: TuningTarget, space: Space, trust: Trust) -> None:
    """Refuse a setting or a value that the method does not accept."""
    values = plain_settings(target.method)
    for name, tried in space.items():
        if name in NOT_SEARCHED:
            raise UsageError(f"{where}.{name}: not searched: {NOT_SEARCHED[name]}.")
        setting = _present(name, values)
        if setting not in values or name == "method":
            known = [one for one in values if one not in ("method", *NOT_SEARCHED)]
            raise UsageError(
                f"{where}: {method_name(target.method)} has no setting {name!r}. "
                f"{did_you_mean(name, known)}"
            )
        for value in tried.edges():
            _try(f"{where}.{name}", {**values, setting: value}, trust)


def _present(name: str, values: dict[str, Any]) -> str:
    """Return the present name of a setting, which a study may search by its old one."""
    return name if name in values else RENAMED.get(name, name)


def _try(where: str, values: dict[str, Any], trust: Trust) -> None:
    try:
        make_method(values, trust)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
