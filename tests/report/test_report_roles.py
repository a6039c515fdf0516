"""What methods stand for in a report comes with the study."""

import json
from pathlib import Path

import pytest

from falconcal.errors import UsageError
from falconcal.report.results import load_results
from falconcal.report.tables.costs import costs_of
from falconcal.studies import STUDIES
from falconcal.studies.study_reading import read_study
from tests.helpers.report_study import make_study


def test_a_study_may_say_what_its_methods_stand_for() -> None:
    text = STUDIES["sensors"] + '\n[report]\nreference = "dropout"\n'
    study = read_study(text, "made up")
    assert study.resolved()["report"] == {"reference": "dropout"}


def test_a_study_that_does_not_is_stored_as_ever() -> None:
    assert "report" not in read_study(STUDIES["sensors"], "sensors").resolved()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('plain = "dropot"', r"\[report\].*'dropot'.*Did you mean 'dropout'"),
        ('columns = {falcn = "falcon"}', "Did you mean 'falcon'"),
        ("plain = 3", "plain"),
        ('plane = "dropout"', "Did you mean 'plain'"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_trained(table: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_study(f"{STUDIES['digits']}\n[report]\n{table}\n", "made up")


@pytest.mark.parametrize(("roles", "plain"), [({}, "dropout"), ({"plain": "falcon"}, "falcon")])
def test_costs_are_counted_in_runs_of_the_plain_method(
    tmp_path: Path, roles: dict[str, str], plain: str
) -> None:
    directory = make_study(tmp_path / "digits")
    file = directory / "study.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"report": roles}))
    costs = costs_of(load_results(directory))
    assert costs is not None
    assert costs.plain == plain
