"""The runs of a study that another run builds on: what it calibrates, or joins in an ensemble."""

from typing import TypeGuard

from falconcal.core.method import Method, with_seed
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.methods import Ensemble
from falconcal.recalibration.calibrator import Calibrator
from falconcal.studies.store import Store
from falconcal.studies.study import Study


def joins_finished(method: Method | None) -> TypeGuard[Ensemble]:
    """Return whether a method is an ensemble whose members are finished runs."""
    return isinstance(method, Ensemble) and method.members == "finished"


def runs_of_base(study: Study, run: RunKey, method: Method) -> list[RunKey]:
    """Return the runs of the study that train exactly what the method calibrates or joins."""
    return [one for group in _groups(study, run, method) for one in group]


def _groups(study: Study, run: RunKey, method: Method) -> list[list[RunKey]]:
    """Return the runs by the model that they train: any run of a group has the same one."""
    if isinstance(method, Calibrator):
        return [_same_training(study, run.variant, method.base, run.seed)]
    if joins_finished(method):
        seeds = method.finished_seeds(run.seed)
        return [_same_training(study, run.variant, method.base, seed) for seed in seeds]
    return []


def _same_training(study: Study, variant: str, base: Method | None, seed: int) -> list[RunKey]:
    """Return the runs that train a method with a seed."""
    if base is None:
        return []
    own, plain = study.variant(variant), study.variant(DEFAULT_VARIANT)
    wanted = with_seed(base, seed)
    same = [name for name in study.methods if own.method(name, seed) == wanted]
    # where a variant does not change the base, the plain variant has trained it
    return [
        RunKey(variant if own.differs(plain, name) else DEFAULT_VARIANT, name, seed)
        for name in same
    ]


def finished_members(study: Study, store: Store, run: RunKey, method: Ensemble) -> list[RunKey]:
    """Return one complete run for each member of an ensemble of finished runs."""
    groups = _groups(study, run, method)
    found = [next(filter(store.complete, group), None) for group in groups]
    lacking = [str(group[0]) for group, one in zip(groups, found, strict=True) if one is None]
    if lacking:
        raise UserError(
            f"expected the finished runs that {run} joins, got none of {', '.join(lacking)}: run "
            "the base with the same seeds too, or leave --methods out."
        )
    return [one for one in found if one is not None]


def seeds_of(study: Study, name: str) -> int:
    """Return how many runs per variant a method has: of finished members only whole ensembles."""
    return _seeds_left(study.method(name), study.seeds)


def _seeds_left(method: Method | None, seeds: int) -> int:
    if method is None:
        return seeds
    left = _seeds_left(getattr(method, "base", None), seeds)
    return left // method.size if joins_finished(method) else left


def check_enough_seeds(study: Study, name: str) -> None:
    """Refuse a method that was asked for by name and has no run with so few seeds."""
    if seeds_of(study, name) == 0:
        raise UsageError(
            f"methods.{name} joins the finished runs of more seeds than the {study.seeds} of the "
            f"study: raise --seeds, or lower {name}.size."
        )
