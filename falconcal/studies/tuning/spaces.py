"""What is searched: lists of values and ranges, the paper's grids where a study states none."""

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

Point = dict[str, Any]  # a value for every setting that is searched

# Tomani & Buettner, AAAI 2021, supplement: the values that were searched
COMMON: dict[str, list[Any]] = {
    "learning_rate": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3],
    "dropout": [0.0, 0.5],
    "l2_weight": [0.0, 0.001, 0.005, 0.01, 0.05],
}
WEIGHTS = [0.5, 1.0, 5.0, 10.0, 15.0, 30.0, 50.0, 100.0]
# beside the common ones, where the method has them; what the paper did not search is our choice
OWN: dict[str, dict[str, list[Any]]] = {
    "falcon": {
        "entropy_weight": WEIGHTS,
        "calibration_weight": [0.25, 0.1, 0.01, 0.001, 1e-4, 1e-6],
    },
    "evidential": {"divergence_weight": WEIGHTS},
    "mc_dropout": {"dropout": [0.2, 0.5]},  # without any there is nothing to sample
    "joint_gan": {"uniform_weight": [0.1, 1.0]},
    "mixup": {"alpha": [0.1, 0.2, 0.3, 0.4]},  # the range its authors recommend
    "label_smoothing": {"smoothing": [0.02, 0.05, 0.1, 0.2]},
    "focal": {"gamma": [1.0, 2.0, 3.0, 5.0]},
}
NOT_SEARCHED = {
    "seed": "it is the tuning's own: --seed",
    "epochs": "how long a trial trains is said by epochs in [tuning]",
    "keep": "a trial always keeps the epoch of the best criterion",
    "base": "the base is tuned itself: name its settings",
}
RANGE = ("low", "high", "log")


@dataclass(frozen=True)
class Choices:
    """Some values, one of which is taken."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:  # noqa: ARG002
        return True  # the study's own value may always stand beside the others

    def draw(self, source: random.Random) -> Any:
        return source.choice(self.values)

    def suggest(self, trial: "optuna.Trial", name: str, own: Any) -> Any:
        """Return what Optuna takes, or the value that was planned."""
        known = {as_choice(value): value for value in (*self.values, own)}
        return known[trial.suggest_categorical(name, list(known))]

    def edges(self) -> tuple[Any, ...]:
        return self.values

    def plain(self) -> Any:
        return list(self.values)


@dataclass(frozen=True)
class Range:
    """Any number from low to high, whole between whole ends; drawn evenly, or in its logarithm."""

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


def find_space(study: Study, place: TuningTarget) -> Space:
    """Return what is searched for a method: the study's table, or else the paper's values."""
    stated = study.search.get(place.name, default_space(place))
    where = f"search.{place.name}"
    if not stated:
        raise UsageError(f"[{where}] names no setting to search.")
    space = {name: _read(f"{where}.{name}", value) for name, value in stated.items()}
    _check(where, place, space, study.trust)
    return space


def default_space(place: TuningTarget) -> dict[str, Any]:
    """Return the common values and the method's own, of the settings that it has."""
    known = plain_settings(place.method)
    values = {**COMMON, **OWN.get(method_name(place.method), {})}
    return {name: value for name, value in values.items() if name in known}


def check_search(study: Study) -> None:
    """Refuse a table of the study that leads nowhere."""
    for name in study.search:
        if name not in study.methods:
            raise UsageError(
                f"[search.{name}]: the study has no method {name!r}. "
                f"{did_you_mean(name, study.methods)}"
            )
        place = find_target(study, name)
        if place.name != name:
            raise UsageError(
                f"[search.{name}]: {name} is tuned through {place.name}, write "
                f"[search.{place.name}]."
            )
        find_space(study, place)


def study_point(place: TuningTarget, space: Space) -> Point:
    """Return the study's own settings, as far as they are searched."""
    values = plain_settings(place.method)
    return {name: values[_present(name, values)] for name in space}


def points(space: Space, own: Point, seed: int) -> Iterator[Point]:
    """Give the study's own settings, then points drawn at random, none twice, until all are out.

    The first so many are the same however many are asked for, and whoever works on them.
    """
    seen = set()
    if all(space[name].holds(value) for name, value in own.items()):
        seen.add(as_key(own))
        yield own
    source, left = random.Random(f"tuning/{seed}"), _size(space) - _inside(space, own)
    while left > 0:
        point = {name: values.draw(source) for name, values in space.items()}
        if as_key(point) not in seen:
            seen.add(as_key(point))
            left -= 1
            yield point


def as_key(point: Point) -> str:
    """Return what two equal points share, 0 and 0.0 being the same."""
    equal = {name: float(value) if _number(value) else value for name, value in point.items()}
    return json.dumps(equal, sort_keys=True)


def as_choice(value: Any) -> Any:
    """Return a value as Optuna keeps it: what is no scalar becomes text."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return value if plain else json.dumps(value)


def _size(space: Space) -> float:
    """Return how many points there are; a range between whole ends has but so many."""
    return math.prod(_count(values) for values in space.values())


def _count(values: Choices | Range) -> float:
    if isinstance(values, Choices):
        return len({as_key({"": value}) for value in values.values})
    return values.high - values.low + 1 if values.whole else math.inf


def _inside(space: Space, own: Point) -> bool:
    """Tell whether the study's own settings are a point of the grid, so drawn no more."""
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
        if name not in RANGE:
            raise UsageError(
                f"{where}: unknown key {name!r} of a range. {did_you_mean(name, RANGE)}"
            )
    low: Any = stated.get("low")
    high: Any = stated.get("high")
    log = stated.get("log", False)
    if not _number(low) or not _number(high) or not isinstance(log, bool) or not low < high:
        raise UsageError(
            f"{where}: expected numbers, low below high, and log a bool, got {stated}."
        )
    if log and low <= 0:
        raise UsageError(f"{where}: a range with log = true begins above 0, got low = {low}.")
    return Range(low, high, log)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check(where: str, place: TuningTarget, space: Space, trust: Trust) -> None:
    """Refuse a name or a value that the method does not take."""
    values = plain_settings(place.method)
    for name, tried in space.items():
        if name in NOT_SEARCHED:
            raise UsageError(f"{where}.{name}: not searched, {NOT_SEARCHED[name]}.")
        setting = _present(name, values)
        if setting not in values or name == "method":
            known = [one for one in values if one not in ("method", *NOT_SEARCHED)]
            raise UsageError(
                f"{where}: {method_name(place.method)} has no setting {name!r}. "
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
