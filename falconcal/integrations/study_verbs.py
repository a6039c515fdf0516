"""Studies from Python and in notebooks: run one, tune one, look at what came out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair
import polars

from falconcal.drawing.layers import in_house_style
from falconcal.drawing.record_html import record_html
from falconcal.errors import unknown_name_error
from falconcal.io.atomic import as_path
from falconcal.io.trial_rows import TrialRow, best_of
from falconcal.metrics import metrics_without
from falconcal.report import headline, load_results, summary_table, write_report
from falconcal.report.charts.by_level import Quantity, level_chart
from falconcal.report.charts.trial_charts import HEADING, best_cells, history_figure
from falconcal.report.results import Results
from falconcal.studies import find_study
from falconcal.studies.events import Event
from falconcal.studies.executors.local_workers import local_executor
from falconcal.studies.runner import do_runs

Announce = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class StudyResult:
    """A finished study: its folder, its figures, and how a notebook shows them.

    Attributes:
        directory: The output folder.
        failed: Why runs failed, by run; empty if none did.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.integrations import StudyResult
        >>> StudyResult(Path("runs/digits"), {}).page
        PosixPath('runs/digits/report.html')
    """

    directory: Path
    failed: dict[str, str]

    @property
    def page(self) -> Path:
        """The HTML report."""
        return self.directory / "report.html"

    @property
    def rows(self) -> polars.DataFrame:
        """One row per run, shift, level and metric."""
        return self._results.rows

    @property
    def summary(self) -> polars.DataFrame:
        """The headline figures, one row per method."""
        return summary_table(self.directory)

    def plot(self, metric: str = "ece") -> altair.FacetChart:
        """Return a metric by level as an Altair chart, one panel per shift, one line per method."""
        known = metrics_without("all_classes")
        if metric not in known:
            raise unknown_name_error("metric", metric, known)
        results = self._results
        return in_house_style(level_chart(results, Quantity(metric, ""), results.series))

    @property
    def _results(self) -> Results:
        return load_results(self.directory)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the headline table, and where the report is."""
        failed = [f"{run} failed: {reason}." for run, reason in self.failed.items()]
        results = self._results
        sentences = [f"{results.title}.", f"Report: {self.page}.", *failed]
        return record_html(sentences, *headline(results))


@dataclass(frozen=True, eq=False)
class TuningResult:
    """The trials of a search, and the settings that it chose.

    Attributes:
        directory: The output folder.
        trials: One mapping per trial: method, trial, state, settings, criterion and the like.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.integrations import TuningResult
        >>> found = TuningResult(Path("runs/tune/digits"), [])
        >>> found.best, found.file
        ({}, PosixPath('runs/tune/digits/best.toml'))
    """

    directory: Path
    trials: list[TrialRow]

    @property
    def file(self) -> Path:
        """The settings that were chosen, for ``run_study(..., settings=...)``."""
        return self.directory / "best.toml"

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """The settings of the best trial of each method that has one."""
        return {method: dict(row["settings"]) for method, row in best_of(self.trials).items()}

    def plot(self) -> altair.FacetChart:
        """Return the trials and the best so far as an Altair chart."""
        return in_house_style(history_figure(self.trials).chart)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the best trial of each method."""
        sentences = ["Best trials, by validation data.", f"Settings: {self.file}."]
        return record_html(sentences, HEADING, best_cells(self.trials))


def run_study(
    study: str,
    out: str | Path | None = None,
    *,
    methods: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
    seeds: int | None = None,
    changes: Iterable[str] = (),
    settings: str | Path | None = None,
    smoke: bool = False,
    workers: int = 1,
    trust_code: Iterable[str] = (),
    report: bool = True,
    announce: Announce | None = print,
) -> StudyResult:
    """Train the methods of a study, measure them under shift, and write a report.

    The same call again skips complete runs and resumes the others, as ``falconcal run`` does.

    Args:
        study: A name of ``falconcal list studies``, or the path of a TOML file.
        out: The output folder, ``runs/NAME`` by default.
        methods: Methods of the study; all by default.
        variants: Variants of the study; all by default.
        seeds: How many seeds, 0, 1, ...; as in the study by default.
        changes: Changes of settings, each as ``"key=value"``.
        settings: A file of settings that tuning chose.
        smoke: Whether to make the study so small that it runs in seconds.
        workers: Worker processes on this machine; in a notebook leave it at 1.
        trust_code: Packages whose code the files may name.
        report: Whether to write tables, figures and the page.
        announce: Called with one line when a run begins or ends; None is silent.

    Returns:
        The folder with its figures; a notebook shows the headline table.

    Raises:
        UsageError: There is no such study, method, variant or setting.
        UserError: The folder holds another study, or its files are damaged.

    Example:
        >>> import falconcal
        >>> falconcal.run_study("digit")
        Traceback (most recent call last):
        falconcal.errors.UsageError: unknown study 'digit'. Did you mean 'digits'?
    """
    wanted = [*changes, *([f"seeds={seeds}"] if seeds is not None else [])]
    chosen = None if settings is None else as_path(settings)
    found = find_study(study, wanted, chosen, smoke, trust_code)
    home = Path("runs") / "smoke" if smoke else Path("runs")
    directory = as_path(out) if out is not None else home / found.name
    on_event = _AnnouncedRuns(announce)
    failed = do_runs(found, directory, on_event, methods, variants, local_executor(workers))
    if report and (directory / "rows.parquet").exists():
        write_report(directory)
    return StudyResult(directory, {str(run): reason for run, reason in failed.items()})


def tune_study(
    study: str,
    method: str,
    trials: int,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    prune: bool = True,
    changes: Iterable[str] = (),
    settings: str | Path | None = None,
    trust_code: Iterable[str] = (),
    announce: Announce | None = print,
) -> TuningResult:
    """Choose the settings of a method on validation data alone, and keep every trial.

    The same call again resumes the search, as ``falconcal tune`` does.

    Args:
        study: A name of ``falconcal list studies``, or the path of a TOML file.
        method: A method of the study; if it has a base, the base is tuned.
        trials: How many trials in total, including those done before.
        out: The output folder, ``runs/tune/NAME`` by default.
        seed: Of the points drawn, and of every training.
        prune: Whether a trial ends early when it is worse than the median of the others.
        changes: Changes of settings, each as ``"key=value"``.
        settings: A file of settings that were chosen before.
        trust_code: Packages whose code the files may name.
        announce: Called with one line per trial that ended; None is silent.

    Returns:
        All trials, and the settings that were chosen.

    Raises:
        UsageError: There is no such study, method or setting, or Optuna is not installed.
        UserError: The folder holds another search.

    Example:
        >>> import falconcal
        >>> falconcal.tune_study("digits", "falkon", trials=1)
        Traceback (most recent call last):
        falconcal.errors.UsageError: unknown method of the study digits 'falkon'. Did you mean ...
    """
    from falconcal.studies.tuning import need_optuna

    need_optuna()
    from falconcal.studies.tuning.search import Search, tune

    chosen = None if settings is None else as_path(settings)
    found = find_study(study, changes, chosen, trust_code=trust_code)
    directory = as_path(out) if out is not None else Path("runs") / "tune" / found.name
    search = Search(found, method, trials, directory, None, seed, prune=prune)
    return TuningResult(directory, tune(search, 1, _announced_trial(announce)))


class _AnnouncedRuns:
    """One line when a run begins, is done, fails or was complete before."""

    def __init__(self, announce: Announce | None) -> None:
        self.announce = announce

    def __call__(self, event: Event) -> None:
        words = {
            "complete": "already complete",
            "begun": f"training for {event.epochs} epochs",
            "done": f"done in {event.seconds:.0f} s",
            "failed": f"failed: {event.text}",
        }.get(event.kind)
        if words is not None and self.announce is not None:
            self.announce(f"{event.run}: {words}")


def _announced_trial(announce: Announce | None) -> Callable[[TrialRow], None]:
    def on_trial(row: TrialRow) -> None:
        if announce is not None:
            figure = f", criterion {row['criterion']:.4f}" if "criterion" in row else ""
            announce(f"{row['method']}, trial {row['trial']}: {row['state']}{figure}")

    return on_trial
