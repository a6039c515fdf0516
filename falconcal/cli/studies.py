"""Commands for studies: run them, tune their methods."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from falconcal.cli.app import (
    FAILED,
    app,
    command_line,
    should_print_error,
    split_names,
    stay_offline,
)
from falconcal.cli.options import (
    ChangesOption,
    DevicesOption,
    EarlierSettingsOption,
    JsonOption,
    MachinesOption,
    MeasureWhenOption,
    MethodsOption,
    OfflineOption,
    PrecisionOption,
    PruneOption,
    RayOption,
    RunFolderOption,
    ScoreTestOption,
    SearchSeedOption,
    SeedsOption,
    SmokeOption,
    StorageOption,
    StrategyOption,
    StudyArgument,
    TensorboardOption,
    ThreadsOption,
    TrialsOption,
    TrustOption,
    TunedMethodOption,
    TunedSettingsOption,
    TuningFolderOption,
    TuningWorkersOption,
    VariantsOption,
    WorkersOption,
)
from falconcal.cli.terminal import (
    announce_search,
    errors,
    output,
    print_json,
    print_text,
    show_failures,
    show_trials,
)

if TYPE_CHECKING:
    from falconcal.io.output_folder import RunKey
    from falconcal.io.trial_rows import TrialRow
    from falconcal.studies import Study
    from falconcal.studies.executors.local_workers import ExecutorFactory
    from falconcal.studies.tuning.search import Search


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
    study: StudyArgument,
    methods: MethodsOption = None,
    variants: VariantsOption = None,
    seeds: SeedsOption = None,
    out: RunFolderOption = None,
    changes: ChangesOption = None,
    settings: TunedSettingsOption = None,
    trust_code: TrustOption = None,
    offline: OfflineOption = False,
    workers: WorkersOption = 1,
    ray: RayOption = None,
    threads: ThreadsOption = None,
    devices: DevicesOption = None,
    num_nodes: MachinesOption = None,
    strategy: StrategyOption = None,
    precision: PrecisionOption = None,
    smoke: SmokeOption = False,
    measure: MeasureWhenOption = "now",
    tensorboard: TensorboardOption = False,
    json: JsonOption = False,
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
        output.quiet = json or not is_first_process()
        found = with_devices(find_study(study, wanted, settings, smoke, trust_code or ()), where)
        home = Path("runs") / "smoke" if smoke else Path("runs")
        directory = out if out is not None else home / found.name
        executor = _make_executor(workers, ray, threads)
        names = split_names(methods), split_names(variants)
        later = measure == "later"
        failed = _run(found, directory, *names, executor, tensorboard, later)
        if is_first_process():
            _conclude(directory, failed, later, json)


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
    from falconcal.studies.runner import do_runs

    try:
        with (
            make_progress(output) as progress,
            with_tensorboard(progress, directory, tensorboard) as on_event,
        ):
            return do_runs(study, directory, on_event, methods, variants, executor, measure_later)
    except KeyboardInterrupt:
        if should_print_error():
            _print_how_to_resume(directory)
        raise typer.Exit(FAILED) from None


def _conclude(
    directory: Path, failed: dict["RunKey", str], measure_later: bool, json: bool
) -> None:
    """Write the report of the complete runs, and print which failed and how to try again."""
    from falconcal.cli.reports import report  # not above, so that the help lists run first

    try:
        if measure_later:
            print_text(f"Not measured under shift yet. To measure: falconcal measure {directory}")
        elif (directory / "rows.parquet").exists():
            report(directory, json=json)
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
    study: StudyArgument,
    method: TunedMethodOption,
    trials: TrialsOption,
    storage: StorageOption = None,
    out: TuningFolderOption = None,
    seed: SearchSeedOption = 0,
    workers: TuningWorkersOption = 1,
    prune: PruneOption = True,
    also_score_test: ScoreTestOption = False,
    changes: ChangesOption = None,
    settings: EarlierSettingsOption = None,
    trust_code: TrustOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Choose the settings of a method on validation data alone, and keep every trial.

    The trial with the lowest criterion is chosen among those that are accurate enough. The same
    command again resumes the search.
    """
    from falconcal.studies.tuning import need_optuna

    need_optuna()
    from falconcal.studies import find_study
    from falconcal.studies.tuning.choice import check_chosen
    from falconcal.studies.tuning.search import Search

    stay_offline(offline)
    found = find_study(study, changes or [], settings, trust_code=trust_code or ())
    directory = out if out is not None else Path("runs") / "tune" / found.name
    search = Search(
        found, method, trials, directory, storage, seed, prune=prune,
        also_score_test=also_score_test,
    )  # fmt: skip
    output.quiet = json
    rows = _search(search, workers)
    if json:
        print_json(rows)
    show_trials(directory, rows)
    check_chosen(rows, search.target.name)


def _search(search: "Search", workers: int) -> list["TrialRow"]:
    from falconcal.cli.progress import TrialLines, calling
    from falconcal.studies.tuning.search import check_request, tune

    try:
        check_request(search, workers)
        announce_search(search)
        lines = TrialLines(output, len(list(search.plan())))
        with calling(lines.print_if_due):
            return tune(search, workers, lines, lines.begin)
    except KeyboardInterrupt:
        words = f"Interrupted. Finished trials are kept in {search.directory}."
        print_text(f"{words} To resume: {command_line()}", errors)
        raise typer.Exit(FAILED) from None
