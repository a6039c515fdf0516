"""falconcal predict: every kind of input, what is rejected, and every mistake by its place."""

import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import falconcal
from falconcal.data import Bounds
from falconcal.inference.inputs import (
    PredictionCounts,
    choose_threshold,
    chose_its_epoch,
    open_inputs,
    write_predictions,
)
from falconcal.inference.inputs.image_inputs import read_input
from falconcal.inference.inputs.input_source import BATCH
from falconcal.inference.model_file import SavedModel
from falconcal.inference.model_metadata import ModelMetadata
from tests.helpers.command import run_here
from tests.helpers.paths import STRIPES
from tests.helpers.small_data import CLASSES, small_network, stripes
from tests.helpers.stripes import TRUST, Columns, load_own


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here("predict", *arguments, *TRUST, folder=folder)


@pytest.fixture
def pictures(tmp_path: Path) -> SavedModel:
    """A model of the stripes, in ``pictures.safetensors``."""
    file = tmp_path / "pictures.safetensors"
    falconcal.save(
        small_network(seed=3), file, "tests.helpers.stripes:make_small", classes=CLASSES,
        shape=[1, 28, 28], bounds=Bounds(0.0, 1.0),
        validation=falconcal.predict(small_network(seed=3), stripes(90, 1)),
    )  # fmt: skip
    return load_own(file)


@pytest.fixture
def rows(tmp_path: Path) -> SavedModel:
    """A model of four numbers, in ``rows.safetensors``."""
    torch.manual_seed(1)
    file, arguments = tmp_path / "rows.safetensors", {"inputs": 4, "outputs": 3}
    falconcal.save(
        Columns(4, 3), file, "tests.helpers.stripes:Columns", classes=CLASSES, shape=[4],
        arguments=arguments,
    )  # fmt: skip
    return load_own(file)


def with_metadata(saved: SavedModel, **changes: Any) -> SavedModel:
    from falconcal.core.settings import as_dict

    return SavedModel(saved.model, ModelMetadata(**{**as_dict(saved.metadata), **changes}))


def answers(
    saved: SavedModel, source: Path, out: Path, threshold: float | None = None
) -> tuple[polars.DataFrame, PredictionCounts]:
    outcome = write_predictions(out, saved, open_inputs(source, saved.metadata), threshold)
    read = polars.read_parquet if out.suffix == ".parquet" else polars.read_csv
    return read(out), outcome


def check(table: polars.DataFrame, model: nn.Module, inputs: Tensor) -> None:
    """Hold a table to the model's answers, computed here from its logits."""
    with torch.no_grad():
        probs = model(inputs).double().softmax(1)
    confidence, number = probs.max(1)
    assert table["label"].to_list() == [CLASSES[index] for index in number.tolist()]
    assert table["confidence"].to_list() == pytest.approx(confidence.tolist(), abs=1e-6)
    entropy = -(probs * probs.log()).sum(1)
    assert table["entropy"].to_list() == pytest.approx(entropy.tolist(), abs=1e-6)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_probability_of_each_class_on_request(
    tmp_path: Path, rows: SavedModel, ending: str
) -> None:
    """From inputs to predictions to a score: the truth beside them, matched by row."""
    values = numpy.random.default_rng(0).normal(size=(20, 4))
    numpy.save(tmp_path / "x.npy", values)
    out, source = tmp_path / f"answers{ending}", open_inputs(tmp_path / "x.npy", rows.metadata)
    write_predictions(out, rows, source, 0.4, probabilities=True)
    truth = polars.DataFrame(
        {"row": range(19, -1, -1), "kind": [CLASSES[n % 3] for n in range(20)]}
    )
    truth.write_csv(tmp_path / "truth.csv")
    read = falconcal.read_predictions(out, truth=tmp_path / "truth.csv")
    assert read.classes == tuple(CLASSES)
    with torch.no_grad():
        probs = rows.model(torch.from_numpy(values).float()).double().softmax(1)
    torch.testing.assert_close(read.predictions.probs, probs, atol=1e-6, rtol=0)
    assert read.predictions.labels.tolist() == [(19 - row) % 3 for row in range(20)]


def write_npy(path: Path, values: numpy.ndarray) -> None:
    numpy.save(path, values)


def write_npz(path: Path, values: numpy.ndarray) -> None:
    numpy.savez_compressed(path, inputs=values, labels=numpy.zeros(len(values)))


def write_csv(path: Path, values: numpy.ndarray) -> None:
    polars.from_numpy(values, schema=list("abcd")).write_csv(path)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("name", "write"), [("x.npy", write_npy), ("x.npz", write_npz), ("x.csv", write_csv)]
)
def test_rows_of_every_format_get_the_models_answers(
    tmp_path: Path,
    rows: SavedModel,
    name: str,
    write: Callable[[Path, numpy.ndarray], None],
    ending: str,
) -> None:
    values = numpy.random.default_rng(0).normal(size=(BATCH * 2 + 5, 4))
    write(tmp_path / name, values)
    table, outcome = answers(rows, tmp_path / name, tmp_path / f"out{ending}", 0.4)
    check(table, rows.model, torch.from_numpy(values).float())
    assert table.columns == ["row", "label", "confidence", "entropy", "rejected"]
    assert table["row"].to_list() == list(range(len(values)))
    assert table["rejected"].to_list() == (table["confidence"] < 0.4).to_list()
    assert 0 < outcome.rejected == table["rejected"].sum() < outcome.examples == len(values)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_without_a_threshold_nothing_is_said_of_rejection(tmp_path: Path, rows: SavedModel) -> None:
    numpy.save(tmp_path / "x.npy", numpy.zeros((3, 4), numpy.int8))
    table, _ = answers(rows, tmp_path / "x.npy", tmp_path / "out.csv")
    assert table.columns == ["row", "label", "confidence", "entropy"]


def test_columns_are_found_by_the_names_that_were_saved(tmp_path: Path, rows: SavedModel) -> None:
    values = numpy.random.default_rng(0).normal(size=(7, 4))
    frame = polars.from_numpy(values, schema=list("abcd"))
    frame = frame.select("d", polars.lit("someone").alias("name"), "b", "a", "c")
    frame.write_csv(tmp_path / "x.csv")
    named = with_metadata(rows, columns=list("abcd"))
    table, _ = answers(named, tmp_path / "x.csv", tmp_path / "out.csv")
    check(table, rows.model, torch.from_numpy(values).float())


def write_image(path: Path, pixels: Tensor) -> None:
    """Write (channels, H, W) of 0 to 1 as an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = (pixels * 255).round().byte().permute(1, 2, 0).numpy()
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(path)


def test_a_folder_of_images(tmp_path: Path, pictures: SavedModel) -> None:
    inputs = (stripes(6).inputs * 255).round() / 255
    names = ["a/1.png", "a/2.png", "b.png", "c.bmp", "d, e.png", "z.tiff"]
    for name, image in zip(names, inputs, strict=True):
        write_image(tmp_path / "images" / name, image)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    table, outcome = answers(pictures, tmp_path / "images", tmp_path / "out.csv")
    assert table["file"].to_list() == names
    assert outcome.damaged == {}
    check(table, pictures.model, inputs)


def test_colour_and_size_are_made_the_models(tmp_path: Path, pictures: SavedModel) -> None:
    colour = torch.tensor([1.0, 0.5, 0.25])[:, None, None].expand(3, 40, 60)
    write_image(tmp_path / "colour.png", colour)
    grey = read_input(tmp_path / "colour.png", pictures.metadata)
    assert grey.shape == (1, 28, 28)
    red, green, blue = 255, 128, 64
    luminance = (0.299 * red + 0.587 * green + 0.114 * blue) / 255  # ITU-R 601
    assert torch.allclose(grey, torch.tensor(luminance), atol=1 / 255)

    framing = falconcal.data.Framing(height=10, width=20)
    shaped = with_metadata(pictures, shape=[3, 10, 20], framing=framing)
    wide = with_metadata(shaped, bounds=Bounds(-1.0, 1.0)).metadata
    image = read_input(tmp_path / "colour.png", wide)
    assert image.shape == (3, 10, 20)
    expected = torch.tensor([red, green, blue]) / 255 * 2 - 1
    assert torch.allclose(image, expected[:, None, None].expand(3, 10, 20), atol=1e-6)

    normalised = with_metadata(shaped, mean=[0.5, 0.4, 0.3], deviation=[0.1, 0.2, 0.4]).metadata
    image = read_input(tmp_path / "colour.png", normalised)
    by_hand = [(1 - 0.5) / 0.1, (128 / 255 - 0.4) / 0.2, (64 / 255 - 0.3) / 0.4]
    assert image[:, 3, 4].tolist() == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.end_to_end
def test_damaged_images_are_named_and_the_others_answered(
    tmp_path: Path, pictures: SavedModel
) -> None:
    folder = tmp_path / "images"
    for number, image in enumerate(stripes(5).inputs):
        write_image(folder / f"{number}.png", image)
    whole = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(whole[: len(whole) // 2])
    (folder / "3.png").write_text("no image at all")
    Image.fromarray(numpy.full((28, 28), 40_000, numpy.uint16)).save(folder / "4.png")
    answer = command(
        tmp_path, "pictures.safetensors", "images", "--out", "o.csv", "--reject-below", "0"
    )
    assert answer.returncode == 1
    assert "3 images could not be read" in answer.stderr
    assert all(f"{number}.png: " in answer.stderr for number in (1, 3, 4))
    assert "Traceback" not in answer.stderr
    table = polars.read_csv(tmp_path / "o.csv")
    assert table["file"].to_list() == [f"{number}.png" for number in range(5)]
    assert table["label"].is_null().to_list() == [False, True, False, True, True]
    assert table["rejected"].to_list() == [False, True, False, True, True]
    check(table[[0, 2]], pictures.model, (stripes(5).inputs[[0, 2]] * 255).round() / 255)


@pytest.mark.end_to_end
def test_the_command_from_file_to_answers(tmp_path: Path, pictures: SavedModel) -> None:
    inputs = stripes(12, 5).inputs
    numpy.save(tmp_path / "x.npy", inputs.numpy())
    answer = command(tmp_path, "pictures.safetensors", "x.npy", "--risk", "0.9")
    assert answer.returncode == 0, answer.stderr
    table = polars.read_csv(tmp_path / "runs" / "predict" / "x.csv")
    check(table, pictures.model, inputs)
    assert pictures.metadata.risks is not None
    threshold = pictures.metadata.risks.threshold(0.9)
    assert table["rejected"].to_list() == (table["confidence"] < threshold).to_list()
    assert f"12 examples, {table['rejected'].sum()} rejected" in answer.stdout
    assert "Predictions: runs/predict/x.csv" in answer.stdout


@pytest.mark.parametrize(
    ("method", "chose"),
    [
        (None, False),
        ({"method": "falcon", "keep": "last", "patience": None}, False),
        ({"method": "falcon", "keep": "best"}, True),
        ({"method": "temperature", "base": {"method": "falcon", "patience": 3}}, True),
    ],
)
def test_a_model_tells_whether_validation_data_chose_its_epoch(
    rows: SavedModel, method: dict[str, Any] | None, chose: bool
) -> None:
    assert chose_its_epoch(with_metadata(rows, method=method).metadata) is chose


@pytest.mark.end_to_end
def test_a_run_of_a_study_can_be_used(tmp_path: Path) -> None:
    from rich.console import Console

    from falconcal.cli.progress import PlainLines
    from falconcal.studies import find_study
    from falconcal.studies.runner import do_runs

    study = find_study(str(STRIPES), trust_code=["tests"])
    do_runs(study, tmp_path / "out", PlainLines(Console(quiet=True)), ["dropout"])
    run = "out/runs/default/dropout/seed-0"
    saved = load_own(tmp_path / run / "weights.safetensors")
    assert saved.metadata.risks is not None
    assert saved.metadata.risks.accepted[-1] == 30
    inputs = stripes(9, 4).inputs
    numpy.save(tmp_path / "x.npy", inputs.numpy())
    answer = command(tmp_path, run, "x.npy", "--out", "o.parquet")
    assert answer.returncode == 0, answer.stderr
    check(polars.read_parquet(tmp_path / "o.parquet"), saved.model, inputs)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv"])
def test_no_more_than_a_batch_is_in_memory(tmp_path: Path, rows: SavedModel, name: str) -> None:
    values = numpy.zeros((200_000, 4))  # 6.4 MB
    {".npy": write_npy, ".npz": write_npz, ".csv": write_csv}[Path(name).suffix](
        tmp_path / name, values
    )
    del values
    tracemalloc.start()
    count = sum(len(batch.inputs) for batch in open_inputs(tmp_path / name, rows.metadata).batches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200_000
    assert peak < 2e6


def test_tokens_are_whole_numbers_that_the_model_knows(tmp_path: Path, rows: SavedModel) -> None:
    metadata = with_metadata(rows, tokens=10).metadata
    numpy.save(tmp_path / "x.npy", numpy.array([[1, 2, 3, 9]]))
    (batch,) = open_inputs(tmp_path / "x.npy", metadata).batches
    assert batch.inputs.dtype == torch.long
    for bad in (10, -1, 0.5):
        numpy.save(tmp_path / "x.npy", numpy.array([[1, 2, 3, 4], [1, bad, 3, 4]]))
        with pytest.raises(falconcal.UserError, match=r"row 1 .*whole numbers from 0 to 9"):
            list(open_inputs(tmp_path / "x.npy", metadata).batches)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "got an empty file"),
        ("a,b,c\n1,2,3\n", "a column for each of the 4 inputs, got 3"),
        ("1,2,3,4\n5,6,7,8\n", "a header with names"),
        ("a,b,c,d\n1,2,3,4\n1,2,three,4\n", "line 3, column 'c': expected a number, got 'three'"),
        ("a,b,c,d\n1,2,,4\n", "line 2, column 'c': expected a number, got ''"),
        ("a,b,c,d\n1,2,nan,4\n", "row 0 .*NaN"),
        ("a,b,c,d\n1,2,3\n", "line 2: expected 4 cells"),
        ("a,b,c,d\n1,2,3,4\n\n1,2,3,4\n", "line 3: expected a row, got a blank line"),
        ("a,b,c,a\n1,2,3,4\n", "'a' 2 times"),
        ("a,b,c,d\n", "at least one example"),
    ],
)
def test_mistakes_in_csv_are_named_by_their_place(
    tmp_path: Path, rows: SavedModel, text: str, words: str
) -> None:
    (tmp_path / "x.csv").write_text(text)
    out = tmp_path / "out.csv"
    out.write_text("before")
    with pytest.raises(falconcal.UserError, match=words):
        answers(rows, tmp_path / "x.csv", out)
    assert out.read_text() == "before"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_csv_of_other_bytes_is_named_by_its_line(tmp_path: Path, rows: SavedModel) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b,c,d\n1,2,3,4\n1,2,\xff,4\n")
    with pytest.raises(falconcal.UserError, match="line 3: expected text in UTF-8"):
        answers(rows, tmp_path / "x.csv", tmp_path / "out.csv")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (numpy.zeros((3, 5)), r"\(N, 4\), got shape \(3, 5\)"),
        (numpy.array([[0, 1, 2, numpy.inf]]), "row 0 .*infinity"),
        (numpy.array(["a"]), "expected numbers"),
        (numpy.array([{}], dtype=object), "never loaded"),
        (numpy.zeros(()), "got shape"),
        (numpy.zeros((0, 4)), "at least one example"),
    ],
)
@pytest.mark.parametrize("save", [numpy.save, numpy.savez], ids=["npy", "npz"])
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, rows: SavedModel, array: numpy.ndarray, words: str, save: Any
) -> None:
    file = tmp_path / ("x.npy" if save is numpy.save else "x.npz")
    save(file, array)
    with pytest.raises(falconcal.UserError, match=words):
        answers(rows, file, tmp_path / "out.csv")


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_arrays_that_are_cut_off_leave_no_output(
    tmp_path: Path, rows: SavedModel, name: str
) -> None:
    (write_npy if name == "x.npy" else write_npz)(tmp_path / name, numpy.ones((999, 4)))
    whole = (tmp_path / name).read_bytes()
    for length in (0, 50, len(whole) // 2):
        (tmp_path / name).write_bytes(whole[:length])
        with pytest.raises(falconcal.UserError, match=r"cannot be read as NP"):
            answers(rows, tmp_path / name, tmp_path / "out.csv")
    damaged = bytearray(whole)
    damaged[len(whole) // 4] ^= 0xFF
    (tmp_path / "y.npz").write_bytes(damaged)
    if name == "x.npz":
        with pytest.raises(falconcal.UserError, match=r"cannot be read as NPZ"):
            answers(rows, tmp_path / "y.npz", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_pixels_in_another_range_are_refused(tmp_path: Path, pictures: SavedModel) -> None:
    numpy.save(tmp_path / "x.npy", (stripes(3).inputs * 255).numpy().astype(numpy.uint8))
    with pytest.raises(falconcal.UserError, match=r"from 0 to 1, got .*scale the data"):
        answers(pictures, tmp_path / "x.npy", tmp_path / "out.csv")


def test_images_need_a_model_of_images_that_knows_their_range(
    tmp_path: Path, pictures: SavedModel, rows: SavedModel
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(falconcal.UserError, match="found none"):
        open_inputs(tmp_path / "empty", pictures.metadata)
    with pytest.raises(falconcal.UserError, match="a model of images"):
        open_inputs(tmp_path / "empty", rows.metadata)
    with pytest.raises(falconcal.UserError, match="save it with bounds"):
        open_inputs(tmp_path / "empty", with_metadata(pictures, bounds=None).metadata)


def test_a_threshold_is_stated_or_comes_from_a_risk(pictures: SavedModel, rows: SavedModel) -> None:
    assert choose_threshold(rows.metadata, None, None) is None
    assert choose_threshold(rows.metadata, 0.8, None) == 0.8
    with pytest.raises(falconcal.UserError, match="saved without validation data"):
        choose_threshold(rows.metadata, None, 0.1)
    with pytest.raises(falconcal.UserError, match=r"no threshold keeps the error at 0\.001"):
        choose_threshold(pictures.metadata, None, 0.001)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["none.safetensors", "x.npy"], 1, "none.safetensors, found none"),
        (["pictures.safetensors", "x.npy"], 2, "no such file or folder: x.npy"),
        (["pictures.safetensors", "rows.safetensors"], 2, "a file that ends in .csv, .npy, .npz"),
        (["pictures.safetensors", ".", "--out", "o.txt"], 2, "to end in .csv or .parquet"),
        (["pictures.safetensors", ".", "--reject-below", "8"], 2, "from 0 to 1, got 8"),
        (["pictures.safetensors", ".", "--reject-below", "0.8", "--risk", "0.1"], 2, "got both"),
        (["pictures.safetensors", ".", "--risk", "0"], 2, "above 0 and below 1"),
        (["x.csv", "."], 1, "not a safetensors file"),
        (["rows.safetensors", "x.csv", "--out", "x.csv"], 2, "another file than the input"),
        (["rows.safetensors", "x.csv", "--out", "x.csv/o.csv"], 2, "x.csv is a file"),
    ],
)
@pytest.mark.usefixtures("pictures", "rows")
def test_mistakes_of_the_command(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    answer = command(tmp_path, *words)
    assert answer.returncode == code, answer.stderr
    assert message in answer.stderr
    assert not list(tmp_path.glob("runs"))
