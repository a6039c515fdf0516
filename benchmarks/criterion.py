"""Which criterion ranks networks as the nine tested shifts do, on development data.

    python -m benchmarks.criterion_pool digits runs/pool/digits
    python -m benchmarks.criterion_pool fashion_mnist runs/pool/fashion_mnist
    python -m benchmarks.criterion_pool fashion_mnist_longer runs/pool/fashion_mnist_longer
    python -m benchmarks.criterion

Reads the rows that the pools kept in ``results/criterion`` and writes
``docs/results/criterion.md``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scipy.stats import spearmanr

from benchmarks.criterion_pool import BUDGETS, CANDIDATES, KEPT, read
from benchmarks.pages import PAGES, render, table
from falconcal.training.criterion import FAMILIES

Row = dict[str, Any]
DEVELOPMENT = ("digits", "fashion_mnist", "fashion_mnist_longer")
A = ("elastic_warp", "patch_shuffle", "occlusion", "background_lines")
B = (*A, "mixed_images")
SETS: dict[str, Sequence[str]] = {
    "A: elastic, patch shuffle, occlusion, lines": A,
    "B: A and mixing": B,
    "C: B and noise, blur, contrast, speckle": (
        *B,
        "gaussian_noise",
        "gaussian_blur",
        "contrast",
        "speckle",
    ),
    "D: A without lines": FAMILIES["image"],
}
OLD = ("clean", "fgsm", "gaussian_noise", "gaussian_blur", "contrast")


def main() -> None:
    (PAGES / "criterion.md").write_text(page())


def page() -> str:
    return render("criterion", {"data": {name: parts(name) for name in DEVELOPMENT}})


def parts(name: str) -> dict[str, Any]:
    """Return what the page says of one dataset."""
    rows = read(KEPT / f"{name}.jsonl")
    accurate = [row for row in rows if row["accuracy"] >= row["required_accuracy"]]
    falcon = [row for row in accurate if row["settings"]["method"] == "falcon"]
    calibrated = [row for row in accurate if row["clean_ece"] <= row["allowed_ece"]]
    return {
        "budget": BUDGETS[name],
        "networks": len(rows),
        "accurate": len(accurate),
        "falcon": len(falcon),
        "calibrated": len(calibrated),
        "candidates": candidate_table(accurate, falcon, calibrated),
        "families": family_table(accurate),
    }


def candidate_table(accurate: list[Row], falcon: list[Row], calibrated: list[Row]) -> str:
    """Return one row per candidate: how it ranks three groups, and what it would choose."""
    measures: dict[str, Callable[[Row], float]] = {"clean, FGSM, noise, blur, contrast": old}
    for name, families in SETS.items():
        measures[name] = partial(matched, families=families)
        measures[f"{name}; clean as a family"] = partial(
            matched, families=families, clean_family=True
        )
    return table(
        ("criterion", "accurate", "FALCON alone", "constraint met", "chosen micro / macro"),
        [
            (
                name,
                *(agreement(group, measure) for group in (accurate, falcon, calibrated)),
                chosen(calibrated or accurate, measure),
            )
            for name, measure in measures.items()
        ],
    )


def family_table(rows: list[Row]) -> str:
    """Return one row per family: how the mean ECE over its levels alone ranks the networks."""
    return table(
        ("family", "correlation with micro / macro ECE"),
        [(name, agreement(rows, partial(matched, families=[name]))) for name in CANDIDATES],
    )


def matched(row: Row, families: Sequence[str], clean_family: bool = False) -> float:
    """Return the mean over families of the mean ECE over matched levels, the clean one included."""
    means = [_mean([row["clean_ece"], *row["families"][f"matched {name}"]]) for name in families]
    return _mean([*means, row["clean_ece"]] if clean_family else means)


def old(row: Row) -> float:
    return _mean([_mean(row["families"][name]) for name in OLD])


def agreement(rows: list[Row], measure: Callable[[Row], float]) -> str:
    """Return the rank correlation with the mean micro and macro ECE of the nine shifts."""
    if len(rows) < 5:
        return "too few"
    values = [measure(row) for row in rows]
    found = (
        float(spearmanr(values, [row["test"][name] for row in rows]).statistic)
        for name in ("micro_ece", "macro_ece")
    )
    return " / ".join(f"{one:+.2f}" for one in found)


def chosen(rows: list[Row], measure: Callable[[Row], float]) -> str:
    best = min(rows, key=measure)["test"]
    return f"{best['micro_ece']:.3f} / {best['macro_ece']:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
