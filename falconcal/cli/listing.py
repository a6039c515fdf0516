"""The command that lists methods, studies, shifts, outliers, metrics, datasets and models."""

from typing import Annotated

import typer

from falconcal.cli.app import app
from falconcal.cli.options import JsonOption
from falconcal.cli.terminal import print_json, show_list, show_settings
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
    json: JsonOption = False,
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
    if json:
        print_json(_catalogue_json([kind] if kind is not None else list(CATALOGUE), settings))
        return
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


def _catalogue_json(kinds: list[str], settings: bool) -> dict[str, object]:
    """Return the lists by kind; with settings, those of each method too."""
    from falconcal.cli.catalogue_tables import CATALOGUE, method_settings
    from falconcal.methods import METHODS

    found: dict[str, object] = {kind: dict(CATALOGUE[kind]()) for kind in kinds}
    if settings:
        found["settings"] = {
            name: [setting._asdict() for setting in method_settings(method)]
            for name, method in METHODS.items()
        }
    return found
