"""Studies: what to train and under which shifts to measure it, one TOML file per study.

To add a study, write ``studies/NAME.toml``; the table ``STUDIES`` finds it.
"""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from falconcal.core.registry import check_name
from falconcal.errors import unknown_name_error
from falconcal.studies.study import Study
from falconcal.studies.study_reading import read_study, read_study_file
from falconcal.studies.study_schema import commented_study, study_schema

STUDIES: dict[str, str] = {
    file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
    for file in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name)
    if file.name.endswith(".toml")
}
"""The studies that come with the package: their TOML by name."""

__all__ = ["STUDIES", "Study", "commented_study", "find_study", "study_schema"]


def find_study(
    name: str,
    changes: Iterable[str] = (),
    settings: Path | None = None,
    smoke: bool = False,
    trust_code: Iterable[str] = (),
) -> Study:
    """Return a study by its name in the table ``STUDIES`` or the path of its TOML file.

    Args:
        name: a name of ``falconcal list studies``, or a path that ends with ``.toml``.
        changes: changes of settings, each as ``key=value``, as for ``--set``.
        settings: a file of settings that tuning chose; ``changes`` go before it.
        smoke: make the study so small that it runs in seconds.
        trust_code: packages whose code the files may name as ``package.module:Name``.

    Returns:
        The study, with every name and setting in it checked.

    Raises:
        UsageError: there is no such study or setting, or a file is not valid.

    Example:
        >>> study = find_study("digits", ["falcon.epochs=3"])
        >>> study.methods["falcon"]["epochs"]
        3
    """
    check_name("study", name)
    if name in STUDIES:
        return read_study(STUDIES[name], f"study {name}", changes, settings, smoke, trust_code)
    if name.endswith(".toml") or "/" in name:
        return read_study_file(Path(name), changes, settings, smoke, trust_code)
    raise unknown_name_error("study", name, STUDIES)
