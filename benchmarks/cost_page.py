"""The tables of docs/cost.md, each number from the one file in which it was kept.

    python -m benchmarks.cost_page

The commands that measure write their file, and then this page. A number that several tables show is
measured by one of them: FALCON's step, those of Bayesian networks and MC dropout's prediction have
a command each, and the table of all methods takes them from there.
"""

from pathlib import Path
from statistics import median

from benchmarks.pages import ROOT, put_between, table
from benchmarks.timing import Figures, read_figures, shown
from falconcal.methods import METHODS

PAGE, COST = ROOT / "docs" / "cost.md", ROOT / "results" / "cost"
STEPS, SAMPLING, BAYESIAN, MEASURED, RECURRENT, PROFILE, CALIBRATORS = (
    COST / f"{name}.json"
    for name in (
        "steps",
        "sampling",
        "bayesian",
        "methods",
        "recurrent",
        "recurrent_profile",
        "calibrators",
    )
)
QUARTER = "shared, a quarter of the batches"
# of the table of all methods: what stands in another file, and under which name
ELSEWHERE: dict[str, tuple[Path, str]] = {
    "falcon, step": (STEPS, "step, LeNet, shared"),
    "mc_dropout, prediction": (SAMPLING, "LeNet, 100 images, sampled"),
    **{
        f"{name}, step": (BAYESIAN, f"step, LeNet, {name}")
        for name in ("svi", "last_layer_svi", "mnf")
    },
}


def main() -> None:
    write_page()


def write_page() -> None:
    """Put the tables into the page on cost."""
    PAGE.write_text(filled(PAGE.read_text()))


def filled(page: str) -> str:
    """Return the page with the tables as the kept files have them."""
    tables = {
        "steps": ("step_cost", with_goals(read_figures(STEPS))),
        "sampling": ("sampling_cost", sampling(read_figures(SAMPLING))),
        "bayesian": ("bayesian_cost", with_goals(read_figures(BAYESIAN))),
        "methods": ("method_costs", methods(read_figures(MEASURED))),
        "recurrent": ("recurrent_cost", recurrent(read_figures(RECURRENT))),
        "recurrent profile": ("recurrent_profile", profiled(read_figures(PROFILE))),
        "calibrators": ("calibrator_costs", calibrators(read_figures(CALIBRATORS))),
    }
    for name, (script, text) in tables.items():
        page = put_between(page, name, script, text)
    return page


def with_goals(figures: Figures) -> str:
    rows = [(name, shown(values), goal(name)) for name, values in figures.items()]
    return table(["what", "figure", "goal"], rows)


def goal(name: str) -> str:
    if name in ("step, VGG19, shared", "step, LSTM, shared"):
        return "at most 2.1"
    if name == "step, LeNet, svi":
        return "at most 2.5"
    if name.startswith("step") and name.endswith(QUARTER):
        return "at most 1.4"
    if name.startswith("step") and name.endswith("shared"):
        return "at most 2.4"
    return "at least 10" if name.startswith("affine") else ""


def sampling(figures: Figures) -> str:
    cases = [name.removesuffix(", sampled") for name in figures if name.endswith(", sampled")]
    rows = [
        (
            name,
            shown(figures[f"{name}, sampled"]),
            "at most 2.5" if name.startswith("LeNet") else "",
            shown(figures[f"{name}, pass by pass"]),
        )
        for name in cases
    ]
    return table(["prediction", "sampled", "goal", "pass by pass"], rows)


def methods(figures: Figures) -> str:
    """Return a step and a prediction of every measured method, also those kept in other files."""
    figures = figures | {name: read_figures(file)[key] for name, (file, key) in ELSEWHERE.items()}
    rows = [
        [
            name,
            *(shown(figures.get(f"{name}, {what}", [])) for what in ("step", "prediction")),
        ]
        for name in METHODS
        if any(key.startswith(f"{name}, ") for key in figures)
    ]
    return table(["method", "training step", "prediction"], rows)


def recurrent(figures: Figures) -> str:
    """Return seconds per 1,000 examples and memory of each way, and how many times faster it is."""
    ways = ("given back", "kept", "kept, bfloat16")
    cases = [name.removesuffix(", kept") for name in figures if name.endswith(", kept")]
    rows = []
    for case in cases:
        values = [figures.get(f"{case}, {way}", []) for way in ways]
        faster = [_times_faster(values[0], one) for one in values[1:] if "memory" not in case]
        rows.append([case, *map(shown, values), *(faster or ["", ""])])
    return table(["what", *ways, "kept, times faster", "bfloat16, times faster"], rows)


def _times_faster(before: list[float], after: list[float]) -> str:
    return f"{median(before) / median(after):.2f}" if after else ""


def profiled(figures: Figures) -> str:
    """Return what the profiler found, a row per figure."""
    return table(["what", "figure"], [(name, shown(values)) for name, values in figures.items()])


def calibrators(figures: Figures) -> str:
    """Return a fit and a prediction of every calibrator, in passes over the validation data."""
    names = dict.fromkeys(name.rpartition(", ")[0] for name in figures)
    rows = [
        [name, *(shown(figures[f"{name}, {what}"]) for what in ("fit", "prediction"))]
        for name in names
    ]
    return table(["calibrator", "fit", "prediction"], rows)


if __name__ == "__main__":
    main()
