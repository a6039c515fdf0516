"""Tables that commands write into the pages of the project, between two marks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_between(page: str, name: str, script: str, text: str) -> None:
    """Replace what stands between the marks of a name in a page, a path from the root."""
    file = ROOT / page
    file.write_text(put_between(file.read_text(), name, script, text))


def put_between(page: str, name: str, script: str, text: str) -> str:
    """Return the text of a page with what stands between the marks of a name replaced."""
    mark, end = f"<!-- {name}: written by benchmarks/{script}.py -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(mark)
    _, closed, after = rest.partition(end)
    assert found, f"the page lacks {mark}"
    assert closed, f"the page lacks {end}"
    return f"{before}{mark}\n{text}\n{end}{after}"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, numbers to the right."""
    lines = [f"| {' | '.join(heading)} |", f"| --- | {' | '.join(['---:'] * (len(heading) - 1))} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
