"""The tables of the docs with one row per entry of a table of the package.

``python -m tests.helpers.docs_tables`` writes docs/catalogue.md, docs/reference/study_file.md, the
table of metrics and that of bad inputs, and adds a row for a method that has none; tests hold the
pages to the tables.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping

from benchmarks import bad_inputs
from falconcal.cli.catalogue_tables import CATALOGUE, method_settings, summary_line
from falconcal.core.settings import described_settings
from falconcal.io.report_roles import ReportRoles, Showcase
from falconcal.methods import METHODS
from falconcal.metrics import METRICS, POOLED, Metric
from falconcal.recalibration import Calibrator
from falconcal.studies.drift import DriftedSample
from falconcal.studies.study import Study
from falconcal.training import TrainingMethod
from tests.helpers.paths import ROOT

REWRITE = "python -m tests.helpers.docs_tables"
DOCS = ROOT / "docs"
CATALOGUE_PAGE, MEASURING, METHODS_PAGE = (
    DOCS / f"{name}.md" for name in ("catalogue", "measuring", "methods")
)
STUDY_PAGE = DOCS / "reference" / "study_file.md"
TOLD_ON = {
    "methods": "[Methods](methods.md)",
    "studies": "[Studies](studies.md)",
    "shifts": "[Measuring](measuring.md#shifts) and [Corruptions](shifts.md#corruptions)",
    "outliers": "[Outliers](shifts.md#outliers)",
    "metrics": "[Measuring](measuring.md#metrics)",
    "datasets": "[Data](data.md)",
    "models": "[Networks](networks.md)",
}
INTRODUCTION = f"""# Everything by name

What `falconcal list` shows: the names that a study file, a command or Python can use. This page is
made from the tables themselves, by `{REWRITE}`.
"""

CALLERS = ("trust",)  # given by whoever reads the file
STUDY_FILE = f"""# The study file

Every key of a study in TOML, with what it means. `falconcal new study FILE` writes a commented
file to begin with, and `falconcal new schema FILE` the JSON schema that editors complete keys by.
How a study is put together is on [Studies](../studies.md); settings of methods are on
[Methods](../methods.md).
Written by `{REWRITE}`.
"""


def catalogue() -> str:
    """Return the page of everything that has a name."""
    return "\n".join([INTRODUCTION, *(_section(kind, CATALOGUE[kind]()) for kind in CATALOGUE)])


def _section(kind: str, entries: Mapping[str, str]) -> str:
    rows = "\n".join(_row(f"`{name}`", line.removesuffix(".")) for name, line in entries.items())
    return (
        f"## {kind.title()}\n\nMore in {TOLD_ON[kind]}.\n\n| name | what |\n| --- | --- |\n{rows}\n"
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells).rstrip() + " |"


def study_file() -> str:
    """Return the page of what a study file may say, from the settings' own descriptions."""
    tables = {
        "Top level": {
            name: text for name, text in described_settings(Study).items() if name not in CALLERS
        },
        "[report]": described_settings(ReportRoles),
        "[report.showcase]": described_settings(Showcase),
        "drifted": described_settings(DriftedSample),
    }
    return "\n".join([STUDY_FILE, *(_settings_table(*item) for item in tables.items())])


def _settings_table(title: str, settings: Mapping[str, str]) -> str:
    meanings = {name: " ".join(text.replace("``", "`").split()) for name, text in settings.items()}
    rows = "\n".join(_row(f"`{name}`", meaning) for name, meaning in meanings.items())
    return f"## {title}\n\n| key | meaning |\n| --- | --- |\n{rows}\n"


def metric_row(name: str, metric: Metric) -> str:
    """Return the row of a metric."""
    low, high = metric.limits
    values = f"from {low:g}" if high == math.inf else f"{low:g} to {round(high, 1):g}"
    return _row(f"`{name}`", metric.label, metric.meaning, values, metric.direction)


def with_metrics(page: str) -> str:
    """Return the page on measuring with one row per metric."""
    before, _, rest = page.partition("\n## Metrics\n")
    rows = "\n".join(metric_row(*item) for item in {**METRICS, **POOLED}.items())
    rest = re.sub(r"(?<=\n)\| `.*(?:\n\| `.*)*", lambda _: rows, rest, count=1)
    return f"{before}\n## Metrics\n{rest}"


def with_methods(page: str) -> str:
    """Return the page on methods with a row for each; those that are there stay as they are."""
    lines = page.splitlines()
    for name in METHODS:
        if not any(line.startswith(f"| `{name}` |") for line in lines):
            lines.insert(_end_of_table(lines), method_row(name))
    return "\n".join(lines) + "\n"


def _end_of_table(lines: list[str]) -> int:
    return next(
        number for number, line in enumerate(lines) if line == "" and "|" in lines[number - 1]
    )


def method_row(name: str) -> str:
    """Return a row for a method that has none yet, from its docstrings and settings."""
    method = inspect.unwrap(METHODS[name])
    return _row(
        f"`{name}`",
        f"`{method.__name__}`: {summary_line(inspect.getmodule(method)).removesuffix('.')}",
        "",  # the source is for a person to name
        ", ".join(f"`{setting}` {default}" for setting, default in own_settings(name).items()),
    )


def own_settings(name: str) -> dict[str, str]:
    """Return the settings of a method beside the common ones, with their defaults."""
    method = inspect.unwrap(METHODS[name])
    base = TrainingMethod if issubclass(method, TrainingMethod) else Calibrator
    common = {"base", *(field.name for field in dataclasses.fields(base))}
    settings = {one.name: one.default for one in method_settings(method)}
    return {setting: default for setting, default in settings.items() if setting not in common}


def write() -> None:
    """Write all tables."""
    bad_inputs.PAGE.write_text(bad_inputs.page(), encoding="utf-8")
    CATALOGUE_PAGE.write_text(catalogue(), encoding="utf-8")
    STUDY_PAGE.write_text(study_file(), encoding="utf-8")
    for page, filled in ((MEASURING, with_metrics), (METHODS_PAGE, with_methods)):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
