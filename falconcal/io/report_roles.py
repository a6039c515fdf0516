"""What the methods of a study stand for in its report: the table ``[report]`` of a study."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from falconcal.core.settings import settings
from falconcal.errors import UsageError, described, unknown_name_error


@settings
class ReportRoles:
    """Which method of a study is which in its report; a name that the study lacks counts for none.

    Example:
        >>> from falconcal.io.report_roles import ReportRoles
        >>> ReportRoles(reference="mixup").reference
        'mixup'
    """

    plain: str = "dropout"
    """The method that verdicts compare with, and in whose runs costs are counted."""
    reference: str = "falcon"
    """The method that the paper's tests compare with every other; without it there are none."""
    ensemble: str = "ensemble"
    """The deep ensemble in whose members costs are counted, one with a setting ``size``."""
    paper: str = ""
    """The study of the paper whose figures stand beside these; empty for the study's own name."""
    columns: dict[str, str] = Field(default_factory=dict)
    """By method, the method of the paper that it stands beside; its own name unless given."""


def read_roles(values: Any, methods: Mapping[str, Any] | None = None) -> ReportRoles:
    """Return the roles of a table ``[report]``; names in it must be among ``methods``, if given."""
    if not isinstance(values, dict):
        raise UsageError(f"expected a table [report], got {described(values)}.")
    roles = ReportRoles(**values)
    if methods is not None:
        named = {
            role: values[role] for role in ("plain", "reference", "ensemble") if role in values
        }
        for name in (*named.values(), *roles.columns):
            if name not in methods:
                raise unknown_name_error("method of the table [report]", name, methods)
    return roles
