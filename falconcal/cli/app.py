"""What all commands share: the application, and helpers for arguments."""

import os
import shlex
import sys
from typing import Annotated

import typer

import falconcal
from falconcal.cli.terminal import output

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="falconcal",
    help="Classifiers whose confidence can be trusted when the data shifts.",
    epilog="To begin: falconcal run digits",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.print(f"falconcal {falconcal.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def split_formats(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def split_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def stay_offline(wanted: bool) -> None:
    if wanted:
        os.environ["FALCONCAL_OFFLINE"] = "1"


def should_print_error() -> bool:
    """Return whether this process prints errors: of those that torchrun started, only one does."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    from falconcal.core.distributed import first_to_fail

    return first_to_fail()


def command_line() -> str:
    return shlex.join(["falconcal", *sys.argv[1:]])
