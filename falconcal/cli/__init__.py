"""The command ``falconcal``: one file per group of commands; each parses and calls one function."""

import sys

# each module adds its commands to the application; the help lists them in this order
# isort: off
from falconcal.cli import studies, measuring, reports, predictions, recalibrating  # noqa: F401
from falconcal.cli import data, new_files, listing  # noqa: F401

# isort: on
from falconcal.cli.app import FAILED, INTERRUPTED, WRONG_USAGE, app, should_print_error
from falconcal.cli.terminal import errors, print_text
from falconcal.errors import UsageError, UserError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; a user's mistake gives a message, only a bug of falconcal a traceback."""
    try:
        app()
    except UsageError as error:
        _leave(error, WRONG_USAGE)
    except (UserError, OSError) as error:
        _leave(error, FAILED)
    except RuntimeError:
        # another process has printed the cause; here only its connection was lost
        if should_print_error():
            raise
        sys.exit(FAILED)
    except SystemExit as end:
        # typer exits with 130 when interrupted; here that is an ordinary failure
        sys.exit(FAILED if end.code == INTERRUPTED else end.code)


def _leave(error: Exception, code: int) -> None:
    if should_print_error():
        print_text(f"Error: {error}", errors, "red")
    sys.exit(code)
