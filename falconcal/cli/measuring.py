"""The command that measures finished runs under further shifts."""

from typing import TYPE_CHECKING

import typer

from falconcal.cli.app import (
    FAILED,
    app,
    command_line,
    split_names,
    stay_offline,
)
from falconcal.cli.options import (
    FinishedFolderArgument,
    FurtherOutliersOption,
    FurtherShiftsOption,
    JsonOption,
    MeasuredMethodsOption,
    MeasuredSeedsOption,
    MeasuredVariantsOption,
    OfflineOption,
    TrustOption,
)
from falconcal.cli.terminal import errors, output, print_text

if TYPE_CHECKING:
    from falconcal.studies.measurement_request import Measurement


@app.command(
    epilog="Examples:\n\n"
    "falconcal measure runs/digits --shifts corruptions\n\n"
    "falconcal measure runs/digits --shifts fgsm,wave --outliers uniform_noise\n\n"
    "falconcal measure runs/digits --shifts fgsm --methods falcon --seeds 1\n\n"
    "falconcal measure runs/digits"
)
def measure(
    directory: FinishedFolderArgument,
    shifts: FurtherShiftsOption = None,
    outliers: FurtherOutliersOption = None,
    methods: MeasuredMethodsOption = None,
    variants: MeasuredVariantsOption = None,
    seeds: MeasuredSeedsOption = None,
    trust_code: TrustOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Measure the finished runs of an output folder under further shifts; nothing is trained.

    All runs are measured in one pass over the shifted data, and the report is written again. The
    same command goes on where it was interrupted. Without shifts and outliers it measures what
    the study tests and runs lack, as after falconcal run --measure later.
    """
    from falconcal.studies.measurement_request import Measurement

    stay_offline(offline)
    output.quiet = json
    _measure(
        Measurement(
            directory,
            tuple(split_names(shifts) or ()),
            tuple(split_names(outliers) or ()),
            _chosen(methods),
            _chosen(variants),
            seeds,
            tuple(trust_code or ()),
        ),
        json,
    )


def _chosen(names: str | None) -> tuple[str, ...] | None:
    found = split_names(names)
    return None if found is None else tuple(found)


def _measure(request: "Measurement", json: bool) -> None:
    from falconcal.cli.progress import MeasuringLines
    from falconcal.cli.reports import report  # not above, so that the help lists measure first
    from falconcal.studies.finished_runs import measure_runs

    try:
        outcome = measure_runs(request, MeasuringLines(output))
    except KeyboardInterrupt:
        words = f"Interrupted. Shifts that were measured are kept. To resume: {command_line()}"
        print_text(words, errors)
        raise typer.Exit(FAILED) from None
    for note in outcome.notes:
        print_text(note)
    if outcome.complete:
        report(request.directory, json=json)
    else:
        words = "Runs still lack what the study tests. To measure it: falconcal measure"
        print_text(f"{words} {request.directory}")
