"""What falconcal measure is asked for: which finished runs, under which shifts and outliers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from falconcal.core.method import Method
from falconcal.errors import UsageError, unknown_name_error
from falconcal.io.output_folder import RunKey
from falconcal.recalibration.calibrator import Calibrator
from falconcal.shifts import AnyShift, Outliers, expand_groups, named_shifts
from falconcal.studies.run_files import read_json
from falconcal.studies.store import Store
from falconcal.studies.study import Study
from falconcal.studies.study_reading import stored_study


@dataclass(frozen=True)
class Measurement:
    """What is asked for: which runs of a folder, under which shifts and outliers."""

    directory: Path
    # names of shifts or groups; without these and outliers: all of the study's that are missing
    shifts: tuple[str, ...] = ()
    outliers: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    seeds: int | None = None  # the runs with seeds below it
    trust_code: tuple[str, ...] = ()


def requested_study(values: Mapping[str, Any], request: Measurement) -> Study:
    """Return the folder's study; names that the caller gives are trusted."""
    study = stored_study(values, str(request.directory / "study.json"), request.trust_code)
    return replace(study, trust=study.trust.typed([*request.shifts, *request.outliers]))


def requested_runs(store: Store, request: Measurement) -> list[RunKey]:
    """Return the finished runs that are asked for."""
    finished = store.runs()
    if not finished:
        raise UsageError(
            f"expected an output folder with finished runs, got {store.directory}: run a study "
            "into it first, with falconcal run STUDY --out FOLDER."
        )
    _check_names("method", request.methods, [run.method for run in finished])
    _check_names("variant", request.variants, [run.variant for run in finished])
    chosen = [
        run
        for run in finished
        if (request.methods is None or run.method in request.methods)
        and (request.variants is None or run.variant in request.variants)
        and (request.seeds is None or run.seed < request.seeds)
    ]
    if not chosen:
        raise UsageError(f"{store.directory} has no finished runs of these seeds and methods.")
    return chosen


def _check_names(kind: str, names: Iterable[str] | None, finished: list[str]) -> None:
    for name in names or ():
        if name not in finished:
            raise unknown_name_error(f"{kind} of the finished runs", name, dict.fromkeys(finished))


def requested_tests(study: Study, request: Measurement) -> tuple[list[AnyShift], list[Outliers]]:
    """Return the shifts and outliers that are asked for, groups by their members."""
    if not request.shifts and not request.outliers:
        return study.all_shifts(), study.all_outliers()
    shifts, outliers = expand_groups(request.shifts), tuple(dict.fromkeys(request.outliers))
    for kind, names, others in (
        ("shifts", outliers, (*study.shifts, *study.selection_shifts)),
        ("outliers", shifts, study.outliers),
    ):
        for name in names:
            if name in others:
                raise UsageError(f"{name!r} is among the {kind} of the study: use --{kind}.")
    return study.find_shifts(shifts), study.find_outlier_sets(outliers)


def check_not_fitted_on(
    store: Store, study: Study, runs: list[RunKey], names: tuple[str, ...]
) -> None:
    """Refuse to test a run on what its calibrator was fitted on."""
    for run in runs:
        method = study.variant(run.variant).method(run.method, run.seed)
        then = read_json(run.folder(store.directory) / "settings.json")["study"]
        known = (*then["shifts"], *then.get("outliers", ()))  # and so left out of the fit
        seen = sorted(set(_fitted_on(method, names)) - named_shifts(known))
        if seen:
            raise UsageError(
                f"{run} was fitted on {', '.join(seen)}: nothing is tested on what it was fitted "
                "on. Leave it out of --shifts and --outliers, choose other --methods, or name it "
                "in the study and run that into another folder."
            )


def _fitted_on(method: Method | None, names: tuple[str, ...]) -> Iterator[str]:
    while method is not None:
        if isinstance(method, Calibrator):
            left_out = named_shifts(method.leave_out)
            yield from (one for one in method.ladder.tested_families(names) if one not in left_out)
        method = getattr(method, "base", None)
