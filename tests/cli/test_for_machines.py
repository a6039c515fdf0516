"""What programs and editors read: JSON from every command with a table, and a study's schema."""

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from falconcal.cli.catalogue_tables import CATALOGUE
from falconcal.studies import STUDIES, commented_study, find_study, study_schema
from tests.helpers.bad_inputs.trying import Case, ask
from tests.helpers.cli_reference import commands, option_names
from tests.helpers.command import run_here

# commands that print no table: files, images, a line per file that was fetched
WITHOUT_TABLES = {
    "falconcal predict", "falconcal shift", "falconcal data fetch", "falconcal new study",
    "falconcal new schema",
}  # fmt: skip
FILES = {
    "a.csv": "label,p_0,p_1\n0,0.8,0.2\n1,0.6,0.4\n1,0.3,0.7\n0,0.1,0.9\n",
    "b.csv": "label,p_0,p_1\n0,0.9,0.1\n1,0.4,0.6\n1,0.3,0.7\n0,0.2,0.8\n",
}


def test_every_command_with_a_table_has_json() -> None:
    for words, command in commands():
        assert ("--json" in option_names(command)) == (words not in WITHOUT_TABLES), words


@pytest.mark.end_to_end
def test_lists_as_json() -> None:
    found = json.loads(run_here("list", "--json").stdout)
    assert list(found) == list(CATALOGUE)
    settings = json.loads(run_here("list", "methods", "--settings", "--json").stdout)["settings"]
    assert {"name", "type", "default", "description"} == set(settings["falcon"][0])


@pytest.mark.end_to_end
def test_files_of_datasets_as_json() -> None:
    rows = json.loads(run_here("data", "list", "--json").stdout)
    assert {"dataset", "file", "path", "megabytes"} == set(rows[0])


@pytest.mark.end_to_end
def test_scores_as_json(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    one = run_here("score", "a.csv", "--json", folder=tmp_path)
    assert json.loads(one.stdout)["metrics"]["accuracy"]["value"] == 0.5
    assert "one probability per class" in one.stderr
    both = run_here("score", "a.csv", "b.csv", "--json", folder=tmp_path)
    found = json.loads(both.stdout)
    assert found["reference"] == "a.csv"
    first = found["differences"][0]
    assert (first["name"], first["metric"], first["value"]) == ("b.csv", "accuracy", 0.25)
    page = (tmp_path / "runs" / "score" / "a+b" / "score.html").read_text()
    assert "Differences from a.csv" in page


def test_every_study_that_comes_along_fits_the_schema() -> None:
    schema = study_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    for name, text in STUDIES.items():
        assert not [error.message for error in checker.iter_errors(tomllib.loads(text))], name


MISTAKES: dict[str, dict[str, Any]] = {
    "an unknown setting": {"batch_siz": 5},
    "text for a number": {"seeds": "three"},
    "no shifts": {"shifts": []},
    "a text for a table": {"methods": "falcon"},
    "a wrong type in a method": {"methods": {"falcon": {"epochs": "many"}}},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_schema_refuses_what_a_study_refuses(mistake: str) -> None:
    values = {**tomllib.loads(STUDIES["digits"]), **MISTAKES[mistake]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, study_schema())


@pytest.mark.end_to_end
def test_a_new_study_is_one(tmp_path: Path) -> None:
    answer = ask(Case("", "", 0, "", ("new", "study", "mine.toml")), tmp_path)
    assert answer.code == 0, answer.message
    text = (tmp_path / "mine.toml").read_text()
    assert text == f"#:schema study.schema.json\n{commented_study('mine')}"
    assert find_study(str(tmp_path / "mine.toml")).name == "mine"
    jsonschema.validate(tomllib.loads(text), study_schema())
    again = ask(Case("", "", 2, "", ("new", "study", "mine.toml")), tmp_path)
    assert again.code == 2
    assert "there already" in again.message


@pytest.mark.end_to_end
def test_the_schema_is_written(tmp_path: Path) -> None:
    assert ask(Case("", "", 0, "", ("new", "schema")), tmp_path).code == 0
    assert json.loads((tmp_path / "study.schema.json").read_text()) == study_schema()
    wrong = ask(Case("", "", 2, "", ("new", "schema", "study.txt")), tmp_path)
    assert wrong.code == 2


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    "words", [["score", "a.csv", "--logit"], ["run", "digits", "--sedes", "3"]]
)
def test_a_mistyped_option_is_answered_at_once(words: list[str]) -> None:
    """In CPU seconds: the machine that runs the tests may do other work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = subprocess.run(
        [sys.executable, "-m", "falconcal", *words], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.returncode == 2
    assert "No such option" in answer.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
