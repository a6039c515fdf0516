"""Sixty files that cannot be scored: exit code 2, one line, nothing written."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy
import polars
import pytest
from numpy.lib import format as npy

from falconcal.inference.prediction_files.own_files import RUN_COLUMNS
from tests.helpers.bad_inputs.trying import Case, ask, snapshot

HEAD = "label,p_0,p_1\n"
GOOD = HEAD + "0,0.8,0.2\n1,0.4,0.6\n"
TOP = "label,prediction,confidence\n"


def table(**columns: object) -> bytes:
    buffer = io.BytesIO()
    polars.DataFrame(columns, strict=False).write_parquet(buffer)
    return buffer.getvalue()


def arrays(**named: object) -> bytes:
    buffer = io.BytesIO()
    numpy.savez(buffer, **{name: numpy.asarray(array) for name, array in named.items()})  # type: ignore[arg-type]
    return buffer.getvalue()


def split(columns: list[str], *rows: list[object]) -> bytes:
    return json.dumps({"columns": columns, "data": rows}).encode()


def declaring(shape: tuple[int, ...]) -> bytes:
    """Return an NPY file that declares far more than it has."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + bytes(64)


def archive_declaring(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("probabilities.npy", declaring(shape))
        archive.writestr("labels.npy", declaring((2,)))
    return buffer.getvalue()


TWO_GIGABYTES = (2**27, 2)  # of eight bytes each
# the file, words of the message, and further words of the command line
FILES: dict[str, tuple[str, bytes | str, str, tuple[str, ...]]] = {
    "a sum of 0.9": ("p.csv", HEAD + "0,0.8,0.1\n", "sum to 1", ()),
    "a sum of 1.3": ("p.csv", HEAD + "0,0.8,0.5\n", "sum to 1", ()),
    "a sum of 0": ("p.csv", HEAD + "0,0,0\n", "sum to 1", ()),
    "a sum beyond rounding": (
        "p.csv",
        HEAD + "0,0.5,0.3\n",
        "more than rounding",
        ("--normalise",),
    ),
    "rounded rows": ("p.csv", HEAD + "0,0.8,0.19\n", "--normalise", ()),
    "NaN": ("p.csv", HEAD + "0,nan,0.1\n", "got NaN", ()),
    "NaN in a top prediction": ("p.csv", TOP + "0,0,nan\n", "got NaN", ()),
    "NaN in one probability": ("p.csv", "label,probability\n1,NaN\n", "got NaN", ()),
    "infinity": ("p.csv", HEAD + "0,inf,0\n", "got inf", ()),
    "negative": ("p.csv", HEAD + "0,-0.2,1.2\n", "got -0.2", ()),
    "negative alone": ("p.csv", "y_true,y_prob\n1,-0.5\n", "got -0.5", ()),
    "above 1 alone": ("p.csv", "y_true,y_prob\n1,1.5\n", "got 1.5", ()),
    "percent": ("p.csv", "y_true,y_prob\n1,85\n", "from 0 to 1, got 85", ()),
    "a percent sign": ("p.csv", "y_true,y_prob\n1,85%\n", "expected a number", ()),
    "a confidence above 1": ("p.csv", TOP + "0,0,3\n", "got 3", ()),
    "logits unsaid": ("p.csv", HEAD + "0,2.5,-1\n", "--logits", ()),
    "an infinite logit": (
        "p.csv",
        "label,logit_0,logit_1\n0,inf,0\n",
        "finite logit",
        ("--logits",),
    ),
    "no finite logit": (
        "p.csv",
        "label,logit_0,logit_1\n0,-inf,-inf\n",
        "at least one",
        ("--logits",),
    ),
    "an unknown number": ("p.csv", HEAD + "2,0.8,0.2\n", "from 0 to 1, got '2'", ()),
    "an unknown name": ("p.csv", "label,p_cat,p_dog\ncow,1,0\n", "got 'cow'", ()),
    "three labels of two classes": (
        "p.csv",
        "label,probability\n0,.1\n1,.2\n2,.3\n",
        "--positive",
        (),
    ),
    "names without the positive": ("p.csv", "label,probability\nyes,.1\nno,.2\n", "--positive", ()),
    "a label of -1": ("p.csv", HEAD + "-1,0.8,0.2\n", "no known class", ()),
    "a fractional label": ("p.csv", HEAD + "0.5,0.8,0.2\n", "got '0.5'", ()),
    "an empty label": ("p.csv", HEAD + ",0.8,0.2\n", "empty cell", ()),
    "an empty label at the end": ("p.csv", GOOD + ",0.5,0.5\n", "line 4, column 'label'", ()),
    "an empty prediction": ("p.csv", TOP + "0,,0.5\n", "empty cell", ()),
    "doubled columns": ("p.csv", "label,p_0,p_1,p_1\n0,1,0,0\n", "'p_1' 2 times", ()),
    "doubled labels": ("p.csv", "label,label,p_0,p_1\n0,0,1,0\n", "'label' 2 times", ()),
    "two columns of labels": ("p.csv", "label,y_true,p_0,p_1\n0,0,1,0\n", "--labels", ()),
    "two forms": ("p.csv", TOP.strip() + ",p_0,p_1\n0,0,.8,.8,.2\n", "fits 2 forms", ()),
    "a missing class": ("p.csv", "label,p_0,p_2\n0,1,0\n", "p_0 to p_1", ()),
    "no labels": ("p.csv", "p_0,p_1\n1,0\n", "no column 'label'", ()),
    "no probabilities": ("p.csv", "label,age\n1,40\n", "--probabilities", ()),
    "no names": ("p.csv", "0.25,0.75\n0.5,0.5\n", "no column 'label'", ()),
    "empty": ("p.csv", "", "empty file", ()),
    "empty Parquet": ("p.parquet", "", "p.parquet", ()),
    "empty NPZ": ("p.npz", "", "empty file", ()),
    "empty JSON": ("p.json", "", "cannot be read as JSON", ()),
    "a header alone": ("p.csv", HEAD, "no rows", ()),
    "a cut-off row": ("p.csv", HEAD + "0,0.8,0.2\n1,0.4", "line 3, column 'p_1'", ()),
    "a cut-off quote": ("p.csv", HEAD + '0,"0.8,0.2\n', "quote", ()),
    "cut-off Parquet": ("p.parquet", table(label=[0], p_0=[1.0], p_1=[0.0])[:-9], "p.parquet", ()),
    "cut-off NPZ": ("p.npz", arrays(labels=[0], probabilities=[[1.0, 0.0]])[:-9], "p.npz", ()),
    "cut-off JSON": ("p.json", split(["label", "p_0"], [0, 1])[:-3], "complete", ()),
    "cut-off NPY": ("p.npy", declaring((2, 2))[:-40], "bytes", ("--truth", "good.csv")),
    "UTF-16": ("p.csv", GOOD.encode("utf-16"), "UTF-8", ()),
    "Latin-1": ("p.csv", "label,p_größer,p_kleiner\ngrößer,1,0\n".encode("latin-1"), "UTF-8", ()),
    "zeros": ("p.csv", bytes(200), "no column 'label'", ()),
    "semicolons": ("p.csv", GOOD.replace(",", ";"), "separated by semicolons", ()),
    "decimal commas": ("p.csv", HEAD + '0,"0,8","0,2"\n', "decimal point", ()),
    "2 GB in NPY": ("p.npy", declaring(TWO_GIGABYTES), "2,147,483,648", ("--truth", "good.csv")),
    "2 GB in NPZ": ("p.npz", archive_declaring(TWO_GIGABYTES), "2,147,483,648", ()),
    "pickled": (
        "p.npz",
        arrays(labels=numpy.array([0, "a"], object), probabilities=[[1.0, 0.0]] * 2),
        "pickled",
        (),
    ),
    "arrays of three axes": (
        "p.npz",
        arrays(labels=[0], probabilities=[[[1.0, 0.0]]]),
        "got shape",
        (),
    ),
    "arrays of other lengths": (
        "p.npz",
        arrays(labels=[0], probabilities=[[1.0, 0.0]] * 2),
        "as many examples",
        (),
    ),
    "too few names of classes": (
        "p.npz",
        arrays(labels=[0], probabilities=[[1.0, 0.0]], classes=["a"]),
        "expected 2 names",
        (),
    ),
    "JSON of another layout": ("p.json", "[1, 2]", "orient='split'", ()),
    "JSON of uneven rows": ("p.json", split(["label", "p_0"], [0, 1, 2]), "as many cells", ()),
    "JSON nested deeply": ("p.json", "[" * 5000, "cannot be read as JSON", ()),
    "null in Parquet": (
        "p.parquet",
        table(label=[0, 1], p_0=[1.0, None], p_1=[0.0, 1.0]),
        "empty cell",
        (),
    ),
    "lists in Parquet": (
        "p.parquet",
        table(label=[0], p_0=[[1.0]], p_1=[0.0]),
        "expected numbers",
        (),
    ),
    "a run's scores of another type": (
        "p.parquet",
        table(**{name: ["x"] for name in RUN_COLUMNS}),
        "the scores of a run",
        (),
    ),
    "predictions without truth": (
        "p.csv",
        "row,label,confidence,entropy\n0,1,0.5,0.1\n",
        "--truth",
        (),
    ),
    "truth of another length": (
        "p.csv",
        "p_0,p_1\n1,0\n",
        "1 predictions",
        ("--truth", "good.csv"),
    ),
    "another extension": ("p.xlsx", "x", "ends in", ()),
    "other labels in a second file": (
        "p.csv",
        HEAD + "1,0.8,0.2\n1,0.4,0.6\n",
        "other labels",
        ("good.csv",),
    ),
}


def test_there_are_at_least_sixty() -> None:
    assert len(FILES) >= 60


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_answered_in_one_line(name: str, tmp_path: Path) -> None:
    file, content, words, more = FILES[name]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "good.csv").write_text(GOOD)
    before = snapshot(tmp_path)
    answer = ask(Case("", name, 2, words, ("score", file, *more)), tmp_path)
    assert answer.code == 2, answer.message
    assert words in answer.message
    assert answer.message.startswith("Error: ")
    assert answer.message.count("Error: ") == 1
    assert snapshot(tmp_path) == before


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.end_to_end
def test_bad_standard_input_is_called_that(
    standard_input: Callable[[bytes], None], tmp_path: Path
) -> None:
    standard_input((HEAD + "0,0.8,0.1\n").encode())
    answer = ask(Case("", "", 2, "", ("score", "-")), tmp_path)
    assert answer.code == 2
    assert "Error: standard input, line 2: expected probabilities" in answer.message
    assert not list(tmp_path.iterdir())
