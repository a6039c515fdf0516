"""The verdict in words: each method against the plain one, under shift and at home."""

from dataclasses import dataclass
from typing import Any

import polars

from falconcal.report.outcomes import Outcome, difference, outcome
from falconcal.report.ranking import group_of, ranked_series, worst_shift
from falconcal.report.results import Results
from falconcal.report.study_evidence import StudyEvidence
from falconcal.report.tables.headline_columns import NOT_KNOWN

OUTCOME_WORDS: dict[Outcome, str] = {
    "better": "beyond chance",
    "worse": "worse, beyond chance",
    "within chance": "within chance",
    "one seed": "from one seed",
}
Figures = dict[str, Any]  # a row of the summary


@dataclass(frozen=True)
class Verdict:
    """What is said of one method, and how it stands against the plain one under shift."""

    series: str
    group: str
    words: str
    standing: Outcome | None = None  # none for the method that the others are compared with


def verdicts(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> list[Verdict]:
    """Return one verdict per method, the best calibrated under shift first."""
    figures = {row["series"]: row for row in summary.to_dicts()}
    return [_verdict(results, figures, evidence, series) for series in ranked_series(results)]


def answer(results: Results, summary: polars.DataFrame, evidence: StudyEvidence) -> str:
    """Return the one sentence that the page opens with."""
    figures = {row["series"]: row for row in summary.to_dicts()}
    best, plain = ranked_series(results)[0], compared_with(results)
    own = figures[best]
    if plain is None or best == plain:
        start = f"No method is better calibrated under shift than {best}" if plain else best
        return f"{start}: {_alone(own)}."
    found = outcome(difference(evidence, "mean_micro_ece", best, plain))
    return (
        f"{best} is best calibrated under shift: ECE "
        f"{_versus(own, figures[plain], 'mean_micro_ece')} of {plain}, {OUTCOME_WORDS[found]}; "
        f"accuracy {_share(own)} against {_share(figures[plain])}."
    )


def compared_with(results: Results) -> str | None:
    """Return the plain method, if the study has it and others to compare with it."""
    return results.series_of(results.roles.plain) if len(results.series) > 1 else None


def _verdict(
    results: Results, figures: dict[str, Figures], evidence: StudyEvidence, series: str
) -> Verdict:
    own, plain, worst = figures[series], compared_with(results), worst_shift(results, series)
    ending = f"; worst shift {worst[0]}, {worst[1]:.2f}." if worst else "."
    group = group_of(results, series)
    if plain is None or series == plain:
        return Verdict(series, group, _alone(own) + ending)
    found = {
        name: outcome(difference(evidence, name, series, plain))
        for name in ("mean_micro_ece", "clean_ece")
    }
    shifted, home = (
        f"{_versus(own, figures[plain], name)}, {OUTCOME_WORDS[one]}" for name, one in found.items()
    )
    accuracy = f"{_share(own)} against {_share(figures[plain])}"
    words = f"under shift {shifted}; at home {home}; accuracy {accuracy}{ending}"
    return Verdict(series, group, words, found["mean_micro_ece"])


def _alone(own: Figures) -> str:
    shifted, home = (_number(own[name]) for name in ("mean_micro_ece", "clean_ece"))
    return f"under shift {shifted}; at home {home}; accuracy {_share(own)}"


def _versus(own: Figures, other: Figures, name: str) -> str:
    """Return two figures with as many digits as it takes to tell them apart, at most three."""
    pairs = [[_number(one[name], digits) for one in (own, other)] for digits in (2, 3)]
    return " against ".join(pairs[0] if pairs[0][0] != pairs[0][1] else pairs[1])


def _number(value: float | None, digits: int = 2) -> str:
    return NOT_KNOWN if value is None else f"{value:.{digits}f}"


def _share(figures: Figures) -> str:
    value = figures["accuracy"]
    return NOT_KNOWN if value is None else f"{100 * value:.1f} %"
