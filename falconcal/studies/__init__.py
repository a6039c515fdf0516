"""Studies: what to train and under which shifts to measure it, each a TOML file beside this one.

Adding one: write ``studies/NAME.toml``; the table finds it.
"""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from falconcal.errors import unknown
from falconcal.registry import check_name
from falconcal.studies.study import Study, read_study, read_study_file

STUDIES: dict[str, str] = {
    file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
    for file in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name)
    if file.name.endswith(".toml")
}

__all__ = ["STUDIES", "Study", "find_study"]


def find_study(
    name: str,
    changes: Iterable[str] = (),
    settings: Path | None = None,
    smoke: bool = False,
    trust_code: Iterable[str] = (),
) -> Study:
    """Return a study by its name in the table or the path of its TOML file.

    ``changes`` are ``key=value``; ``settings`` is a file of tuned ones, which stand beneath them.
    ``smoke`` makes it so small that it runs in seconds. ``trust_code`` are packages whose code the
    files may name as ``package.module:Name``; without it they name what falconcal has.
    """
    check_name("study", name)
    if name in STUDIES:
        return read_study(STUDIES[name], f"study {name}", changes, settings, smoke, trust_code)
    if name.endswith(".toml") or "/" in name:
        return read_study_file(Path(name), changes, settings, smoke, trust_code)
    raise unknown("study", name, STUDIES)
