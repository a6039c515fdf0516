"""Which calibrator meets the goal against one temperature on which network, and by how much not.

The goal was written down before (``docs/results/protocol.md``): one and the same calibrator has a
lower micro ECE than ``temperature`` on at least 25 of the 28 families, and on none one that is more
than 0.01 above it, on each of digits, MNIST and the ResNet-20.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars

from benchmarks.pages import table
from benchmarks.pretrained_networks import CALIBRATORS, RAW
from benchmarks.promise import AFFINE
from benchmarks.promise_networks import CORRUPTED, FAMILIES, TEMPERATURE, by_family, clean, over

GOAL = {"digits": "digits", "mnist": "MNIST", "resnet20": "the ResNet-20"}
ENOUGH, WORST = 25, 0.01  # families won, and how much worse any may be
Rows = polars.DataFrame


@dataclass(frozen=True)
class Standing:
    """How a calibrator stands against one temperature on a network.

    Attributes:
        won: Families on which its micro ECE is lower.
        family: The family on which it is furthest behind.
        behind: By how much its micro ECE is higher there.
    """

    won: int
    family: str
    behind: float

    @property
    def short(self) -> int:
        """How many families are missing for the goal."""
        return max(0, ENOUGH - self.won)

    @property
    def excess(self) -> float:
        """How much the worst family is further behind than the goal lets it be."""
        return max(0.0, self.behind - WORST)

    @property
    def met(self) -> bool:
        return not self.short and not self.excess

    def words(self) -> str:
        return f"{self.won} of {len(FAMILIES)}, worst {self.behind:+.3f}"


def methods(rows: Rows) -> list[str]:
    there = set(rows["method"])
    return [name for name in (RAW, *CALIBRATORS) if name in there]


def others(rows: Rows) -> list[str]:
    return [name for name in methods(rows) if name not in (RAW, TEMPERATURE)]


def standings(rows: Rows, metric: str = "micro_ece") -> dict[str, Standing]:
    """Return how each calibrator stands on a network, by its name."""
    errors = by_family(rows, metric)
    return {name: _standing(errors[name], errors[TEMPERATURE]) for name in others(rows)}


def _standing(errors: Mapping[str, float], temperature: Mapping[str, float]) -> Standing:
    gaps = {name: errors[name] - temperature[name] for name in FAMILIES}
    worst = max(gaps, key=lambda name: gaps[name])
    return Standing(sum(gap < 0 for gap in gaps.values()), worst, gaps[worst])


def reaching(rows: Rows) -> list[str]:
    """Return the calibrators that meet the goal on a network."""
    return [name for name, one in standings(rows).items() if one.met]


def listed(names: Sequence[str]) -> str:
    """Return names as English lists them: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def coded(names: Sequence[str]) -> str:
    return listed([f"`{name}`" for name in names])


def verdict(kept: Mapping[str, Rows]) -> str:
    """Say whether one calibrator meets the goal on all its networks, and what comes nearest."""
    each = by_network(kept)
    met = [name for name in CALIBRATORS if all(name in one and one[name].met for one in each)]
    there = [GOAL[name] for name in GOAL if name in kept]
    missing = [GOAL[name] for name in GOAL if name not in kept]
    if met and missing:
        state = f"**Open**: {_meets(met)} on {listed(there)}"
    elif met:
        state = f"**Met**: by {coded(met)}"
    else:
        state = f"**Missed**: no calibrator does so on {_all(there)}"
    left = f"; not measured yet: {listed(missing)}" if missing else ""
    return f"{state}{left}." + ("" if met else f" {nearest_words(kept)}")


def _meets(names: Sequence[str]) -> str:
    return f"{coded(names)} {'does' if len(names) == 1 else 'do'} so"


def _all(names: Sequence[str]) -> str:
    return f"all of {listed(names)}" if len(names) > 1 else listed(names)


def by_network(kept: Mapping[str, Rows]) -> list[dict[str, Standing]]:
    """Return the standings on the networks that the goal names, as far as there are rows."""
    return [standings(kept[name]) for name in GOAL if name in kept]


def nearest(kept: Mapping[str, Rows]) -> list[str]:
    """Return the calibrators, the nearest to the goal first.

    First counts on how many networks it is met, then how many families are missing on all of them,
    then how far the worst families are too far behind.
    """
    each = by_network(kept)
    names = [name for name in CALIBRATORS if all(name in one for one in each)]

    def distance(name: str) -> tuple[int, int, float]:
        mine = [one[name] for one in each]
        return (
            -sum(one.met for one in mine),
            sum(one.short for one in mine),
            sum(one.excess for one in mine),
        )

    return sorted(names, key=distance)


def nearest_words(kept: Mapping[str, Rows]) -> str:
    """Say which calibrator comes nearest, where it meets the goal, and what it lacks elsewhere."""
    name = nearest(kept)[0]
    mine = {GOAL[one]: standings(kept[one])[name] for one in GOAL if one in kept}
    met = [network for network, one in mine.items() if one.met]
    where = f"meets it on {listed(met)}" if met else "meets it on none"
    lacks = [f"on {network} {lack(one)}" for network, one in mine.items() if not one.met]
    return f"The nearest is `{name}`, which {where}; {', '.join(lacks)}."


def lack(standing: Standing) -> str:
    """Say what a calibrator lacks of the goal on a network."""
    won = f"it is better on {standing.won} families, {standing.short} too few"
    behind = f"{standing.behind:+.3f} on {standing.family}, {standing.excess:.3f} too much"
    if not standing.excess:
        return won
    return f"{won}, and {behind}" if standing.short else f"it has {behind}"


def nearest_table(kept: Mapping[str, Rows]) -> str:
    """Return what every calibrator has of the goal on each network, the nearest first."""
    each = by_network(kept)
    lines = [
        (f"`{name}`", str(sum(one[name].met for one in each)), *(_cell(one[name]) for one in each))
        for name in nearest(kept)
    ]
    networks = [GOAL[name].removeprefix("the ") for name in GOAL if name in kept]
    return table(("calibrator", "networks on which it is met", *networks), lines)


def _cell(standing: Standing) -> str:
    return f"**{standing.words()}**" if standing.met else standing.words()


def winners(rows: Rows) -> str:
    """Say who won on a network: by families, and by each column of errors."""
    found = standings(rows)
    most = max(found, key=lambda name: (found[name].won, -found[name].behind))
    lowest: list[tuple[str, Callable[[Rows], float]]] = [
        ("at home", lambda mine: clean(mine, "ece")),
        ("over the nine shifts", lambda mine: over(mine, AFFINE, "micro_ece")),
        ("over the corruptions", lambda mine: over(mine, CORRUPTED, "micro_ece")),
    ]
    errors = ", ".join(f"{where} {_lowest(rows, measure)}" for where, measure in lowest)
    families = f"`{most}` wins the most families, {found[most].won} of {len(FAMILIES)}"
    return f"{families}. Lowest error: {errors}."


def _lowest(rows: Rows, measure: Callable[[Rows], float]) -> str:
    """Return who has the lowest error, beside that of one temperature."""
    errors = {name: measure(rows.filter(method=name)) for name in methods(rows)}
    best = min(errors, key=lambda name: errors[name])
    beside = "" if best == TEMPERATURE else f"; `{TEMPERATURE}` {errors[TEMPERATURE]:.3f}"
    return f"`{best}` ({errors[best]:.3f}{beside})"
