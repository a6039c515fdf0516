"""Anybody's predictions: every format, every mistake, and the page that is drawn of them."""

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy
import polars
import pytest
import scipy.stats
import torch

import falconcal
from falconcal.errors import UsageError, UserError, readable
from falconcal.evaluation.assessment import (
    CURVE_POINTS,
    MOST_CLASSWISE,
    MOST_GROUPS,
    assess,
)
from falconcal.inference.prediction_files import read_predictions
from falconcal.metrics import METRICS
from falconcal.metrics.predictions import Predictions
from falconcal.metrics.reliability_bins import wilson_bounds
from falconcal.report.charts import engine
from falconcal.report.pages import report_page as page_module
from falconcal.report.pages.score_page import write_score_page
from tests.helpers.command import run, run_here

SCRIPT = "<script>alert(1)</script>"
# confidences 0.8, 0.6, 0.7, 0.9; the second and the last are wrong
PROBABILITIES = [[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.1, 0.9]]
LABELS = [0, 1, 1, 0]
CSV = "label,p_0,p_1\n0,0.8,0.2\n1,0.6,0.4\n1,0.3,0.7\n0,0.1,0.9\n"


def write_csv(folder: Path, text: str | bytes) -> Path:
    file = folder / "some.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def write_parquet(folder: Path, **columns: object) -> Path:
    file = folder / "some.parquet"
    polars.DataFrame(columns).write_parquet(file)
    return file


def write_npz(folder: Path, **arrays: object) -> Path:
    file = folder / "some.npz"
    numpy.savez(file, **{name: numpy.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    return file


def columns(**more: object) -> dict[str, object]:
    """Return the four examples as columns, some of them exchanged."""
    first, second = zip(*PROBABILITIES, strict=True)
    return {"label": LABELS, "p_0": list(first), "p_1": list(second)} | more


WRITERS: dict[str, Callable[[Path], Path]] = {
    "csv": lambda folder: write_csv(folder, CSV),
    "parquet": lambda folder: write_parquet(folder, **columns()),
    "npz": lambda folder: write_npz(folder, labels=LABELS, probabilities=PROBABILITIES),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_gives_the_same_predictions(kind: str, tmp_path: Path) -> None:
    read = read_predictions(WRITERS[kind](tmp_path))
    assert read.predictions.labels.tolist() == LABELS
    probabilities = read.predictions.log_probs.exp()
    torch.testing.assert_close(probabilities, torch.tensor(PROBABILITIES, dtype=torch.float64))
    assert read.classes == ("0", "1")
    assert read.groups is None


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", WRITERS)
def test_figures_by_hand(kind: str, tmp_path: Path) -> None:
    found = assess(read_predictions(WRITERS[kind](tmp_path)).predictions)
    values = {name: measured.value for name, measured in found.metrics.items()}
    assert set(values) == set(METRICS)
    assert values["accuracy"] == 0.5
    # each example has a bin of its own: gaps 0.2, 0.6, 0.3 and 0.9
    assert values["ece"] == pytest.approx((0.2 + 0.6 + 0.3 + 0.9) / 4)
    assert values["mce"] == pytest.approx(0.9)
    assert values["confidence"] == pytest.approx(0.75)
    assert values["nll"] == pytest.approx(-numpy.log([0.8, 0.4, 0.7, 0.1]).mean())
    # 2 (1 - p)^2 with two classes
    assert values["brier"] == pytest.approx(2 * (0.2**2 + 0.6**2 + 0.3**2 + 0.9**2) / 4)
    # most confident first: wrong, right, right, wrong
    assert found.risk_coverage.risk.tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])
    assert found.accuracy_at_coverage == pytest.approx({0.9: 0.5, 0.8: 2 / 3, 0.5: 0.5})
    assert found.brier_parts is not None
    assert found.brier_parts.score == pytest.approx(values["brier"])
    assert found.histogram[:, [11, 13, 15, 17]].tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
    assert found.histogram.sum() == 4


def test_columns_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    order = [10, 2, 0, 1, 9, 3, 8, 4, 7, 5, 6]
    header = ",".join([f"class_{k}" for k in order] + ["other", "truth"])
    cells = ",".join(["1" if k == 7 else "0" for k in order] + ["x", "7"])
    file = write_csv(tmp_path, f"{header}\n{cells}\n")
    read = read_predictions(file, labels="truth", probabilities="class_")
    assert read.predictions.scores().prediction.tolist() == [7]
    assert read.classes == tuple(str(k) for k in range(11))


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_labels_are_matched_by_name(kind: str, tmp_path: Path) -> None:
    names, truth = ["dog", "cat"], ["cat", "dog", "dog", "cat"]
    first, second = zip(*PROBABILITIES, strict=True)
    table = polars.DataFrame({"label": truth, "p_dog": first, "p_cat": second})
    if kind == "csv":
        file = write_csv(tmp_path, table.write_csv())
    elif kind == "parquet":
        table = table.with_columns(polars.col("label").cast(polars.Categorical))
        table.write_parquet(file := tmp_path / "some.parquet")
    else:
        file = write_npz(tmp_path, labels=truth, probabilities=PROBABILITIES, classes=names)
    read = read_predictions(file)
    assert read.classes == ("dog", "cat")
    assert read.predictions.labels.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_logits_are_logits_only_when_said(kind: str, tmp_path: Path) -> None:
    logits = numpy.log(PROBABILITIES) + 3
    table = polars.DataFrame({"label": LABELS, "logit_0": logits[:, 0], "logit_1": logits[:, 1]})
    if kind == "csv":
        file = write_csv(tmp_path, table.write_csv())
    elif kind == "parquet":
        table.write_parquet(file := tmp_path / "some.parquet")
    else:
        file = write_npz(tmp_path, labels=LABELS, logits=logits)
    read = read_predictions(file, logits=True)
    wanted = torch.tensor(PROBABILITIES, dtype=torch.float64)
    torch.testing.assert_close(read.predictions.log_probs.exp(), wanted)
    with pytest.raises(UsageError, match=r"--logits|'logits'"):
        read_predictions(file)
    with pytest.raises(UserError, match=r"from 0 to 1, got .*--logits"):
        read_predictions(file, probabilities="logits" if kind == "npz" else "logit_")


def test_a_csv_may_have_spaces_quotes_a_mark_and_blank_ends(tmp_path: Path) -> None:
    text = '\ufeff"label", p_0 , p_1\r\n 0.0, 8e-1,.2\r\n1, 0.6 ,0.4\r\n\r\n\r\n'
    read = read_predictions(write_csv(tmp_path, text))
    assert read.predictions.labels.tolist() == [0, 1]


def test_groups_come_as_text(tmp_path: Path) -> None:
    file = write_parquet(tmp_path, **columns(site=[3, 3, 4, 4]))
    assert read_predictions(file, groups="site").groups == ("3", "3", "4", "4")


def test_minus_infinity_is_a_logit(tmp_path: Path) -> None:
    file = write_csv(tmp_path, "label,logit_0,logit_1\n1,-inf,2\n")
    assert read_predictions(file, logits=True).predictions.log_probs[0, 1] == 0


HEAD = "label,p_0,p_1\n"
CSV_MISTAKES: dict[str, tuple[str | bytes, str]] = {
    "a sum": (HEAD + "0,0.8,0.2\n0,0.8,0.1\n", r"line 3: .*sum to 1.* got 0.9 "),
    "a sum after a cell of two lines": (
        'note,label,p_0,p_1\n"a\nb",0,0.8,0.2\nc,0,0.8,0.1\n',
        r"line 4: .*sum to 1",
    ),
    "a sum after blank lines": ("\n\nlabel,p_0,p_1\n0,0.8,0.1\n", r"line 4: .*sum to 1"),
    "NaN": (HEAD + "0,0.8,0.2\n0,nan,0.1\n", r"line 3, column 'p_0': .*got NaN"),
    "an empty cell": (HEAD + "0,0.8,\n", r"line 2, column 'p_1': .*empty cell"),
    "too few cells": (HEAD + "0,0.8\n", r"line 2, column 'p_1': .*empty cell"),
    "a blank line": (HEAD + "\n0,0.8,0.2\n", r"line 2, column '.*': .*empty cell"),
    "an empty label": (HEAD + ",0.8,0.2\n", r"line 2, column 'label': .*empty cell"),
    "too many cells": (HEAD + "0,1,0\n0,1,0,0\n", r"line 3: expected 3 cells.* got 4"),
    "a negative one": (HEAD + "0,1.2,-0.2\n", r"line 2, column 'p_0': .*got 1.2"),
    "one below 0": (HEAD + "0,1,-0.0005\n", r"line 2, column 'p_1': .*got -0.0005"),
    "infinity": (HEAD + "0,inf,0\n", r"line 2, column 'p_0': .*got inf"),
    "mixed types": (HEAD + "0,1,0\n0,high,0\n", r"line 3, column 'p_0': .*got 'high'"),
    "a decimal comma": (HEAD + '0,"0,8",0.2\n', r"line 2, column 'p_0': .*got '0,8'.*point"),
    "a label too high": (HEAD + "2,0.8,0.2\n", r"line 2, column 'label': .*got '2'.*from 0"),
    "a fractional label": (HEAD + "0.5,0.8,0.2\n", r"line 2, column 'label': .*got '0.5'"),
    "no known class": (HEAD + "-1,0.8,0.2\n", r"line 2, column 'label': .*leave such rows out"),
    "a label of text": (HEAD + "0,1,0\ncat,1,0\n", r"line 3, column 'label': .*got 'cat'.*names"),
    "an unknown name": ("label,p_cat,p_dog\ncap,1,0\n", r"line 2, column 'label': .*mean 'cat'"),
    "a number for a name": ("label,p_cat,p_dog\n0,1,0\n", r"line 2, column 'label': .*Whole"),
    "nothing": ("", r"got an empty file"),
    "blank lines alone": ("\n\n", r"got an empty file"),
    "a header alone": (HEAD + "", r"a header and no rows"),
    "a header and blank lines": (HEAD + "\n\n", r"a header and no rows"),
    "other bytes": (HEAD.encode() + b"0,0.8,0.2\n0,\xff,0.1\n", r"line 3: .*UTF-8"),
    "other bytes in the header": (b"l\xffbel,p_0,p_1\n0,0.8,0.2\n", r"line 1: .*UTF-8"),
    "an open quote": (HEAD + '0,"0.8,0.2\n', r"quote"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CSV_MISTAKES)
def test_a_csv_mistake_is_named_by_line_and_column(mistake: str, tmp_path: Path) -> None:
    text, message = CSV_MISTAKES[mistake]
    with pytest.raises(UserError, match=rf"some\.csv.*{message}"):
        read_predictions(write_csv(tmp_path, text))


COLUMN_MISTAKES = {
    "no label": ("lable,p_0,p_1\n0,1,0\n", r"no column 'label'. Did you mean 'lable'"),
    "no classes": ("label,chance_0,chance_1\n0,1,0\n", r"begin with 'p_', got none.*'chance_0'"),
    "two labels": ("label,target,p_0,p_1\n0,0,1,0\n", r"'label' and 'target': .*--labels"),
    "no header": ("0.25,0.75\n0.5,0.5\n", r"no column 'label'"),
    "semicolons": ("label;p_0;p_1\n0;1;0\n", r"separated by semicolons"),
    "two alike": ("label,p_0,p_1,p_1\n0,1,0,0\n", r"line 1: .*'p_1' 2 times"),
    "from one on": ("label,p_1,p_2\n1,1,0\n", r"p_0 to p_1.* got p_1, p_2"),
    "a hole": ("label,p_0,p_2\n0,1,0\n", r"p_0 to p_1.* got p_0, p_2"),
    "the same number twice": ("label,p_0,p_00\n0,1,0\n", r"p_0 to p_1.* got p_0, p_00"),
    "numbers and names": ("label,p_0,p_1,p_value\n0,1,0,0.05\n", r"'p_0' and 'p_value'"),
}


@pytest.mark.parametrize("mistake", COLUMN_MISTAKES)
def test_columns_that_are_not_there_are_named(mistake: str, tmp_path: Path) -> None:
    text, message = COLUMN_MISTAKES[mistake]
    with pytest.raises(UsageError, match=message):
        read_predictions(write_csv(tmp_path, text))


def test_an_unknown_group_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column 'site'"):
        read_predictions(write_csv(tmp_path, CSV), groups="site")


def test_an_empty_group_is_named(tmp_path: Path) -> None:
    file = write_csv(tmp_path, "label,p_0,p_1,site\n0,1,0,a\n0,1,0,\n")
    with pytest.raises(UserError, match=r"line 3, column 'site': .*empty cell"):
        read_predictions(file, groups="site")


PARQUET_MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "null": ({"p_0": [0.8, None, 0.3, 0.1]}, r"row 1 \(from 0\), column 'p_0': .*empty cell"),
    "NaN": ({"p_1": [0.2, 0.4, 0.7, float("nan")]}, r"row 3 .*, column 'p_1': .*got NaN"),
    "a sum": ({"p_1": [0.2, 0.4, 0.6, 0.9]}, r"row 2 .*sum to 1"),
    "text": ({"p_0": ["0.8", "0.6", "?", "0.1"]}, r"row 2 .*, column 'p_0': .*got '\?'"),
    "truth values": ({"p_0": [True, False, True, True]}, r"column 'p_0': .*Boolean"),
    "lists": ({"p_0": [[0.8], [0.6], [0.3], [0.1]]}, r"column 'p_0': .*List"),
    "labels of truth values": ({"label": [True, False, True, True]}, r"column 'label': .*Boolean"),
    "a label too high": ({"label": [0, 1, 5, 0]}, r"row 2 .*, column 'label': .*got 5"),
    "a fractional label": ({"label": [0, 1, 0.5, 0]}, r"row 2 .*, column 'label': .*got 0.5"),
    "no rows": ({"label": [], "p_0": [], "p_1": []}, r"no rows"),
}


@pytest.mark.parametrize("mistake", PARQUET_MISTAKES)
def test_a_parquet_mistake_is_named_by_row_and_column(mistake: str, tmp_path: Path) -> None:
    changes, message = PARQUET_MISTAKES[mistake]
    file = tmp_path / "some.parquet"
    polars.DataFrame(columns(**changes), strict=False).write_parquet(file)
    with pytest.raises(UserError, match=rf"some\.parquet.*{message}"):
        read_predictions(file)


P = PROBABILITIES
NPZ_MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "no labels": ({"probabilities": P}, r"no array 'labels'.*'probabilities'"),
    "no probabilities": ({"labels": LABELS}, r"no array 'probabilities'"),
    "a shape": (
        {"labels": LABELS, "probabilities": [0.1, 0.9]},
        r"as many examples, got 2 in 'probabilities', 4 in 'labels'",
    ),
    "one class": ({"labels": LABELS, "probabilities": [[1.0]] * 4}, r"at least 2.*got 1 columns"),
    "labels of a shape": ({"labels": [0], "probabilities": P}, r"got 4 in .*, 1 in 'labels'"),
    "pickles": (
        {"labels": numpy.array([0, "a", 1, 1], object), "probabilities": P},
        r"'labels': .*pickled",
    ),
    "text": (
        {"labels": LABELS, "probabilities": [["a", "b"]] * 4},
        r"expected numbers, got dtype <U1",
    ),
    "complex": ({"labels": [1j] * 4, "probabilities": P}, r"'labels': .*complex128"),
    "nothing": ({"labels": [], "probabilities": numpy.zeros((0, 3))}, r"at least one example"),
    "a sum": ({"labels": LABELS, "probabilities": [*P[:3], [0.5, 0.6]]}, r"row 3 .*sum to 1"),
    "NaN": (
        {"labels": LABELS, "probabilities": [[numpy.nan, 1.0], *P[1:]]},
        r"row 0 .*'probabilities\[:, 0\]'.*NaN",
    ),
    "a label": ({"labels": [0, 1, 1, 7], "probabilities": P}, r"row 3 .*'labels': .*got 7"),
    "classes": ({"labels": LABELS, "probabilities": P, "classes": ["a", "a"]}, r"different names"),
    "broken text": (
        {"labels": ["\ud800"] * 4, "probabilities": P, "classes": ["a", "b"]},
        r"UTF-8",
    ),
}


@pytest.mark.parametrize("mistake", NPZ_MISTAKES)
def test_an_npz_mistake_is_named(mistake: str, tmp_path: Path) -> None:
    arrays, message = NPZ_MISTAKES[mistake]
    with pytest.raises(UserError, match=rf"some\.npz.*{message}"):
        read_predictions(write_npz(tmp_path, **arrays))


def test_infinite_logits_are_named(tmp_path: Path) -> None:
    file = write_npz(tmp_path, labels=[0, 1], logits=[[0.0, 1.0], [0.0, numpy.inf]])
    with pytest.raises(UserError, match=r"row 1 .*'logits\[:, 1\]': .*finite logit, got inf"):
        read_predictions(file, logits=True)
    file = write_npz(tmp_path, labels=[0], logits=[[-numpy.inf, -numpy.inf]])
    with pytest.raises(UserError, match=r"row 0 .*at least one class"):
        read_predictions(file, logits=True)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
@pytest.mark.parametrize("cut", ["nothing", "other", "half", "middle"])
def test_a_damaged_file_is_named(kind: str, cut: str, tmp_path: Path) -> None:
    file = WRITERS[kind](tmp_path)
    whole = file.read_bytes()
    damage = {"nothing": b"", "other": b"not a table at all", "half": whole[: len(whole) // 2]}
    damage["middle"] = whole[:150] + bytes(20) + whole[170:]
    file.write_bytes(damage[cut])
    with pytest.raises(UserError, match=rf"some\.{kind}"):
        read_predictions(file)


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "some.npz", "w") as archive:
        archive.writestr("labels", "words")
        archive.writestr("probabilities", "words")
    with pytest.raises(UserError, match="to be an array"):
        read_predictions(tmp_path / "some.npz")


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_predictions(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="got the folder"):
        read_predictions(tmp_path)
    (tmp_path / "some.xlsx").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"ends in \.csv, \.parquet, \.npz"):
        read_predictions(tmp_path / "some.xlsx")


def predictions(examples: int, classes: int = 3) -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(examples, classes, generator=generator)
    labels = torch.randint(classes, (examples,), generator=generator)
    return Predictions.from_logits(logits, labels)


@pytest.fixture(scope="module")
def found() -> falconcal.evaluation.Assessment:
    sites = [SCRIPT if number % 2 else "left" for number in range(120)]
    return assess(predictions(120), groups=sites, metric="nll")


@pytest.mark.end_to_end
def test_intervals_are_those_of_the_library(found: falconcal.evaluation.Assessment) -> None:
    for name in METRICS:
        measured, wanted = found.metrics[name], falconcal.interval(predictions(120), name)
        assert (measured.value, measured.low, measured.high) == (
            wanted.value,
            wanted.low,
            wanted.high,
        )


@pytest.mark.end_to_end
def test_groups_are_those_of_the_library(found: falconcal.evaluation.Assessment) -> None:
    sites = [SCRIPT if number % 2 else "left" for number in range(120)]
    assert found.groups == falconcal.evidence.by_group(predictions(120), sites, "nll")
    assert found.groups[0].interval.value > found.groups[1].interval.value
    assert [group.examples for group in found.groups] == [60, 60]


@pytest.mark.end_to_end
def test_bins_change_binned_errors_and_take_their_interval() -> None:
    data = predictions(100)
    found = assess(data, bins=3)
    assert found.metrics["ece"].value == falconcal.expected_calibration_error(data, 3)
    assert found.metrics["mce"].value == falconcal.metrics.maximum_calibration_error(data, 3)
    adaptive = falconcal.metrics.adaptive_calibration_error(data, 3)
    assert found.metrics["adaptive_ece"].value == adaptive
    classwise = falconcal.metrics.classwise_calibration_error(data, 3)
    assert found.metrics["classwise_ece"].value == classwise
    assert found.metrics["ece"].low is None
    assert found.metrics["accuracy"].low is not None
    assert len(found.reliability.counts) == 3


@pytest.mark.end_to_end
def test_many_examples_leave_slow_intervals_out() -> None:
    data = predictions(MOST_CLASSWISE // 10 + 1, classes=10)
    found = assess(data)
    assert found.metrics["classwise_ece"].low is None
    assert found.metrics["classwise_ece"].value == falconcal.metrics.classwise_calibration_error(
        data
    )
    assert found.metrics["ece"].low is not None
    assert len(found.risk_coverage.risk) == CURVE_POINTS
    assert found.risk_coverage.coverage[-1] == 1
    whole = falconcal.metrics.risk_coverage_curve(data)
    assert found.risk_coverage.risk[-1] == whole.risk[-1]
    assert found.risk_coverage.risk[0] == whole.risk[0]


@pytest.mark.end_to_end
def test_what_cannot_be_assessed_is_said() -> None:
    data = predictions(300)
    with pytest.raises(UsageError, match="bins, got 0"):
        assess(data, bins=0)
    with pytest.raises(UsageError, match="Did you mean 'ece'"):
        assess(data, metric="ecee")
    with pytest.raises(UserError, match=rf"at most {MOST_GROUPS} groups, got 300"):
        assess(data, groups=range(300))
    with pytest.raises(UserError, match="one group per example"):
        assess(data, groups=["a"])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_wilson_bounds_against_scipy(level: float) -> None:
    for hits, count in [(0, 1), (1, 1), (0, 7), (3, 7), (50, 60), (999, 1000)]:
        low, high = wilson_bounds(
            torch.tensor(float(hits)), torch.tensor(float(count)).double(), level
        )
        wanted = scipy.stats.binomtest(hits, count).proportion_ci(level, method="wilson")
        assert float(low) == pytest.approx(wanted.low, abs=1e-12)
        assert float(high) == pytest.approx(wanted.high, abs=1e-12)


@pytest.mark.end_to_end
def test_the_page_escapes_and_loads_nothing(
    found: falconcal.evaluation.Assessment, tmp_path: Path
) -> None:
    page = write_score_page(found, tmp_path, title=SCRIPT, classes=[SCRIPT, "b", "c"])
    text = page.read_text()
    assert SCRIPT not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4  # title twice, class, group
    elements = re.sub(r"(?s)(<script[^>]*>).*?</script>", r"\1</script>", text)
    assert not re.search(r"""(?i)(?:src|href|action)\s*=""", elements)
    assert "http:" not in elements
    assert "https:" not in elements
    assert "default-src 'none'" in elements
    for file in (tmp_path / "figures").iterdir():
        assert SCRIPT not in file.read_text()


@pytest.mark.end_to_end
def test_the_page_has_all_figures_and_few_numbers(
    found: falconcal.evaluation.Assessment, tmp_path: Path
) -> None:
    text = write_score_page(found, tmp_path, title="some.csv").read_text()
    names = ["reliability", "confidence-histogram", "risk-coverage", "groups"]
    assert sorted(file.stem for file in (tmp_path / "figures").iterdir()) == sorted(names)
    specifications = re.findall(
        r'(?s)<script type="application/json" data-chart="([^"]*)">(.*?)</script>', text
    )
    assert [name for name, _ in specifications] == names
    for _, specification in specifications:
        (values,) = json.loads(specification)["datasets"].values()
        assert 0 < len(values) <= CURVE_POINTS
    for name in found.metrics:
        assert f'<th scope="row">{name}</th>' in text


@pytest.mark.end_to_end
def test_the_json_holds_the_figures(found: falconcal.evaluation.Assessment, tmp_path: Path) -> None:
    write_score_page(found, tmp_path, title="some.csv")
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["examples"] == 120
    assert content["metrics"]["ece"]["value"] == found.metrics["ece"].value
    assert content["metrics"]["ece"]["high"] == found.metrics["ece"].high
    assert content["group_metric"] == "nll"
    assert content["groups"][0]["group"] == found.groups[0].name
    assert set(content["accuracy_at_coverage"]) == {"0.9", "0.8", "0.5"}


@pytest.fixture
def dying_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the chart engine die as it does where addresses are short."""
    script = tmp_path / "engine.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(engine, "PROCESS", script)


@pytest.mark.end_to_end
@pytest.mark.usefixtures("dying_engine")
def test_a_chart_engine_that_dies_takes_no_numbers_along(
    found: falconcal.evaluation.Assessment, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"SIGKILL.*ulimit -v.*metrics\.json.*score\.html"):
        write_score_page(found, out, title="some.csv")
    assert {file.name for file in out.iterdir()} == {"metrics.json"}


@pytest.mark.end_to_end
def test_a_failed_drawing_leaves_the_older_page_and_its_figures(
    found: falconcal.evaluation.Assessment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_score_page(found, tmp_path, title="some.csv")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    def fail() -> None:
        raise engine.DrawingError("no scripts.")

    monkeypatch.setattr(page_module, "_bundle", fail)
    with pytest.raises(UserError, match="of before"):
        write_score_page(found, tmp_path, title="other.csv")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is of Linux")
def test_under_a_limit_of_addresses_the_command_prints_and_writes_the_numbers(
    tmp_path: Path,
) -> None:
    write_csv(tmp_path, CSV)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (12 * 10**9,) * 2)"
    answer = subprocess.run(
        [sys.executable, "-c", f"{limit}; from falconcal.cli import main; main()",
         "score", "some.csv", "--out", "out"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert answer.returncode == 1, answer.stderr
    assert re.search(r"accuracy +0\.5000", answer.stdout)
    assert "figures could not be drawn" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1  # nothing of the engine's own
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["metrics.json"]


@pytest.mark.end_to_end
def test_a_folder_that_cannot_be_written_is_named(found: falconcal.evaluation.Assessment) -> None:
    with pytest.raises(UserError, match=r"output folder /proc/nowhere: .*--out"):
        write_score_page(found, "/proc/nowhere", title="some.csv")


@pytest.mark.end_to_end
def test_perfect_answers_can_be_drawn(tmp_path: Path) -> None:
    data = Predictions.from_probabilities([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = write_score_page(assess(data, bins=1), tmp_path, title="all right")
    assert "in 1 bin." in page.read_text()


def test_names_are_readable_anywhere() -> None:
    assert readable("größer \x1b[31m\n\udcff") == "größer \\x1b[31m\\n\\udcff"


@pytest.mark.end_to_end
def test_the_command_from_file_to_page(tmp_path: Path) -> None:
    write_csv(
        tmp_path,
        CSV.replace("label,", "truth,site,")
        .replace("\n0,", "\n0,[red]a,")
        .replace("\n1,", "\n1,b,"),
    )
    words = ["score", "some.csv", "--labels", "truth", "--groups", "site", "--metric", "brier"]
    answer = run(*words, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"accuracy +0\.5000 +0\.", answer.stdout)
    assert re.search(r"ece +0\.5000", answer.stdout)
    assert re.search(r"accuracy at coverage 0\.8 +0\.6667 +-", answer.stdout)
    assert re.search(r"\[red\]a +2 +0\.8500", answer.stdout)  # the worst: 2 (0.2^2 + 0.9^2) / 2
    assert "Page: runs/score/some/score.html" in answer.stdout
    out = tmp_path / "runs" / "score" / "some"
    assert {file.name for file in out.iterdir()} == {"score.html", "metrics.json", "figures"}


def test_the_command_is_in_the_help() -> None:
    assert "score" in run_here("--help").stdout
    assert "falconcal score predictions.csv" in run_here("score", "--help").stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["none.csv"], 2, "no such file"),
        (["."], 2, "got the folder"),
        (["bad.csv"], 2, "bad.csv, line 3: expected probabilities that sum to 1"),
        (["some.csv", "--labels", "lable"], 2, "Did you mean 'label'?"),
        (["some.csv", "--bins", "0"], 2, "bins, got 0"),
        (["some.csv", "--metric", "eec"], 2, "Did you mean 'ece'"),
        (["some.csv", "--logits"], 2, "begin with 'logit_'"),
        (["some.csv", "--out", "some.csv"], 1, "cannot write to the output folder"),
    ],
)
def test_mistakes_get_a_message_a_code_and_no_traceback(
    words: list[str], code: int, message: str, tmp_path: Path
) -> None:
    write_csv(tmp_path, CSV)
    (tmp_path / "bad.csv").write_text("label,p_0,p_1\n0,0.8,0.2\n0,0.8,0.1\n")
    answer = run_here("score", *words, folder=tmp_path)
    assert answer.returncode == code, answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"some.csv", "bad.csv"}
