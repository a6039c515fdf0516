"""What there is: methods, studies, shifts, outliers, metrics, datasets, models."""

from typing import Annotated

import typer

from falconcal.cli.app import app
from falconcal.cli.terminal import show_list
from falconcal.errors import unknown_name_error


@app.command("list", epilog="Examples:\n\nfalconcal list\n\nfalconcal list shifts")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, studies, shifts, outliers, metrics, datasets or models; all if none."
        ),
    ] = None,
) -> None:
    """List what there is, with a line on each."""
    from falconcal.cli.catalogue_tables import CATALOGUE

    if kind is not None and kind not in CATALOGUE:
        raise unknown_name_error("list", kind, CATALOGUE)
    for name in [kind] if kind is not None else CATALOGUE:
        show_list(name, CATALOGUE[name]())
