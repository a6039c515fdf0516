"""The command, a file a group of commands: parse, call one function, exit code."""

import sys

# each adds its commands to the application; the help has them in this order
# isort: off
from falconcal.cli import studies, reports, predictions, data, catalogue  # noqa: F401

# isort: on
from falconcal.cli.app import FAILED, INTERRUPTED, WRONG_USAGE, app, tells
from falconcal.errors import UsageError, UserError
from falconcal.terminal import errors, say

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; a user's mistake gets a message, only a mistake of ours a traceback."""
    try:
        app()
    except UsageError as error:
        _leave(error, WRONG_USAGE)
    except (UserError, OSError) as error:
        _leave(error, FAILED)
    except RuntimeError:
        # where another process has told what went wrong, that its connection is gone is no news
        if tells():
            raise
        sys.exit(FAILED)
    except SystemExit as end:
        # typer leaves with 130 when interrupted; here that is a failure like any other
        sys.exit(FAILED if end.code == INTERRUPTED else end.code)


def _leave(error: Exception, code: int) -> None:
    if tells():
        say(f"Error: {error}", errors, "red")
    sys.exit(code)
