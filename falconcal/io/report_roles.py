"""What the methods of a study stand for in its report: the table ``[report]`` of a study."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Field

from falconcal.core.settings import StrTuple, settings
from falconcal.errors import UsageError, described, unknown_name_error

Level = Annotated[int, Field(ge=0)]


@settings
class Showcase:
    """The shift that shows a person what a study is about: a run ends with its figures.

    Example:
        >>> from falconcal.io.report_roles import Showcase
        >>> turned = {"words": "Turned by", "shifts": ("rot_right",), "method": "falcon"}
        >>> Showcase(**turned, levels=(0, 9), labels=("0°", "90°")).labels
        ('0°', '90°')
    """

    words: str
    """What the shift does, such as "Turned by"; a level's label follows it."""
    shifts: Annotated[StrTuple, Field(min_length=1)]
    """Shifts of the study; the figures are means over them."""
    levels: Annotated[tuple[Level, ...], Field(min_length=1, strict=False)]
    """Levels that are shown, the strongest last."""
    labels: StrTuple
    """What each level is for a person, such as 90°."""
    method: str
    """The method that stands beside the plain one."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.levels):
            raise UsageError(
                f"expected one of labels per level, {len(self.levels)}, got {len(self.labels)}."
            )


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
    showcase: dict[str, Any] = Field(default_factory=dict)
    """The shift whose figures a run ends with, as ``Showcase`` says; none unless given."""

    @property
    def shown(self) -> Showcase | None:
        return Showcase(**self.showcase) if self.showcase else None


def read_roles(
    values: Any, methods: Mapping[str, Any] | None = None, shifts: Collection[str] = ()
) -> ReportRoles:
    """Return the roles of a table ``[report]``.

    Where ``methods`` are given, names in the table must be among them, and among ``shifts``, the
    known ones: a showcase whose shifts a run leaves out is not shown.
    """
    if not isinstance(values, dict):
        raise UsageError(f"expected a table [report], got {described(values)}.")
    roles = ReportRoles(**values)
    if methods is not None:
        _check_names(roles, values, methods, shifts)
    return roles


def _check_names(
    roles: ReportRoles,
    values: Mapping[str, Any],
    methods: Collection[str],
    shifts: Collection[str],
) -> None:
    named = [values[role] for role in ("plain", "reference", "ensemble") if role in values]
    showcase = roles.shown
    beside = [] if showcase is None else [showcase.method]
    for name in (*named, *roles.columns, *beside):
        if name not in methods:
            raise unknown_name_error("method of the table [report]", name, methods)
    for name in () if showcase is None else showcase.shifts:
        if name not in shifts:
            raise unknown_name_error("shift of the table [report.showcase]", name, shifts)
