"""A record as a notebook shows it: sentences and a small table, all text escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from falconcal.errors import readable


def record_html(
    sentences: Sequence[str], heading: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """Return HTML: the first sentence bold, the others after it, then the table."""
    words = [escape(readable(sentence)) for sentence in sentences]
    lead = f"<p><b>{words[0]}</b> {' '.join(words[1:])}</p>" if words else ""
    head = "".join(_cell("th", name, number) for number, name in enumerate(heading))
    body = "".join(
        f"<tr>{''.join(_cell('td', cell, number) for number, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"{lead}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, number: int) -> str:
    side = "left" if number == 0 else "right"
    return f'<{tag} style="text-align: {side}">{escape(readable(text))}</{tag}>'
