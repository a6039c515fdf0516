"""Tables for a paper: LaTeX and Markdown of the same cells, the best of each column in bold."""

from dataclasses import dataclass
from pathlib import Path

from falconcal.io.atomic import write_text
from falconcal.report.results import Results, load_results
from falconcal.report.tables.best_cells import Marks, best_of_columns, lowest_of_rows
from falconcal.report.tables.headline_columns import HEADLINE
from falconcal.report.tables.kin_tables import KIN_NOTE, KIN_TITLE, has_kin, kin_cells, kin_note
from falconcal.report.tables.paper_values import PUBLISHED_NOTE, paper_cells
from falconcal.report.tables.summary import (
    make_summary,
    markdown_table,
    summary_cells,
    tested_shift_rows,
)

SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class PaperTable:
    """A table of text under a caption, its best cells marked."""

    label: str
    caption: str
    heading: list[str]
    rows: list[list[str]]
    best: Marks = frozenset()


def write_paper(directory: Path, results: Results | None = None) -> list[Path]:
    """Write the tables of an output folder as LaTeX and Markdown, the best of each column in bold.

    Args:
        directory: The folder to write to: the output folder of a study, unless ``results`` are
            given.
        results: Those of several folders, as ``load_comparison`` read them.

    Returns:
        The files, ``paper/tables.tex`` and ``paper/tables.md`` in the folder.

    Raises:
        UserError: If a file is missing or damaged, or runs lack shifts; the message names it.

    Example:
        >>> from pathlib import Path
        >>> from falconcal.report import write_paper
        >>> write_paper(Path("nowhere"))
        Traceback (most recent call last):
        falconcal.errors.UserError: expected an output folder of falconcal run, got nowhere: ...
    """
    found = tables(load_results(directory) if results is None else results)
    files = {"tables.tex": map(_latex, found), "tables.md": map(_markdown, found)}
    texts = {name: "\n\n".join(parts) + "\n" for name, parts in files.items()}
    for name, text in texts.items():
        write_text(directory / "paper" / name, text)
    return [directory / "paper" / name for name in texts]


def tables(results: Results) -> list[PaperTable]:
    """Return the headline, the paper's figures beside ours, and each shift's micro ECE."""
    summary = make_summary(results)
    heading, rows = summary_cells(summary, HEADLINE)
    title = results.title
    found = [PaperTable("headline", title, heading, rows, best_of_columns(rows, HEADLINE))]
    beside = paper_cells(results, summary)
    if beside[1]:
        found.append(
            PaperTable("published", f"{title}: beside the paper. {PUBLISHED_NOTE}", *beside)
        )
    shifts = tested_shift_rows(results)
    caption = f"{title}: micro-averaged ECE of each tested shift"
    if has_kin(results, results.tested_shifts):
        caption += f". {KIN_NOTE}"
    found.append(
        PaperTable("shifts", caption, ["Shift", *results.series], shifts, lowest_of_rows(shifts))
    )
    kin = kin_cells(results)
    if kin[1]:
        found.append(PaperTable("kin", f"{title}: {KIN_TITLE}. {kin_note(results)}", *kin))
    return found


def _latex(table: PaperTable) -> str:
    body = [
        " & ".join(_bold(_escaped(cell), (row, number) in table.best) for number, cell in numbered)
        + r" \\"
        for row, cells in enumerate(table.rows)
        for numbered in [list(enumerate(cells))]
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(table.caption)}}}",
        rf"\label{{tab:{table.label}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.heading) - 1)}}}",
        r"\hline",
        " & ".join(_escaped(text) for text in table.heading) + r" \\",
        r"\hline",
        *body,
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{text}}}" if best else text


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def _markdown(table: PaperTable) -> str:
    rows = [
        [
            f"**{cell}**" if (row, number) in table.best else cell
            for number, cell in enumerate(cells)
        ]
        for row, cells in enumerate(table.rows)
    ]
    return f"{table.caption}\n\n{markdown_table(table.heading, rows)}"
