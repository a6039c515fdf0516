"""Several output folders as one study: what they share is compared, the rest is named in notes.

Runs are compared on the same test examples, in pairs; so the folders must have them, in their
order. Shifts that are not in all folders, or are others under the same name, are left out.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polars

from falconcal.errors import UsageError, UserError
from falconcal.evaluation.under_shift import CLEAN
from falconcal.io.atomic import obstacle
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.report.results import (
    Results,
    StoredRun,
    explaining_read_errors,
    load_results,
    open_scores,
    study_notes,
)
from falconcal.shifts import affine_shifts

COMPARISON_NAME = "comparison"


def load_comparison(directories: Sequence[Path]) -> Results:
    """Read several output folders as the results of one study; every difference is noted.

    Shifts that are not the same in all folders are left out, and a series that several folders have
    becomes a variant named after its folder.

    Args:
        directories: Two or more output folders, tested on the same examples.

    Returns:
        The results, with notes on what was left out.

    Raises:
        UsageError: If there are fewer than two folders, or one is given twice.
        UserError: If the folders were tested on other examples, share no tested shift, or one
            cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import load_comparison
        >>> load_comparison([Path("one"), Path("one")])
        Traceback (most recent call last):
        falconcal.errors.UsageError: ...one is given 2 times: name each folder once.
    """
    labels = folder_labels(directories)
    found = [load_results(directory) for directory in directories]
    _check_examples(found)
    shifts, notes = _shared_shifts(dict(zip(labels, found, strict=True)))
    renamed = [
        _renamed(one, _clashes(found), label) for one, label in zip(found, labels, strict=True)
    ]
    kept = [CLEAN, *shifts["shifts"], *shifts["selection_shifts"], *shifts["outliers"]]
    rows = polars.concat([one.rows for one in renamed], how="diagonal")
    return Results(
        directories[0],  # whose pictures of the shifts are those of all
        {**_study(found, labels), **shifts},
        rows.filter(polars.col("shift").is_in(kept)),
        tuple(run for one in renamed for run in one.runs),
        (*study_notes(one.study for one in found), *_dataset_notes(found, labels), *notes),
    )


def folder_labels(directories: Sequence[Path]) -> list[str]:
    """Return a label per folder: its name, with parent folders as far as labels would be equal."""
    if len(directories) < 2:
        raise UsageError(
            f"expected two or more output folders to compare, got {len(directories)}; "
            "falconcal report takes one."
        )
    whole = [directory.resolve() for directory in directories]
    for folder, number in Counter(whole).items():
        if number > 1:
            raise UsageError(f"{folder} is given {number} times: name each folder once.")
    for parts in count(1):
        labels = ["/".join(folder.parts[-parts:]) for folder in whole]
        if len(set(labels)) == len(labels):
            break
    return labels


def check_target(target: Path, directories: Iterable[Path]) -> None:
    """Refuse to write into a folder that holds the runs of a study, or that cannot be written to.

    Args:
        target: The folder to write to.
        directories: The folders that are compared, which stay as they are.

    Raises:
        UsageError: If the target is one of them, holds a study, or cannot be written to.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import check_target
        >>> check_target(Path("runs/one"), [Path("runs/one"), Path("runs/two")])
        Traceback (most recent call last):
        falconcal.errors.UsageError: runs/one holds the runs of a study: choose another folder ...
    """
    compared = any(target.resolve() == directory.resolve() for directory in directories)
    if compared or (target / "study.json").exists():
        raise UsageError(f"{target} holds the runs of a study: choose another folder with --out.")
    if (reason := obstacle(target)) is not None:
        raise UsageError(f"cannot write to {target}: {reason}. Choose another folder with --out.")


def _check_examples(found: list[Results]) -> None:
    first, *others = found
    expected = _clean_examples(first.runs[0])
    for other in others:
        examples = _clean_examples(other.runs[0])
        if not examples.equals(expected):
            raise UserError(
                f"{first.directory} and {other.directory} were not tested on the same examples "
                f"({expected.height:,} of {_dataset(first)}, {examples.height:,} of "
                f"{_dataset(other)}), so their runs cannot be compared in pairs. Compare folders "
                "with the same dataset and the same number of examples."
            )


def _clean_examples(run: StoredRun) -> polars.DataFrame:
    clean = open_scores(run).filter(polars.col("shift").cast(polars.String) == CLEAN)
    with explaining_read_errors(run.scores_file):
        chosen = clean.select(polars.col("example", "label").cast(polars.Int64))
        return chosen.sort("example").collect()


def _shared_shifts(found: dict[str, Results]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the shifts and outliers that are the same in all folders, and notes on the others.

    A shift that settings were chosen on in one folder counts as a test in none.
    """
    first = next(iter(found.values()))
    named = {one: [*one.shifts, *one.outliers] for one in found.values()}
    reasons = {
        shift: reason
        for shift in dict.fromkeys(shift for names in named.values() for shift in names)
        if (reason := _reason(shift, found)) is not None
    }
    chosen_on = {shift for one in found.values() for shift in one.selection_shifts}
    shared = [shift for shift in first.shifts if shift not in reasons]
    tested = [shift for shift in shared if shift not in chosen_on]
    if not tested:
        raise _nothing_shared(found)
    notes = [f"Left out: {shift}, {reason}." for shift, reason in reasons.items()]
    groups = {
        "shifts": tested,
        "selection_shifts": [shift for shift in shared if shift in chosen_on],
        "outliers": [name for name in first.outliers if name not in reasons],
    }
    return groups, notes


def _nothing_shared(found: dict[str, Results]) -> UserError:
    shifts = "; ".join(
        f"{label} has {', '.join(one.tested_shifts)}" for label, one in found.items()
    )
    return UserError(
        f"the folders share no tested shift: {shifts}. Compare folders that were tested under the "
        "same shifts."
    )


def _reason(shift: str, found: dict[str, Results]) -> str | None:
    """Return why a shift cannot be compared, if so."""
    lacking = [label for label, one in found.items() if shift not in (*one.shifts, *one.outliers)]
    if lacking:
        return f"which is not in {', '.join(lacking)}"
    centres = {one.study.get("centre") for one in found.values()}
    if len(centres) > 1 and any(part.strip() in affine_shifts() for part in shift.split("|")):
        return "made about another centre in each folder"
    if len({_levels_by_shift(one, shift) for one in found.values()}) > 1:
        return "which has other levels, or other numbers of examples, in each folder"
    return None


def _levels_by_shift(one: Results, shift: str) -> frozenset[tuple[Any, ...]]:
    """Return the levels of a shift, with how many examples each has."""
    own = one.rows.filter(polars.col("shift") == shift)
    columns = [name for name in ("level", "examples") if name in own.columns]
    return frozenset(own.select(columns).unique().rows())


def _clashes(found: list[Results]) -> set[str]:
    """Return the series that more than one folder has."""
    counts = Counter(series for one in found for series in one.series)
    return {series for series, number in counts.items() if number > 1}


def _renamed(one: Results, clashes: set[str], label: str) -> Results:
    """Return results in which a series that clashes is a variant named after its folder."""
    keys = {run.key: _key(run.key, clashes, label) for run in one.runs}
    runs = tuple(dataclasses.replace(run, key=keys[run.key]) for run in one.runs)
    new = {old.series: key for old, key in keys.items()}
    rows = one.rows.with_columns(
        polars.col("series")
        .replace({old: key.variant for old, key in new.items()})
        .alias("variant"),
        polars.col("series").replace({old: key.series for old, key in new.items()}),
    )
    return dataclasses.replace(one, rows=rows, runs=runs)


def _key(key: RunKey, clashes: set[str], label: str) -> RunKey:
    if key.series not in clashes:
        return key
    variant = label if key.variant == DEFAULT_VARIANT else f"{label}, {key.variant}"
    return dataclasses.replace(key, variant=variant)


def _study(found: list[Results], labels: list[str]) -> dict[str, Any]:
    """Return the settings that all folders share, under the name of their study if it is one."""
    first, *others = (one.study for one in found)
    alike = {
        name: value
        for name, value in first.items()
        if name not in ("title", "methods", "variants")
        and all(other.get(name) == value for other in others)
    }
    name = COMPARISON_NAME if _clashes(found) else alike.get("name", COMPARISON_NAME)
    methods = dict.fromkeys(method for one in found for method in one.study.get("methods") or ())
    titles = ", ".join(labels)
    return {**alike, "name": name, "title": f"Comparison of {titles}", "methods": methods}


def _dataset_notes(found: list[Results], labels: list[str]) -> list[str]:
    """Name datasets that differ in more than the examples, such as in how they are read."""
    datasets = [_dataset(one) for one in found]
    if len(set(datasets)) == 1:
        return []
    pairs = ", ".join(f"{label}: {name}" for label, name in zip(labels, datasets, strict=True))
    return [f"The folders name their data differently, with the same examples and labels: {pairs}."]


def _dataset(one: Results) -> str:
    entry = one.study.get("dataset")
    return str(entry.get("name") if isinstance(entry, dict) else entry)
