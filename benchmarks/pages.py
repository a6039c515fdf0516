"""Pages of results: from a template, or with tables that commands write between two marks."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"  # one page per study


def render(template: str, words: Mapping[str, Any]) -> str:
    """Return a page from its template in ``benchmarks/templates``."""
    return draw(f"{template}.md", words)


def draw(file: str, words: Mapping[str, Any]) -> str:
    """Return a file of any kind from its template in ``benchmarks/templates``."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    pages = Environment(loader=loader, undefined=StrictUndefined)
    return pages.get_template(f"{file}.jinja").render(words).strip() + "\n"


def write_between(page: str, name: str, script: str, text: str) -> None:
    """Replace the text between the marks of a name in a page, given by its path from the root."""
    file = ROOT / page
    file.write_text(put_between(file.read_text(), name, script, text))


def put_between(page: str, name: str, script: str, text: str) -> str:
    """Return a page in which the text between the marks of a name is replaced."""
    mark, end = f"<!-- {name}: written by benchmarks/{script}.py -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(mark)
    _, closed, after = rest.partition(end)
    assert found, f"the page lacks {mark}"
    assert closed, f"the page lacks {end}"
    return f"{before}{mark}\n{text}\n{end}{after}"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are aligned to the right."""
    lines = [f"| {' | '.join(heading)} |", f"| --- | {' | '.join(['---:'] * (len(heading) - 1))} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
