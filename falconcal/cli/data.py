"""Data: its files, and pictures of it under shift."""

from pathlib import Path
from typing import Annotated

import typer

from falconcal.cli.app import OfflineOption, app, split_names, stay_offline
from falconcal.cli.terminal import print_text
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import file_name

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
    from falconcal.io.atomic import check_writable, write_bytes
    from falconcal.studies.shift_overview import shift_overview

    stay_offline(offline)
    target = out if out is not None else Path("runs") / "shift" / f"{file_name(dataset)}.png"
    if target.suffix.lower() != ".png":
        raise UsageError(f"--out expects a PNG file, got {target}.")
    check_writable(target)
    write_bytes(target, shift_overview(load_dataset(dataset), split_names(shifts), examples))
    print_text(f"Picture: {target}")


@data.command("list", epilog="Example:\n\nfalconcal data list")
def list_data() -> None:
    """List the files of each dataset, where they lie, and what is to be downloaded."""
    from falconcal.data.inventory import file_statuses

    for one in file_statuses():
        where = str(one.path or f"to download, {one.megabytes:,.1f} MB")
        words = f"{one.dataset:<16}  {one.file:<26}  {where}"
        print_text(words)


@data.command(epilog="Example:\n\nfalconcal data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset of falconcal data list.")],
    offline: OfflineOption = False,
) -> None:
    """Download what is not here of a dataset, each file checked against its checksum."""
    from falconcal.data.inventory import fetch_dataset

    stay_offline(offline)
    for path in fetch_dataset(name):
        print_text(str(path))


@data.command(epilog="Examples:\n\nfalconcal data verify\n\nfalconcal data verify mnist")
def verify(
    name: Annotated[str | None, typer.Argument(help="A dataset; all of them if none.")] = None,
) -> None:
    """Compare the files that are here with the published checksums."""
    from falconcal.data.data_files import SOURCES
    from falconcal.data.inventory import verify_dataset

    verdicts = []
    for dataset in [name] if name is not None else SOURCES:
        for file, verdict in verify_dataset(dataset):
            verdicts.append(verdict)
            words = f"{dataset}: {file}: {verdict}"
            print_text(words)
    if "not as published" in verdicts:
        raise UserError("some files are not as published: what is read from them may differ.")
