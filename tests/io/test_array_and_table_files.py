"""Files of anybody's: arrays and tables that are damaged, forged or plainly wrong are named."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest

from falconcal.data import load_dataset
from falconcal.errors import UserError
from falconcal.inference.inputs import open_inputs
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.inference.prediction_files import read_predictions
from falconcal.io import array_files, table_files
from tests.helpers.official_layouts import cyclic

FACTS = ModelMetadata(architecture="mlp", classes=("a", "b"), shape=(4,))
INPUTS = numpy.arange(80, dtype=float).reshape(20, 4)
LABELS = cyclic(20, 2).astype(int)


def load(path: Path) -> object:
    return load_dataset(path.suffix[1:], path=str(path))


def score(path: Path) -> object:
    return read_predictions(path)


def predict(path: Path) -> object:
    return list(open_inputs(path, FACTS).batches)


READERS: dict[str, Callable[[Path], object]] = {"load": load, "score": score, "predict": predict}


def header_of(shape: str, dtype: str = "<f8") -> bytes:
    """Return the head of an array that declares anything."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()


def forged(path: Path, head: bytes, data: bytes = bytes(64)) -> Path:
    """Write an NPZ file all of whose arrays are the given bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("inputs", "train_inputs", "train_labels", "labels", "probabilities"):
            archive.writestr(f"{name}.npy", head + data)
    return path


def whole(path: Path, pack: Callable[..., None] = numpy.savez) -> Path:
    """Write an NPZ file that every reader finds what it looks for in."""
    pack(
        path, inputs=INPUTS, train_inputs=INPUTS, train_labels=LABELS, labels=LABELS,
        probabilities=numpy.full((20, 2), 0.5),
    )  # fmt: skip
    return path


def cut_off(path: Path) -> Path:
    data = whole(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def bad_checksum(path: Path) -> Path:
    """Change one byte in the numbers of every array."""
    data = bytearray(whole(path).read_bytes())
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            data[member.header_offset + member.file_size] ^= 0xFF
    path.write_bytes(data)
    return path


def bomb(path: Path) -> Path:
    """Write little that claims, by the archive's own head, to unpack to much."""
    data = forged(path, header_of("(1000000000000,)")).read_bytes()
    size = len(header_of("(1000000000000,)")) + 64
    path.write_bytes(data.replace(struct.pack("<I", size) * 2, struct.pack("<II", size, 2**32 - 2)))
    return path


DAMAGED: dict[str, Callable[[Path], Path]] = {
    "cut off": cut_off,
    "empty": empty,
    "bad checksum": bad_checksum,
    "other bytes": lambda path: forged(path, b"words"),
    "a huge shape": lambda path: forged(path, header_of("(1000000000000, 4)")),
    "a huge shape of text": lambda path: forged(path, header_of("(4,)", "<U400000000")),
    "text of no width": lambda path: forged(path, header_of("(1000000000000,)", "<U0"), b""),
    "a shape below 0": lambda path: forged(path, header_of("(-4, -4)")),
    "5,000 digits": lambda path: forged(path, header_of(f"({'9' * 5000},)")),
    "a nested shape": lambda path: forged(path, header_of("-" * 9000 + "1")),
    "an unknown dtype": lambda path: forged(path, header_of("(4,)", "what")),
    "objects": lambda path: forged(path, header_of("(2,)", "|O")),
    "a bomb": bomb,
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_npz_is_named_by_every_reader(damage: str, reader: str, tmp_path: Path) -> None:
    file = DAMAGED[damage](tmp_path / "some.npz")
    with pytest.raises(UserError, match=r"some\.npz") as caught:
        READERS[reader](file)
    assert "allow_pickle" not in str(caught.value)
    if damage == "objects":
        assert "never loaded" in str(caught.value)


@pytest.mark.parametrize("pack", [numpy.savez, numpy.savez_compressed])
def test_every_reader_takes_the_whole_file(pack: Callable[..., None], tmp_path: Path) -> None:
    file = whole(tmp_path / "some.npz", pack)
    for read in READERS.values():
        read(file)
    assert numpy.array_equal(array_files.read_array(file, "inputs"), INPUTS)


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(24).reshape(2, 3, 4),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.arange(4, dtype=">i4"),
        numpy.array(["a", "bc"]),
        numpy.array(1.5),
        numpy.zeros((0, 3)),
        numpy.array([True, False]),
    ],
    ids=str,
)
def test_arrays_come_as_numpy_saved_them(array: numpy.ndarray, tmp_path: Path) -> None:
    numpy.savez(tmp_path / "some.npz", array)
    numpy.save(tmp_path / "some.npy", array)
    for found in (
        array_files.read_array(tmp_path / "some.npz", "arr_0"),
        array_files.mapped_array(tmp_path / "some.npy"),
        array_files.read_stream(io.BytesIO((tmp_path / "some.npy").read_bytes()), tmp_path / "x"),
    ):
        assert found.shape == array.shape
        assert numpy.array_equal(found, array)


def test_more_than_the_machine_has_is_refused_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falconcal.io.regular_files.memory_of_machine", lambda: 100)
    with pytest.raises(UserError, match="declares 640 bytes, this machine has 100 bytes"):
        load(whole(tmp_path / "some.npz"))


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "some.npz", "w") as archive:
        archive.writestr("inputs.npy", "x")
        archive.writestr("inputs", "x")
    with pytest.raises(UserError, match="'inputs' twice"):
        array_files.array_names(tmp_path / "some.npz")


@pytest.mark.parametrize("name", ["some.npz", "some.npy", "some.csv"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="pipe"):
        predict(tmp_path / name)


OWN_NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "empty arrays": (
        {"train_inputs": INPUTS[:0], "train_labels": LABELS[:0]}, r"at least one example.*\(0, 4\)"
    ),
    "no features": ({"train_inputs": INPUTS[:, :0]}, r"one number, got shape \(20, 0\)"),
    "scalars": ({"train_inputs": 1.5, "train_labels": 1}, r"shape \(N, \.\.\.\), got shape \(\)"),
    "a list of numbers": ({"train_inputs": INPUTS[:, 0]}, r"reshape\(-1, 1\)"),
    "a label of 10**12": ({"train_labels": LABELS * 10**12}, "a highest label of 1000000000000"),
    "an unsigned label": (
        {"train_labels": LABELS.astype("uint64") * numpy.uint64(2**64 - 1)}, "18446744073709551615"
    ),
    "one class": ({"train_labels": LABELS * 0}, "at least 2"),
    "labels of -1": ({"train_labels": LABELS - 1}, r"train_labels from 0 on, got -1 in row 0"),
    "tested labels of -1": (
        {"test_inputs": INPUTS, "test_labels": LABELS - 1}, "test_labels from 0 on"
    ),
    "fractional labels": ({"train_labels": LABELS / 2}, "train_labels whole numbers"),
    "another width": (
        {"test_inputs": INPUTS[:, :3], "test_labels": LABELS},
        r"test_inputs like train_inputs, float64 \(N, 4\), got float64 \(N, 3\)",
    ),
    "another kind": (
        {"test_inputs": INPUTS.astype("uint8"), "test_labels": LABELS}, r"got uint8 \(N, 4\)"
    ),
    "doubled names": ({"classes": ["a", "a"]}, "2 different names, got 'a' 2 times"),
    "too few names": (
        {"train_labels": cyclic(20, 4), "classes": ["a", "b"]}, "from 0 to 1.*has 2 names, got 3"
    ),
    "one name": ({"classes": "a"}, r"at least 2 names.*shape \(\)"),
    "names of numbers": ({"classes": [0.5, 1.5]}, "at least 2 names, text"),
    "a token of 10**12": ({"train_inputs": INPUTS.astype(int) * 10**12}, "tokens, whole numbers"),
    "a token below 0": ({"train_inputs": -INPUTS.astype(int)}, "tokens, whole numbers"),
    "too large a number": ({"train_inputs": INPUTS * 1e300}, "finite inputs"),
    "dates": ({"train_inputs": INPUTS.astype("datetime64[s]")}, "to be numbers"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OWN_NPZ)
def test_a_mistake_in_own_arrays_is_named(mistake: str, tmp_path: Path) -> None:
    changes, message = OWN_NPZ[mistake]
    given = {"train_inputs": INPUTS, "train_labels": LABELS, **changes}
    numpy.savez(tmp_path / "some.npz", **given)
    with pytest.raises(UserError, match=rf"some\.npz.*{message}"):
        load(tmp_path / "some.npz")


def test_arrays_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    numpy.savez(
        tmp_path / "some.npz", train_inputs=INPUTS, train_labels=LABELS, note=numpy.array([{}])
    )
    load(tmp_path / "some.npz")


LONG = "x" * 131_073
ROWS = "".join(f"{number},{-number},{'ab'[number % 2]}\n" for number in range(20))
OWN_CSV: dict[str, tuple[str | bytes, str]] = {
    "doubled headers": ("x,x,label\n" + ROWS, "line 1: .*'x' 2 times"),
    "an empty label": ("x,y,label\n" + ROWS + "1,2,\n", "line 22, column 'label': .*empty cell"),
    "no label at all": ("x,y,label\n" + ROWS + "1,2\n", "line 22, column 'label': .*empty cell"),
    "no features": ("label\n" + "a\nb\n" * 9, "columns of numbers besides 'label', got none"),
    "no rows": ("x,y,label\n", "at least one example"),
    "nothing": ("", "empty file"),
    "one class": ("x,y,label\n1,2,a\n1,2,a\n", "at least 2 classes, got only 'a'"),
    "fractional labels": ("x,label\n" + "1,0\n2,1\n" * 9 + "1,0.5\n", "line 20.*got '0.5'"),
    "labels of -1": ("x,label\n" + "1,0\n2,1\n" * 9 + "1,-1\n", "line 20.*got '-1'.*no known"),
    "a label that is NaN": ("x,label\n" + "1,0\n2,1\n" * 9 + "1,nan\n", "line 20.*got 'nan'"),
    "a label of 5,000 digits": (
        "x,label\n" + "1,0\n2,1\n" * 9 + f"1,{'9' * 5000}\n", r"line 20.*5,000 characters"
    ),
    "a number of 5,000 digits": (
        "x,label\n" + "1,a\n2,b\n" * 9 + f"{'9' * 5000},a\n", "finite inputs"
    ),
    "a long cell": ("x,label\n" + "1,a\n2,b\n" * 9 + f"{LONG},a\n", "column 'x': .*131,073"),
    "a long name": (f"{LONG},label\n1,a\n", "line 1: expected cells of at most 131,072"),
    "an empty number": ("x,label\n1,a\n,b\n", "line 3, column 'x': .*empty cell"),
    "another encoding": ("x,label\n1,a\n2,b\n".encode("utf-16"), "line 1: .*UTF-8"),
    "other bytes": (b"x,label\n1,a\n2,\xff\n", "line 3: .*UTF-8"),
    "cut off in a quote": ('x,label\n1,a\n2,"b', "quote"),
    "too many cells": ("x,label\n1,a\n1,2,b\n", "line 3: expected 2 cells"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OWN_CSV)
def test_a_mistake_in_an_own_table_is_named(mistake: str, tmp_path: Path) -> None:
    text, message = OWN_CSV[mistake]
    file = tmp_path / "some.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=rf"some\.csv.*{message}"):
        load(file)


def test_numbers_of_classes_keep_their_order_and_names_their_digits(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text("x,label\n" + "".join(f"1,{label}\n" for label in (10, "2.0", 2, 10) * 9))
    assert load_dataset("csv", path=str(file)).classes == ("2", "10")
    file.write_text("x,label\n" + "".join(f"1,{label}\n" for label in ("007", "1") * 9))
    assert load_dataset("csv", path=str(file)).classes == ("1", "007")


@pytest.mark.parametrize("place", ["in the header", "in a row"])
def test_a_long_cell_is_named_where_rows_are_predicted(place: str, tmp_path: Path) -> None:
    header, row = (
        ("a,b,c," + LONG, "1,2,3,4") if "header" in place else ("a,b,c,d", f"1,{LONG},3,4")
    )
    (tmp_path / "some.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(UserError, match=r"line [12]: expected cells of at most 131,072"):
        predict(tmp_path / "some.csv")


def test_a_long_cell_does_not_hide_another_mistake(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    file.write_text(f"note,label,p_0,p_1\n{LONG},0,0.8,0.2\n")
    assert len(read_predictions(file).predictions) == 1
    file.write_text(f"note,label,p_0,p_1\n{LONG},0,0.8,0.2\n,0,0.8,0.1\n")
    with pytest.raises(UserError, match=r"row 1 \(from 0\): .*sum to 1"):
        read_predictions(file)
    file.write_text(f"label,p_0,p_1\n0,{LONG},0.2\n")
    with pytest.raises(UserError, match=r"131,073 characters\)") as caught:
        read_predictions(file)
    assert len(str(caught.value)) < 1000


def test_a_parquet_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    polars.DataFrame({"a": range(999)}).write_parquet(file)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"some\.parquet: cannot be read as Parquet"):
        table_files.parquet_header(file)
