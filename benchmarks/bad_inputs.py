"""How many bad inputs the tests try, written into docs/results/bad_inputs.md.

python -m benchmarks.bad_inputs
"""

from collections import Counter

from benchmarks.pages import PAGES
from tests.helpers.bad_inputs.table import cases

PAGE = PAGES / "bad_inputs.md"
TEXT = """# Bad inputs

The tests give falconcal {total} bad inputs, generated from tables: every command with wrong
options, files that are empty, cut off, of another kind or in another encoding, folders and broken
links in their place, output folders with a damaged file, and calls of the Python interface.

Each has to end with the expected exit code (1: data or files; 2: the command line, a study file or
a setting) and with the expected words, without a traceback, and every file and folder has to be as
it was before.

| Surface | Bad inputs |
|---|---:|
{rows}
| **All** | **{total}** |

Written by `python -m benchmarks.bad_inputs`; the tables are in `tests/helpers/bad_inputs/table.py`.
"""


def page() -> str:
    """Return the page with the number of bad inputs of each surface."""
    counts = Counter(case.surface for case in cases())
    rows = [f"| {surface} | {count} |" for surface, count in counts.items()]
    return TEXT.format(total=counts.total(), rows="\n".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
