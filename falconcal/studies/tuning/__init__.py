"""Tuning: choose the settings of a method on validation data alone, and keep every trial.

A trial trains a method at one point of the search space under a small budget; the criterion of
``falconcal.training.selection`` judges it. Optuna, in the extra ``tune``, stores the trials for any
number of workers; ``budget``, ``choice``, ``target`` and ``spaces`` work without it.
"""

from importlib.util import find_spec

from falconcal.errors import UserError


def need_optuna() -> None:
    """Raise an error that names the extra where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise UserError(
            "falconcal tune needs Optuna, which is an extra: pip install 'falconcal[tune]'."
        )
