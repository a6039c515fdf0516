"""Commands that write files to begin with: a study, and the schema that editors check it by."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import app
from falconcal.cli.terminal import print_text
from falconcal.errors import UsageError

new = typer.Typer(help="Files to begin with: a study, its schema.", no_args_is_help=True)
app.add_typer(new, name="new")


@new.command("study", epilog="Example:\n\nfalconcal new study my_study.toml")
def new_study(
    file: Annotated[Path, typer.Argument(help="TOML file to write.")] = Path("study.toml"),
) -> None:
    """Write a study file to begin with, every setting explained in it.

    The schema that editors check it by, from falconcal new schema, is named in its first line.
    """
    from falconcal.studies.study_schema import commented_study

    _write_new(file, ".toml", f"#:schema study.schema.json\n{commented_study(file.stem)}")
    print_text(f"Study: {file}. To run it: falconcal run {file}")


@new.command("schema", epilog="Example:\n\nfalconcal new schema study.schema.json")
def new_schema(
    file: Annotated[Path, typer.Argument(help="JSON file to write.")] = Path("study.schema.json"),
) -> None:
    """Write the JSON schema of study files, by which editors complete and check them."""
    from falconcal.studies.study_schema import schema_text

    _write_new(file, ".json", schema_text())
    print_text(f"Schema: {file}")


def _write_new(file: Path, ending: str, text: str) -> None:
    """Write a file that is not there yet."""
    from falconcal.io.atomic import check_writable, write_text

    if file.suffix.lower() != ending:
        raise UsageError(f"expected a file that ends in {ending}, got {file.name!r}.")
    if file.exists():
        raise UsageError(f"{file} is there already: name another file, or remove it.")
    check_writable(file)
    write_text(file, text)
