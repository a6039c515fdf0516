"""The schedule: which runs a study has, and which of them wait, run or failed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from falconcal.core.method import chooses_epoch
from falconcal.errors import UsageError, unknown_name_error
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.studies.base_runs import check_enough_seeds, runs_of_base, seeds_of
from falconcal.studies.reference import REFERENCE_RUN, find_reference, reference_run
from falconcal.studies.run import StudyContext
from falconcal.studies.study import Study

ATTEMPTS = 3  # at a run whose process ends: the cause may lie outside the run
Needs = dict[RunKey, frozenset[RunKey]]


class Schedule:
    """The runs that are left, each after those that it needs."""

    def __init__(self, needs: Mapping[RunKey, Collection[RunKey]]) -> None:
        self.needs = needs
        self.waiting = list(needs)
        self.busy: set[RunKey] = set()
        self.failed: dict[RunKey, str] = {}
        self.begun: Counter[RunKey] = Counter()

    def next(self) -> RunKey | None:
        """Return the first run that can start now; None if all wait for others."""
        left = {*self.waiting, *self.busy}
        return next((run for run in self.waiting if not left.intersection(self.needs[run])), None)

    def start(self, run: RunKey) -> None:
        self.waiting.remove(run)
        self.busy.add(run)
        self.begun[run] += 1

    def end(self, run: RunKey) -> None:
        self.busy.remove(run)

    def fail(self, run: RunKey, reason: str) -> dict[RunKey, str]:
        """Mark a run as failed, and with it those that need it; return the reasons."""
        self.busy.discard(run)
        failed = {run: reason}
        for other in [other for other in self.waiting if run in self.needs[other]]:
            self.waiting.remove(other)
            failed |= self.fail(other, f"it builds on {run}, which failed")
        self.failed |= failed
        return failed

    def lose(self, run: RunKey) -> bool:
        """Put back a run whose process ended; return False if it had all its attempts."""
        if self.begun[run] >= ATTEMPTS:
            return False
        self.busy.remove(run)
        self.waiting.insert(0, run)
        return True


def dependencies(context: StudyContext, runs: Collection[RunKey]) -> Needs:
    """Return which runs each run waits for, with a run of the reference first if one needs it.

    ``runs`` are those to be done; what else they build on is complete, or they train it themselves.
    """
    lacking = find_reference(context.study, context.store) is None
    choosing = {run for run in runs if lacking and chooses_epoch(context.method(run))}
    reference = reference_run(context.study) if choosing else REFERENCE_RUN
    reference = reference if reference in runs else REFERENCE_RUN
    needs = {REFERENCE_RUN: frozenset[RunKey]()} if choosing and reference == REFERENCE_RUN else {}
    for run in runs:
        bases = {*runs_of_base(context.study, run, context.method(run))} & {*runs}
        needs[run] = frozenset(bases | ({reference} if run in choosing else set()))
    return needs


def runs_of(
    study: Study, methods: Iterable[str] | None = None, variants: Iterable[str] | None = None
) -> list[RunKey]:
    """Return the runs of a study, method x variant x seed, those that others build on first.

    The plain variant has all methods, another variant only those that it changes. An ensemble of
    finished runs has one run for as many seeds as it has members.
    """
    chosen = _chosen(f"method of the study {study.name}", methods, study.methods)
    for name in chosen if methods is not None else ():
        check_enough_seeds(study, name)
    names = _chosen(
        f"variant of the study {study.name}", variants, (DEFAULT_VARIANT, *study.variants)
    )
    keys = _varied(study, names, chosen)
    if not keys:
        raise UsageError(
            f"nothing to run: no variant of {', '.join(names)} changes {', '.join(chosen)}."
        )
    seeds = {method: seeds_of(study, method) for method in chosen}
    return [
        RunKey(*key, seed) for seed in range(study.seeds) for key in keys if seed < seeds[key[1]]
    ]


def _varied(study: Study, names: list[str], methods: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of a variant and a method that it changes; the plain one has all."""
    plain = study.variant(DEFAULT_VARIANT)
    return [
        (name, method)
        for name, variant in ((name, study.variant(name)) for name in names)
        for method in methods
        if name == DEFAULT_VARIANT or variant.differs(plain, method)
    ]


def _chosen(kind: str, names: Iterable[str] | None, known: Collection[str]) -> list[str]:
    chosen = list(names) if names is not None else list(known)
    for name in chosen:
        if name not in known:
            raise unknown_name_error(kind, name, known)
    return list(dict.fromkeys(chosen))
