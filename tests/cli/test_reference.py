"""The reference of the command line: what the docs name exists, and what exists is in the docs."""

import re
from pathlib import Path

import pytest

from tests.helpers.cli_reference import PAGE, commands, option_names, reference
from tests.helpers.paths import ROOT

COMMANDS = dict(commands())
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_is_made_from_the_help() -> None:
    """If this fails, write the page again: python -m tests.helpers.cli_reference."""
    assert PAGE.read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_help_examples_and_options_that_say_what_they_do(words: str) -> None:
    command = COMMANDS[words]
    assert command.help[0].isupper()
    assert command.help.partition("\n\n")[0].endswith(".")
    examples = command.epilog.split("\n\n")[1:]
    assert examples
    assert any(words in example for example in examples)
    for parameter in command.params:
        assert parameter.help[0].isalpha(), parameter.name
        assert parameter.help.endswith("."), parameter.name
    for name in option_names(command):
        assert f"{name}" in PAGE.read_text(encoding="utf-8")


def used_in(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page's code blocks, each with the options it is given."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", page.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = []
    for line in lines:
        match = re.match(r"(?:\$ )?falconcal ((?:data |new )?[a-z]+)\b(.*)", line)
        if match:
            options = re.findall(r"(?<![\w'])(--[a-z-]+)", match[2].partition(" # ")[0])
            found.append((f"falconcal {match[1]}", options))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_docs_exist(page: Path) -> None:
    for words, options in used_in(page):
        assert words in COMMANDS, f"{page.name}: {words}"
        assert set(options) <= {*option_names(COMMANDS[words]), "--help"}, f"{page.name}: {words}"


def test_a_made_up_option_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nfalconcal run digits --sedes 3 \\\n  --out x\nfalconcal data lst\n```\n"
    )
    assert used_in(page) == [
        ("falconcal run", ["--sedes", "--out"]),
        ("falconcal data lst", []),
    ]
    assert "--sedes" not in option_names(COMMANDS["falconcal run"])
