"""The trials of a tuning folder: their history, the best, and how well the criterion ranks."""

import json
from pathlib import Path

import altair
import polars
import scipy  # its parts are loaded when they are first used

from falconcal.drawing.layers import layered
from falconcal.drawing.theme import COLOURS
from falconcal.errors import UserError
from falconcal.io.atomic import write_bytes
from falconcal.io.parsing import parse_json
from falconcal.io.trial_rows import TrialRow, best_of, is_eligible, shortfalls
from falconcal.report.charts.figure import Figure, drawn, grid, whole_numbers

HEADING = ["Method", "Trials", "Enough", "Pruned", "Failed", "Criterion", "Accuracy", "Required"]
TRIAL_GROUPS = ("accurate enough", "not accurate enough", "pruned")
FEWEST_RANKED = 4  # trials below which families are not compared
TRIAL_INKS = (COLOURS[0], COLOURS[1], COLOURS[8])


def read_trials(directory: Path) -> list[TrialRow]:
    """Return the rows of trials.jsonl."""
    file = directory / "trials.jsonl"
    try:
        return [parse_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the trials {file}: {error}.") from None


def write_history(directory: Path) -> Path:
    """Draw the criterion of every trial, as SVG and PNG; return the SVG."""
    figure = history_figure(read_trials(directory))
    for name, content in drawn([figure], ("svg", "png")).items():
        write_bytes(directory / name, content)
    return directory / "history.svg"


def history_figure(rows: list[TrialRow]) -> Figure:
    """The criterion of every trial that has one, and the best so far, one panel per method."""
    table = _table(rows)
    methods = dict.fromkeys(table["method"].to_list(), False)
    caption = (
        "The criterion on validation data of every trial; lower is better. The line is the best so "
        "far among trials that are accurate enough. A pruned trial stands where it was stopped."
    )
    chart = grid(layered(_layers(), table), "method", methods)
    return Figure("history", caption, chart, 150)


def best_cells(rows: list[TrialRow]) -> list[list[str]]:
    """Return the table of methods as text: how many trials ended how, and the best of them."""
    return [_cells(method, rows) for method in dict.fromkeys(row["method"] for row in rows)]


def rank_correlations(
    rows: list[TrialRow], figure: str = "micro_ece"
) -> dict[str, tuple[float, int]]:
    """Return Spearman's correlation of the criterion and a figure on test data, and its trials.

    By method, of all methods together, and of the trials that are accurate enough, from which the
    best is chosen; fewer than three trials have no correlation.
    """
    scored = [row for row in rows if row["state"] == "complete" and "test" in row]
    groups: dict[str, list[TrialRow]] = {}
    for row in scored:
        groups.setdefault(row["method"], []).append(row)
    if len(groups) > 1:
        groups["all methods"] = scored
    for name, group in list(groups.items()):
        groups[f"{name}, accurate enough"] = [row for row in group if is_eligible(row)]
    return {
        name: (_spearman(group, figure), len(group))
        for name, group in groups.items()
        if len(group) > 2
    }


def family_agreement(rows: list[TrialRow]) -> dict[str, float]:
    """Return for each family its rank correlation with the mean of the others, over the trials.

    Over all complete trials that are accurate enough, of all methods together; empty where they are
    fewer than four or have one family. A family below 0 ranks trials against the others: a mean
    over such families chooses little.
    """
    complete = [row for row in rows if row["state"] == "complete" and row.get("families")]
    judged = [row["families"] for row in complete if "accuracy" not in shortfalls(row)]
    shared = [name for name in (judged[0] if judged else ()) if all(name in one for one in judged)]
    if len(judged) < FEWEST_RANKED or len(shared) < 2:
        return {}
    return {name: _agreement(judged, name, shared) for name in shared}


def _agreement(judged: list[dict[str, float]], family: str, families: list[str]) -> float:
    others = [name for name in families if name != family]
    own = [one[family] for one in judged]
    means = [sum(one[name] for name in others) / len(others) for one in judged]
    alike = len(set(own)) == 1 or len(set(means)) == 1
    return 0.0 if alike else _rank_correlation(own, means)  # equal values rank nothing


def _spearman(rows: list[TrialRow], figure: str) -> float:
    criteria = [row["criterion"] for row in rows]
    return _rank_correlation(criteria, [row["test"][figure] for row in rows])


def _rank_correlation(first: list[float], second: list[float]) -> float:
    return float(scipy.stats.spearmanr(first, second).statistic)


def _cells(method: str, rows: list[TrialRow]) -> list[str]:
    mine = [row for row in rows if row["method"] == method]
    states = [row["state"] for row in mine]
    best = best_of(mine).get(method)
    figures = ["criterion", "accuracy", "required_accuracy"]
    return [
        method,
        str(len(mine) - states.count("killed")),
        str(sum(map(is_eligible, mine))),
        str(states.count("pruned")),
        str(states.count("failed")),
        *([f"{best[name]:.4f}" for name in figures] if best else ["none", "", ""]),
    ]


def _table(rows: list[TrialRow]) -> polars.DataFrame:
    """Return a row for every trial with a criterion, and the best so far beside it."""
    table, best = [], dict[str, float]()
    for row in rows:
        method = row["method"]
        if is_eligible(row):
            best[method] = min(row["criterion"], best.get(method, row["criterion"]))
        if "criterion" in row:
            shown = {name: row[name] for name in ("method", "trial", "criterion", "accuracy")}
            words = json.dumps(row["settings"])
            table.append({**shown, "state": _state(row), "best": best.get(method), "words": words})
    schema = {
        "method": polars.String,
        "trial": polars.Int64,
        "criterion": polars.Float64,
        "accuracy": polars.Float64,
        "state": polars.String,
        "best": polars.Float64,
        "words": polars.String,
    }
    return polars.DataFrame(table, schema=schema)


def _state(row: TrialRow) -> str:
    if row["state"] == "pruned":
        return TRIAL_GROUPS[2]
    return TRIAL_GROUPS[0] if is_eligible(row) else TRIAL_GROUPS[1]


def _layers() -> list[altair.Chart]:
    base = altair.Chart().encode(x=altair.X("trial:Q", title="trial", axis=whole_numbers()))
    scale = altair.Scale(domain=list(TRIAL_GROUPS), range=list(TRIAL_INKS))
    dots = base.mark_point(filled=True, size=45, opacity=0.9).encode(
        y=altair.Y("criterion:Q", title="criterion", scale=altair.Scale(zero=False)),
        color=altair.Color("state:N", title=None, scale=scale),
        shape=altair.Shape("state:N", title=None, scale=altair.Scale(domain=list(TRIAL_GROUPS))),
        tooltip=[
            altair.Tooltip("trial:Q"),
            altair.Tooltip("words:N", title="settings"),
            altair.Tooltip("criterion:Q", format=".4f"),
            altair.Tooltip("accuracy:Q", format=".4f"),
        ],
    )
    line = base.mark_line(interpolate="step-after", color=TRIAL_INKS[0], strokeWidth=1.5).encode(
        y=altair.Y("best:Q", title="criterion")
    )
    return [line, dots]
