"""The command that lists methods, studies, shifts, outliers, metrics, datasets and models."""

from typing import Annotated

import typer

from falconcal.cli.app import app
from falconcal.cli.terminal import show_list, show_settings
from falconcal.errors import UsageError, unknown_name_error


@app.command(
    "list",
    epilog="Examples:\n\nfalconcal list\n\nfalconcal list shifts\n\n"
    "falconcal list methods --settings",
)
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, studies, shifts, outliers, metrics, datasets or models (default: all)."
        ),
    ] = None,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", help="Show the settings of each method: type, default and meaning."
        ),
    ] = False,
) -> None:
    """List the available methods, studies, shifts, metrics, datasets and models."""
    from falconcal.cli.catalogue_tables import CATALOGUE, method_settings
    from falconcal.methods import METHODS

    if kind is not None and kind not in CATALOGUE:
        raise unknown_name_error("list", kind, CATALOGUE)
    if settings and kind != "methods":
        raise UsageError(
            "--settings shows those of methods: use falconcal list methods --settings."
        )
    for name in [kind] if kind is not None else CATALOGUE:
        entries = CATALOGUE[name]()
        if settings:
            show_settings(
                {
                    f"{method}: {line}": method_settings(METHODS[method])
                    for method, line in entries.items()
                }
            )
        else:
            show_list(name, entries)
