"""Tuning: settings of a method chosen on validation data alone, every trial kept.

A trial trains a method with some settings under a small budget and is judged by the criterion of
``falconcal.training.selection``. Optuna, in the extra ``tune``, keeps the trials for any number of
workers; what can be known without it stands in ``budget``, ``choice``, ``target`` and ``spaces``.
"""

from importlib.util import find_spec

from falconcal.errors import UserError


def need_optuna() -> None:
    """Say what is missing before anything is imported that needs it."""
    if find_spec("optuna") is None:
        raise UserError(
            "falconcal tune needs Optuna, which is in an extra: pip install 'falconcal[tune]'."
        )
