"""What a run ends with: the study's showcase, read from the rows and said in sentences."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest
import tomlkit
from rich.console import Console

from falconcal.cli import terminal
from falconcal.cli.showcase import show_showcase, what_does_not_work
from falconcal.errors import UsageError
from falconcal.report.results import Results
from falconcal.studies import STUDIES, find_study
from falconcal.studies.study_reading import read_study

# accuracy and confidence by method and level; both shifts alike
VALUES = {
    "plain": {0: (1.0, 1.0), 1: (0.5, 0.9), 2: (0.1, 0.95)},
    "a_method_with_a_name_that_is_long": {0: (1.0, 0.9), 1: (0.8, 0.3), 2: (0.1, 0.2)},
}
PLAIN, OURS = VALUES
SHOWCASE: dict[str, Any] = {
    "words": "Turned by", "shifts": ["left", "right"], "levels": [0, 2], "labels": ["0°", "90°"],
    "method": OURS,
}  # fmt: skip


def rows(values: dict[str, dict[int, tuple[float, float]]] = VALUES) -> polars.DataFrame:
    return polars.DataFrame(
        [
            {"variant": "default", "method": method, "series": method, "seed": 0, "shift": shift,
             "level": level, "metric": metric, "value": value}
            for method, levels in values.items()
            for shift in ("left", "right")
            for level, pair in levels.items()
            for metric, value in zip(("accuracy", "confidence"), pair, strict=True)
        ]
    )  # fmt: skip


def results(**changes: Any) -> Results:
    study = {
        "name": "made", "shifts": ["left", "right"],
        "report": {"plain": PLAIN, "showcase": {**SHOWCASE, **changes}},
    }  # fmt: skip
    return Results(Path(), study, rows(), ())


def shown(found: Results, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    text = io.StringIO()
    monkeypatch.setattr(terminal, "output", Console(file=text, width=width))
    show_showcase(found)
    return text.getvalue()


def test_the_table_and_the_verdict_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results(), monkeypatch)
    cells = [" ".join(line.split()) for line in text.splitlines()]
    assert "Turned by 0° 90°" in cells
    assert "plain is right 100 % 10 %" in cells
    assert "plain says 100 % 95 %" in cells
    assert f"{OURS} says 90 % 20 %" in cells
    words = " ".join(text.split())
    assert "Turned by 90°, plain says 95 % and is right in 10 %" in words
    # level 1: 0.4 off against 0.5; level 2: 0.85 off against 0.1; two shifts each
    assert "in 2 of 4 cases" in words
    timid = "under left at level 1 it is too timid. It says 30 % and is right in 80 %"
    assert f"What does not work: {timid}" in words


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_name_is_broken(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = shown(results(), monkeypatch, width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.split().count(OURS) for line in lines) == 4


def test_what_is_nowhere_behind_has_nothing_to_confess() -> None:
    better = {PLAIN: {1: (0.5, 0.9)}, OURS: {1: (0.5, 0.505)}}
    assert what_does_not_work(rows(better), OURS, PLAIN) == []


def test_what_is_still_far_off_is_said_even_where_plain_is_farther() -> None:
    values = {PLAIN: {1: (0.9, 0.9), 2: (0.2, 0.95)}, OURS: {1: (0.9, 0.8), 2: (0.2, 0.8)}}
    behind, off = what_does_not_work(rows(values), OURS, PLAIN)
    assert "at level 1 it is too timid. It says 80 % and is right in 90 %" in behind
    assert "at level 2 it is too sure. It says 80 % and is right in 20 %" in off
    values[OURS][1] = (0.9, 0.9)
    assert what_does_not_work(rows(values), OURS, PLAIN) == [off]


@pytest.mark.parametrize("changes", [{"levels": [0, 9]}, {"method": "not_run"}])
def test_a_run_that_lacks_a_level_or_a_method_shows_nothing(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(results(**changes), monkeypatch) == ""


def test_a_study_without_one_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results()
    study = {name: value for name, value in found.study.items() if name != "report"}
    assert shown(replace(found, study=study), monkeypatch) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shifts": ["rot_left", "rot_rihgt"]}, "Did you mean 'rot_right'"),
        ({"labels": ["0°"]}, "expected one of labels per level, 4, got 1"),
        ({"method": "falcno"}, "Did you mean 'falcon'"),
        ({"levels": [0, 1, 2, -1]}, "levels"),
    ],
)
def test_a_wrong_showcase_is_refused_before_anything_is_trained(
    change: dict[str, Any], message: str
) -> None:
    showcase = {**find_study("digits").report["showcase"], **change}
    study = tomlkit.parse(STUDIES["digits"])
    study["report"] = {"showcase": showcase}
    with pytest.raises(UsageError, match=message):
        read_study(tomlkit.dumps(study), "made up")


def test_the_demo_shows_what_its_labels_say() -> None:
    """The levels of the two rotations turn by as many degrees as the table says."""
    showcase = find_study("digits").report["showcase"]
    for shift in find_study("digits").find_computed(showcase["shifts"]):
        turned = [min(one, 360 - one) for one in (shift.strengths[i] for i in showcase["levels"])]
        assert [f"{degrees:.0f}°" for degrees in turned] == showcase["labels"]
