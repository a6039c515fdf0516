"""The reference of the command line, made from the help of the commands.

``python -m tests.helpers.cli_reference`` writes docs/cli.md; a test holds the page to the commands.
"""

from collections.abc import Iterator
from typing import Any

import typer

from falconcal.cli import app
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "cli.md"
INTRODUCTION = """# Command line

Every command, argument and option of `falconcal`, as `falconcal COMMAND --help` shows them. This
page is made from the help itself, by `python -m tests.helpers.cli_reference`. The exit code is 0 on
success, 1 if something failed and 2 if the command was used wrongly; `falconcal --version` shows
the version.
"""


def commands(group: Any = None, prefix: str = "falconcal") -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it, in the order of the help."""
    root: Any = group or typer.main.get_command(app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def option_names(command: Any) -> list[str]:
    """Return all options of a command: ``--prune``, ``--no-prune``."""
    names = [name for one in command.params for name in (*one.opts, *one.secondary_opts)]
    return [name for name in names if name.startswith("--")]


def reference() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *(_section(words, command) for words, command in commands())])


def _section(words: str, command: Any) -> str:
    arguments = [one for one in command.params if not one.opts[0].startswith("--")]
    usage = " ".join([words, *map(_argument, arguments), "[OPTIONS]"])
    summary, _, rest = command.help.partition("\n\n")
    text = "\n\n".join(" ".join(part.split()) for part in (summary, rest) if part)
    rows = "\n".join(f"| {_signature(one)} | {_meaning(one)} |" for one in command.params)
    table = f"| argument or option | meaning |\n| --- | --- |\n{rows}\n\n" if rows else ""
    examples = "\n".join(command.epilog.split("\n\n")[1:])
    return f"## `{words}`\n\n{text}\n\n    {usage}\n\n{table}```sh\n{examples}\n```\n"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _signature(parameter: Any) -> str:
    if not parameter.opts[0].startswith("--"):
        return f"`{_argument(parameter)}`"
    names = " / ".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return f"`{names}{value}`"


def _meaning(parameter: Any) -> str:
    help_text = " ".join(parameter.help.split()).replace("|", "\\|")
    if parameter.default is None or parameter.default is False:
        return help_text + " Required." * bool(parameter.required)
    default = parameter.opts[0] if parameter.default is True else parameter.default
    return f"{help_text} Default: `{default}`."


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
