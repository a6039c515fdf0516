"""The figures of the README and of the page that helps to choose, from rows that others kept.

    python -m benchmarks.readme

Writes between their marks what the picture says (``turning_digit``), how often the demo holds, and
the table of macro ECE of every study on the page "Does it work?". Nothing is measured here.
"""

from collections.abc import Sequence

import polars

from benchmarks import promise
from benchmarks.does_it_work import (
    PLAIN,
    STUDIES,
    StudyRows,
    by_seed,
    mean,
    methods,
    plain_of,
    rows_of,
)
from benchmarks.pages import table, write_between
from benchmarks.turning_digit import OURS, shares

COLUMNS = {
    "plain": "plain",
    "temperature": "temperature",
    "shift_temperature": "shift temperature",
    "falcon": "FALCON",
    "falcon_shift_temperature": "FALCON, shift temperature",
}
PAGES = ("README.md", "docs/which_method.md")
SCRIPT = "readme"


def main() -> None:
    for page in PAGES:
        write_between(page, "errors", SCRIPT, errors())
    for page in ("README.md", "docs/index.md"):
        write_between(page, "picture", SCRIPT, picture())
    write_between("README.md", "demo", SCRIPT, demo())


def picture() -> str:
    """Return what the picture shows at its right end."""
    right, plain, ours = (
        round(100 * shares(method, metric)[-1])
        for method, metric in ((PLAIN, "accuracy"), (PLAIN, "confidence"), (OURS, "confidence"))
    )
    return (
        f"Turned by 90 degrees, MNIST's digits are recognised in {right} % of cases. A plain "
        f"network says {plain} %; the same network with shift temperature, which trains nothing, "
        f"says {ours} %."
    )


def demo() -> str:
    """Return in how many cases the demo holds over all seeds that were run."""
    rows = polars.read_parquet(promise.KEPT / "rows.parquet")
    seeds, share = rows["seed"].n_unique(), 100 * promise.share_closer(rows)
    return (
        f"Over {seeds} seeds, the demo's model is nearer to its accuracy than plain training in "
        f"{share:.0f} % of [all cases](docs/results/promise.md)."
    )


def errors() -> str:
    """Return the table of macro ECE: one row per study, the lowest error in bold."""
    rows = [cells(study) for study in STUDIES if study.is_there()]
    return table(("data and shift", *COLUMNS.values()), rows)


def cells(study: StudyRows) -> tuple[str, ...]:
    title = f"{study.title} *" if study.development else study.title
    return title, *best_bold([macro_ece(study, method) for method in COLUMNS])


def macro_ece(study: StudyRows, method: str) -> float | None:
    """Return the mean over shifts and seeds of the mean ECE over levels; None if not measured."""
    rows = rows_of(study)
    name = plain_of(rows) if method == "plain" else method
    if name not in (plain_of(rows), *methods(study)):
        return None
    shifted = rows.filter(rows["shift"].str.contains(study.shifts), method=name)
    return mean(by_seed(shifted.drop_nulls("level"), "ece"))


def best_bold(values: Sequence[float | None]) -> list[str]:
    texts = ["" if value is None else f"{value:.3f}" for value in values]
    best = min(text for text in texts if text)
    return [f"**{text}**" if text == best else text for text in texts]


if __name__ == "__main__":
    main()
