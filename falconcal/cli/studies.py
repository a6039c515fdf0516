"""Commands for studies: run them, tune their methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from falconcal.cli.app import (
    FAILED,
    OfflineOption,
    TrustOption,
    app,
    command_line,
    should_print_error,
    split_names,
    stay_offline,
)
from falconcal.cli.terminal import (
    announce_search,
    errors,
    output,
    print_text,
    show_failures,
    show_trial,
    show_trials,
)

if TYPE_CHECKING:
    from falconcal.io.output_folder import RunKey
    from falconcal.studies import Study
    from falconcal.studies.executors.local_workers import ExecutorFactory


@app.command(
    epilog="Examples:\n\n"
    "falconcal run digits\n\n"
    "falconcal run digits --methods falcon --seeds 3 --out runs/three\n\n"
    "falconcal run digits --set falcon.epochs=10 --set batch_size=50 --out runs/short\n\n"
    "falconcal run digits --set '*.epochs=5' --out runs/shorter\n\n"
    "falconcal run digits --settings runs/tune/digits/best.toml --out runs/tuned\n\n"
    "falconcal run digits --seeds 3 --workers 4\n\n"
    "falconcal run digits --seeds 3 --measure later\n\n"
    "falconcal run digits --seeds 3 --ray auto\n\n"
    "falconcal run digits --devices 2\n\n"
    "torchrun --nproc-per-node 2 -m falconcal run digits\n\n"
    "falconcal run mnist --smoke\n\n"
    "falconcal run my_study.toml\n\n"
    "falconcal run my_study.toml --trust-code my_package"
)
def run(
    study: Annotated[str, typer.Argument(help="Name of a study, or path of its TOML file.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Methods of the study, separated by commas (default: all)."),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            help="Variants of the study, separated by commas (default: all). The plain variant is "
            "called default."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds: 0, 1, ... (default: as in the study).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder (default: runs/STUDY).")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: key=value. Can be repeated."
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="File of settings that falconcal tune chose: best.toml.")
    ] = None,
    trust_code: TrustOption = None,
    offline: OfflineOption = False,
    workers: Annotated[
        int, typer.Option(help="Worker processes on this machine; each does one run at a time.")
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Do the runs on this Ray cluster; local starts one."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads per run (default: torch's number, divided by the workers)."
        ),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Devices that train each run together, one process each.")
    ] = None,
    num_nodes: Annotated[
        int | None, typer.Option(help="Machines that train each run together.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy of Lightning Fabric, such as ddp.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision of training, such as bf16-mixed.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="Check in seconds that the study runs: few examples, one epoch, few levels. The "
            "output folder is then runs/smoke/STUDY by default.",
        ),
    ] = False,
    measure: Annotated[
        Literal["now", "later"],
        typer.Option(
            help="When the runs are measured under shift: now, or later by falconcal measure, "
            "all in one pass."
        ),
    ] = "now",
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Also write event files for TensorBoard to OUT/tensorboard."
        ),
    ] = False,
) -> None:
    """Train the methods of a study, measure them under shift, and write a report.

    The same command again skips complete runs and resumes the others. A run that fails does not
    stop the others.
    """
    from falconcal.core.distributed import is_first_process, process_group
    from falconcal.studies import find_study
    from falconcal.studies.study import with_devices

    stay_offline(offline)
    wanted = [*(changes or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    where: dict[str, int | str | None] = {"devices": devices, "num_nodes": num_nodes}
    where |= {"strategy": strategy, "precision": precision}
    with process_group():
        output.quiet = not is_first_process()
        found = with_devices(find_study(study, wanted, settings, smoke, trust_code or ()), where)
        home = Path("runs") / "smoke" if smoke else Path("runs")
        directory = out if out is not None else home / found.name
        executor = _make_executor(workers, ray, threads)
        names = split_names(methods), split_names(variants)
        later = measure == "later"
        failed = _run(found, directory, *names, executor, tensorboard, later)
        if is_first_process():
            _conclude(directory, failed, later)


def _make_executor(workers: int, ray: str | None, threads: int | None) -> "ExecutorFactory":
    from falconcal.studies.executors.local_workers import local_executor

    if ray is None:
        return local_executor(workers, threads)
    from falconcal.studies.executors.ray_cluster import need_ray, on_ray

    need_ray(workers)
    return on_ray(ray, threads)


def _run(
    study: "Study",
    directory: Path,
    methods: list[str] | None,
    variants: list[str] | None,
    executor: "ExecutorFactory",
    tensorboard: bool,
    measure_later: bool,
) -> dict["RunKey", str]:
    from falconcal.cli.progress import make_progress
    from falconcal.integrations.tensorboard import with_tensorboard
    from falconcal.studies.runner import run_study

    try:
        with (
            make_progress(output) as progress,
            with_tensorboard(progress, directory, tensorboard) as on_event,
        ):
            return run_study(study, directory, on_event, methods, variants, executor, measure_later)
    except KeyboardInterrupt:
        if should_print_error():
            _print_how_to_resume(directory)
        raise typer.Exit(FAILED) from None


def _conclude(directory: Path, failed: dict["RunKey", str], measure_later: bool) -> None:
    """Write the report of the complete runs, and print which failed and how to try again."""
    from falconcal.cli.reports import report  # not above, so that the help lists run first

    try:
        if measure_later:
            print_text(f"Not measured under shift yet. To measure: falconcal measure {directory}")
        elif (directory / "rows.parquet").exists():
            report(directory)
    finally:  # also if the figures cannot be drawn
        if failed:
            show_failures(directory, failed, command_line())
    if failed:
        raise typer.Exit(FAILED)


def _print_how_to_resume(directory: Path) -> None:
    from falconcal.studies.store import Store

    complete = len(Store(directory).runs())
    words = f"Interrupted. Complete runs in {directory}: {complete}; they are kept."
    print_text(f"{words} To resume: {command_line()}", errors)


@app.command(
    "tune",
    epilog="Examples:\n\n"
    "falconcal tune digits --method falcon --trials 20\n\n"
    "falconcal tune digits --method falcon --trials 20 --workers 2 --set tuning.epochs=10\n\n"
    "falconcal tune digits --method dropout --trials 8 "
    "--set 'search.dropout.l2_weight={low=1e-4, high=0.1, log=true}'\n\n"
    "falconcal run digits --settings runs/tune/digits/best.toml --out runs/tuned",
)
def tune_method(
    study: Annotated[str, typer.Argument(help="Name of a study, or path of its TOML file.")],
    method: Annotated[
        str, typer.Option(help="Method of the study; if it has a base, the base is tuned.")
    ],
    trials: Annotated[
        int, typer.Option(help="Number of trials in total, including those done before.")
    ],
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Storage of Optuna (default: trials.db in the output folder)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder (default: runs/tune/STUDY).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the points drawn, and of every training.")] = 0,
    workers: Annotated[int, typer.Option(help="Worker processes, with one thread each.")] = 1,
    prune: Annotated[
        bool, typer.Option(help="End a trial early when it is worse than the median of the others.")
    ] = True,
    also_score_test: Annotated[
        bool,
        typer.Option(
            "--also-score-test",
            help="Also measure each complete trial on test data, after it is judged, to see how "
            "well the criterion ranks. Nothing is chosen by it.",
        ),
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting: key=value. Can be repeated."
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="File of settings chosen before, such as those of the reference."),
    ] = None,
    trust_code: TrustOption = None,
    offline: OfflineOption = False,
) -> None:
    """Choose the settings of a method on validation data alone, and keep every trial.

    The trial with the lowest criterion is chosen among those that are accurate enough. The same
    command again resumes the search.
    """
    from falconcal.studies.tuning import need_optuna

    need_optuna()
    from falconcal.studies import find_study
    from falconcal.studies.tuning.choice import check_chosen
    from falconcal.studies.tuning.search import Search, check_request
    from falconcal.studies.tuning.search import tune as search_for

    stay_offline(offline)
    found = find_study(study, changes or [], settings, trust_code=trust_code or ())
    directory = out if out is not None else Path("runs") / "tune" / found.name
    search = Search(
        found, method, trials, directory, storage, seed, prune=prune,
        also_score_test=also_score_test,
    )  # fmt: skip
    try:
        check_request(search, workers)
        announce_search(search)
        rows = search_for(search, workers, show_trial)
    except KeyboardInterrupt:
        words = f"Interrupted. Finished trials are kept in {directory}. To resume: {command_line()}"
        print_text(words, errors)
        raise typer.Exit(FAILED) from None
    show_trials(directory, rows)
    check_chosen(rows, search.target.name)
