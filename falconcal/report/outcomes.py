"""What a comparison of two methods comes to: better, worse, within chance, or one seed alone."""

from typing import Literal

import polars

from falconcal.report.study_evidence import BEYOND_CHANCE, EvidenceRow, StudyEvidence
from falconcal.report.tables.headline_columns import HEADLINE

Outcome = Literal["better", "worse", "within chance", "one seed"]
WITHIN_CHANCE: Outcome = "within chance"
ONE_SEED: Outcome = "one seed"
FEWEST_SEEDS = 2  # of each method: below, a difference may be that of two training runs
ONE_SEED_NOTE = (
    "One seed per method: what another training run would change is not known, so no difference "
    "between methods is called beyond chance."
)
WHICH_IS_BETTER = {column.name: column.better for column in HEADLINE}


def outcome(row: EvidenceRow) -> Outcome:
    """Return how the first of two methods compares with the second by a figure."""
    if float(row["p_holm"] or 0) >= BEYOND_CHANCE:
        return WITHIN_CHANCE
    if int(row["seeds"] or 0) < FEWEST_SEEDS:
        return ONE_SEED
    # the side of the interval: the difference seen has the bias of both figures in it
    higher = float(row["low"] or 0) + float(row["high"] or 0) > 0
    return "better" if higher == (WHICH_IS_BETTER[str(row["figure"])] == "higher") else "worse"


def turned(row: EvidenceRow) -> EvidenceRow:
    """Return the same comparison seen from the second method."""
    changed = {name: -float(row[name] or 0) for name in ("value", "low", "high")}
    bounds = {"low": changed["high"], "high": changed["low"]}
    return {**row, **changed, **bounds, "first": row["second"], "second": row["first"]}


def difference(evidence: StudyEvidence, figure: str, series: str, other: str) -> EvidenceRow:
    """Return the comparison of two methods by a figure, the first less the other."""
    rows = evidence.table.filter(kind="difference", figure=figure)
    same = rows.filter(first=series, second=other)
    if not same.is_empty():
        return same.row(0, named=True)
    return turned(rows.filter(first=other, second=series).row(0, named=True))


def rests_on_one_seed(evidence: StudyEvidence) -> bool:
    """Return whether a difference between methods rests on one training run of one of them."""
    rows = evidence.table.filter(polars.col("seeds") < FEWEST_SEEDS, kind="difference")
    return not rows.is_empty()
