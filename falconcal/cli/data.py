"""Data: its files, and pictures of it under shift."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import OfflineOption, app, chosen, stay_offline
from falconcal.errors import UsageError, UserError
from falconcal.layout import file_name
from falconcal.terminal import say

data = typer.Typer(
    help="The datasets' files: what is here, downloads, checksums.", no_args_is_help=True
)
app.add_typer(data, name="data")


@app.command(
    epilog="Examples:\n\n"
    "falconcal shift digits\n\n"
    "falconcal shift cifar10 --shifts corrupt_fog,corrupt_snow --examples 2 --out seen.png"
)
def shift(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset, or package.module:load.")],
    shifts: Annotated[
        str | None,
        typer.Option(help="Only these shifts, separated by commas; those usual for the data."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Test examples of each shift.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="PNG file; runs/shift/DATASET.png unless given.")
    ] = None,
    offline: OfflineOption = False,
) -> None:
    """Draw one picture of what a model will see: shifts down, levels across."""
    from falconcal.data import load_dataset
    from falconcal.files import check_writable, write_bytes
    from falconcal.studies.sheet import make_sheet

    stay_offline(offline)
    target = out if out is not None else Path("runs") / "shift" / f"{file_name(dataset)}.png"
    if target.suffix.lower() != ".png":
        raise UsageError(f"--out expects a PNG file, got {target}.")
    check_writable(target)
    write_bytes(target, make_sheet(load_dataset(dataset), chosen(shifts), examples))
    say(f"Picture: {target}")


@data.command("list", epilog="Example:\n\nfalconcal data list")
def list_data() -> None:
    """List the files of each dataset, where they lie, and what is to be downloaded."""
    from falconcal.data.holdings import holdings

    for one in holdings():
        where = str(one.place or f"to download, {one.megabytes:,.1f} MB")
        words = f"{one.dataset:<16}  {one.file:<26}  {where}"
        say(words)


@data.command(epilog="Example:\n\nfalconcal data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset of falconcal data list.")],
    offline: OfflineOption = False,
) -> None:
    """Download what is not here of a dataset, each file checked against its checksum."""
    from falconcal.data.holdings import fetch_dataset

    stay_offline(offline)
    for path in fetch_dataset(name):
        say(str(path))


@data.command(epilog="Examples:\n\nfalconcal data verify\n\nfalconcal data verify mnist")
def verify(
    name: Annotated[str | None, typer.Argument(help="A dataset; all of them if none.")] = None,
) -> None:
    """Compare the files that are here with the published checksums."""
    from falconcal.data.holdings import verify_dataset
    from falconcal.data.sources import SOURCES

    verdicts = []
    for dataset in [name] if name is not None else SOURCES:
        for file, verdict in verify_dataset(dataset):
            verdicts.append(verdict)
            words = f"{dataset}: {file}: {verdict}"
            say(words)
    if "not as published" in verdicts:
        raise UserError("some files are not as published: what is read from them may differ.")
