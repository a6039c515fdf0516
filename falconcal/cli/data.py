"""Commands for data: the files of the datasets, and an image of examples under shift."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from falconcal.cli.app import app, split_names, stay_offline
from falconcal.cli.options import JsonOption, OfflineOption
from falconcal.cli.terminal import print_json, print_text
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import file_name

if TYPE_CHECKING:
    from falconcal.data.inventory import FileStatus

data = typer.Typer(help="Files of the datasets: list, download, verify.", no_args_is_help=True)
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
        typer.Option(help="Shifts, separated by commas (default: those usual for the data)."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Test examples per shift.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="PNG file (default: runs/shift/DATASET.png).")
    ] = None,
    offline: OfflineOption = False,
) -> None:
    """Write an image of test examples under shift: one row per shift, one column per level."""
    from falconcal.data import load_dataset
    from falconcal.io.atomic import check_writable, write_bytes
    from falconcal.studies.shift_overview import shift_overview

    stay_offline(offline)
    target = out if out is not None else Path("runs") / "shift" / f"{file_name(dataset)}.png"
    if target.suffix.lower() != ".png":
        raise UsageError(f"--out expects a PNG file, got {target}.")
    check_writable(target)
    write_bytes(target, shift_overview(load_dataset(dataset), split_names(shifts), examples))
    print_text(f"Image: {target}")


@data.command("list", epilog="Example:\n\nfalconcal data list")
def list_data(json: JsonOption = False) -> None:
    """List the files of each dataset: where they are, or how much is to be downloaded."""
    from falconcal.data.inventory import file_statuses

    if json:
        print_json([_status(one) for one in file_statuses()])
        return
    for one in file_statuses():
        where = str(one.path or f"to download, {one.megabytes:,.1f} MB")
        words = f"{one.dataset:<16}  {one.file:<26}  {where}"
        print_text(words)


def _status(one: "FileStatus") -> dict[str, object]:
    """Return what is known of a file, for programs."""
    place = None if one.path is None else str(one.path)
    return {"dataset": one.dataset, "file": one.file, "path": place, "megabytes": one.megabytes}


@data.command("fetch", epilog="Example:\n\nfalconcal data fetch mnist")
def fetch_data(
    name: Annotated[str, typer.Argument(help="Name of a dataset in falconcal data list.")],
    offline: OfflineOption = False,
) -> None:
    """Download the missing files of a dataset and compare each with its checksum."""
    from falconcal.data.inventory import fetch_dataset

    stay_offline(offline)
    for path in fetch_dataset(name):
        print_text(str(path))


@data.command(epilog="Examples:\n\nfalconcal data verify\n\nfalconcal data verify mnist")
def verify(
    name: Annotated[str | None, typer.Argument(help="Name of a dataset (default: all).")] = None,
    json: JsonOption = False,
) -> None:
    """Compare the files on this machine with the published checksums."""
    from falconcal.data.data_files import SOURCES
    from falconcal.data.inventory import verify_dataset

    verdicts, rows = [], []
    for dataset in [name] if name is not None else SOURCES:
        for file, verdict in verify_dataset(dataset):
            verdicts.append(verdict)
            rows.append({"dataset": dataset, "file": str(file), "verdict": verdict})
            if not json:
                print_text(f"{dataset}: {file}: {verdict}")
    if json:
        print_json(rows)
    if "not as published" in verdicts:
        raise UserError("some files are not as published: the data read from them may differ.")
