"""One's own data: folders of images and texts, NPZ, CSV; and images that stay on disk."""

import os
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch

from falconcal.data import Examples, Images, load_dataset, load_test
from falconcal.data.streamed_images import StreamedImages
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import evaluate
from falconcal.models import make_model
from falconcal.shifts import SHIFTS
from falconcal.studies.study_reading import read_study
from tests.helpers.official_layouts import (
    bytes_of,
    cyclic,
    write_csv,
    write_image_folder,
    write_imagenet,
    write_images,
    write_npz,
    write_objectnet,
    write_text_folder,
)


def test_an_image_folder_is_split_by_class_the_same_every_time(tmp_path: Path) -> None:
    settings = write_image_folder(tmp_path)
    first, again = (load_dataset("image_folder", **settings) for _ in range(2))
    assert first.classes == ("bright", "dark", "middle")
    parts = (first.train, first.validation, first.test)
    assert [len(part) for part in parts] == [24, 3, 3]
    for part, other in zip(parts, (again.train, again.validation, again.test), strict=True):
        assert isinstance(part, Images)
        assert torch.equal(part.inputs, other.inputs)
        brightness = (part.inputs[:, 0, 4, 4] * 255).round().long()
        assert torch.equal(brightness, torch.tensor([160, 40, 100])[part.labels])


def test_folders_of_parts_are_taken_as_they_are(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("val", 2), ("test", 3)):
        write_images(tmp_path / part, ("a", "b"), count)
    found = load_dataset("image_folder", path=str(tmp_path), size=6, channels=1)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [8, 4, 6]
    assert found.train.shape == (1, 6, 6)
    write_images(tmp_path / "test", ("c",), 1)
    with pytest.raises(UserError, match=r"test: .*classes that training does not have: c"):
        load_dataset("image_folder", path=str(tmp_path), size=6)


def test_a_folder_that_is_none_of_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match="at least two, found 0"):
        load_dataset("image_folder", path=str(tmp_path), size=6)
    write_images(tmp_path / "own", ("x", "y"), 4)
    (tmp_path / "own" / "x" / "broken.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"broken\.png: cannot be read as an image"):
        load_dataset("image_folder", path=str(tmp_path / "own"), size=6)


@pytest.mark.end_to_end
@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_images_are_those_in_memory(tmp_path: Path, workers: int) -> None:
    settings = write_image_folder(tmp_path)
    held = load_dataset("image_folder", **settings)
    streamed = load_dataset("image_folder", **settings, stream=True, workers=workers)
    assert isinstance(streamed.train, StreamedImages)
    before = torch.get_rng_state()
    for part in ("train", "test"):
        one, other = (
            list(getattr(data, part).batches(5, shuffle=True, seed=3)) for data in (held, streamed)
        )
        for (inputs, labels), (same, same_labels) in zip(one, other, strict=True):
            assert torch.equal(inputs, same)
            assert torch.equal(labels, same_labels)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(UserError, match="never all in memory"):
        _ = streamed.train.inputs


@pytest.mark.end_to_end
def test_imagenet_is_streamed_and_evaluated_in_pixels(tmp_path: Path) -> None:
    found = load_dataset("imagenet", **write_imagenet(tmp_path))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [9, 9, 9]
    assert found.train.shape == (3, 224, 224)
    assert found.bounds is not None
    assert isinstance(found.train, StreamedImages)
    assert [file.name for file in found.train.files[:3]] == ["00.JPEG", "01.JPEG", "02.JPEG"]
    model = make_model("resnet_small", found)
    seen = []
    model.network.register_forward_pre_hook(  # type: ignore[union-attr]
        lambda _, given: seen.append(given[0])
    )
    contrast = SHIFTS["contrast"]
    short = replace(contrast, strengths=contrast.strengths[:2])
    rows = evaluate(model, found.test, [short])
    assert set(rows["shift"]) == {"clean", "contrast"}
    plain = found.test.first(9).inputs
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (plain - mean[:, None, None]) / deviation[:, None, None]
    torch.testing.assert_close(seen[0], expected)


def test_imagenets_absence_and_smallness_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train and val"):
        load_dataset("imagenet", path=str(tmp_path))
    settings = write_imagenet(tmp_path / "small")
    with pytest.raises(UserError, match="more than 6 training images of class n01440764"):
        load_dataset("imagenet", **{**settings, "held_out": 6})


def test_objectnet_has_known_classes_and_outliers_without_their_borders(tmp_path: Path) -> None:
    settings = write_objectnet(tmp_path)
    known, single, others = (
        load_test("objectnet", **settings, images=images)
        for images in ("known", "single", "unknown")
    )
    assert known.classes == ("throne", "sundial", "rocker")
    assert known.labels.tolist() == [2] * 4 + [1] * 4  # a chair is a rocker or a throne
    assert (single.labels.tolist(), others.labels.tolist()) == ([1] * 4, [-1] * 4)
    assert isinstance(known, StreamedImages)
    assert known.border == 2
    assert known.first(1).inputs.shape == (1, 3, 224, 224)
    with pytest.raises(UserError, match="for testing only"):
        load_dataset("objectnet", **settings)
    (tmp_path / "mappings" / "imagenet_to_label_2012_v2").unlink()
    with pytest.raises(UserError, match="imagenet_to_label_2012_v2, which is part of"):
        load_test("objectnet", **settings)


def test_texts_of_ones_own_are_words(tmp_path: Path) -> None:
    settings = write_text_folder(tmp_path / "texts")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("sail 1 2\nwing 3 4\n")
    found = load_dataset("text_folder", **settings, vectors=str(vectors), width=2)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [24, 3, 3]
    assert found.vectors is not None
    assert found.vectors.shape == (found.train.tokens, 2)
    assert found.encoder is not None
    assert found.train.texts is not None
    assert torch.equal(found.encoder(found.train.texts.raw), found.train.inputs)
    assert make_model("text_gru", found, width=2)(found.test.first(2).inputs).shape == (2, 3)
    (tmp_path / "texts" / "alt.birds" / "0.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match=r"0\.txt: expected UTF-8"):
        load_dataset("text_folder", **settings)
    (tmp_path / "texts" / "alt.birds" / "0.txt").unlink()
    os.mkfifo(tmp_path / "texts" / "alt.birds" / "0.txt")  # from which reading would never end
    with pytest.raises(UserError, match=r"0\.txt: .* a regular file, it is a named pipe"):
        load_dataset("text_folder", **settings)


def test_an_npz_file_may_hold_numbers_images_or_tokens(tmp_path: Path) -> None:
    numbers = load_dataset("npz", **write_npz(tmp_path))
    assert (numbers.modality, numbers.train.shape, numbers.train.tokens) == ("signal", (4,), None)
    path = tmp_path / "own.npz"
    labels = cyclic(20, 2)
    numpy.savez(
        path,
        train_inputs=bytes_of(20, 8, 8), train_labels=labels,
        test_inputs=bytes_of(6, 8, 8, seed=1), test_labels=labels[:6],
        classes=numpy.array(["no", "yes"]),
    )  # fmt: skip
    images = load_dataset("npz", path=str(path))
    assert isinstance(images.test, Images)
    assert (images.modality, images.classes, len(images.test)) == ("image", ("no", "yes"), 6)
    numpy.savez(path, train_inputs=bytes_of(20, 5).astype("int32"), train_labels=labels)
    words = load_dataset("npz", path=str(path))
    assert isinstance(words.train, Examples)
    assert (words.modality, words.train.tokens) == ("text", int(bytes_of(20, 5).max()) + 1)


def test_bad_arrays_are_named(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    numpy.savez(path, inputs=bytes_of(4, 2), train_labels=cyclic(4, 2))
    with pytest.raises(UserError, match=r"own\.npz: expected the array train_inputs"):
        load_dataset("npz", path=str(path))
    numpy.savez(path, train_inputs=bytes_of(4, 2) / 1.0, train_labels=numpy.array(["a"] * 4))
    with pytest.raises(UserError, match="whole numbers"):
        load_dataset("npz", path=str(path))
    numpy.savez(path, train_inputs=numpy.array([{}]), train_labels=cyclic(1))
    with pytest.raises(UserError, match="never loaded"):
        load_dataset("npz", path=str(path))
    settings = write_npz(tmp_path)
    with pytest.raises(UserError, match=r"numbers\.npz: expected inputs from 0 to 0\.1"):
        load_dataset("npz", **{**settings, "bounds": (0.0, 0.1)})


def test_a_csv_file_is_numbers_and_a_column_of_labels(tmp_path: Path) -> None:
    settings = write_csv(tmp_path)
    found = load_dataset("csv", **settings)
    assert found.classes == ("no", "yes")
    assert [len(part) for part in (found.train, found.validation, found.test)] == [24, 2, 4]
    widths = found.train.inputs[:, 0].long()
    assert torch.equal(found.train.labels, widths % 2)
    with pytest.raises(UserError, match="column 'kind' of labels"):
        load_dataset("csv", **settings, label="kind")
    path = Path(settings["path"])
    path.write_text(path.read_text() + "x,1.0,yes\n")
    with pytest.raises(UserError, match="line 32, column 'width': expected a number, got 'x'"):
        load_dataset("csv", **settings)
    (tmp_path / "test.csv").write_text("width,height,label\n1,2,maybe\n")
    write_csv(tmp_path)
    with pytest.raises(UserError, match="label 'maybe', which training does not have"):
        load_dataset("csv", **settings, test=str(tmp_path / "test.csv"))


def test_the_test_file_of_a_csv_goes_by_the_names_of_its_columns(tmp_path: Path) -> None:
    rows = [f"{number},{-number},{'ab'[number % 2]}" for number in range(40)]
    turned = [f"{-number},{number},{'ab'[number % 2]}" for number in range(4)]
    for name, heading, lines in (
        ("train", "x,y,label", rows), ("test", "y,x,label", turned), ("other", "x,z,label", turned),
    ):  # fmt: skip
        (tmp_path / f"{name}.csv").write_text("\n".join([heading, *lines]))
    given = {"path": str(tmp_path / "train.csv")}
    tested = load_dataset("csv", **given, test=str(tmp_path / "test.csv")).test
    assert tested.inputs.tolist() == [[number, -number] for number in range(4)]
    with pytest.raises(UserError, match="expected the columns of training, x, y, label, got x, z"):
        load_dataset("csv", **given, test=str(tmp_path / "other.csv"))


def test_labels_that_are_too_few_are_named(tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    numpy.savez(file, train_inputs=numpy.zeros((60, 4)), train_labels=numpy.zeros(30, dtype=int))
    with pytest.raises(UserError, match=r"train_inputs of shape \(60, 4\) and train_labels"):
        load_dataset("npz", path=str(file))


def test_a_study_names_ones_own_data_by_a_table(tmp_path: Path) -> None:
    settings = write_image_folder(tmp_path / "photos")
    text = f"""
name = "own"
model = "lenet"
shifts = ["contrast"]
[dataset]
name = "image_folder"
path = "{settings["path"]}"
size = 28
[methods.dropout]
"""
    assert read_study(text, "test").dataset == {
        "name": "image_folder", "path": settings["path"], "size": 28,
    }  # fmt: skip


def test_the_test_part_may_lie_elsewhere_and_is_read_as_training_is(tmp_path: Path) -> None:
    """Later data in a folder or file of its own, with training's classes and vocabulary."""
    images = write_image_folder(tmp_path / "images")
    write_images(tmp_path / "later", ("bright", "dark"), 4)
    data = load_dataset("image_folder", test=str(tmp_path / "later"), **images)
    assert len(data.test) == 8
    assert data.test.classes == ("bright", "dark", "middle")
    assert [len(data.train), len(data.validation)] == [27, 3]
    texts = write_text_folder(tmp_path / "texts")
    (tmp_path / "news" / "rec.boats").mkdir(parents=True)
    (tmp_path / "news" / "rec.boats" / "1.txt").write_text("a sail nobody knows")
    home = load_dataset("text_folder", **texts)
    later = load_dataset("text_folder", test=str(tmp_path / "news"), **texts)
    assert later.test.labels.tolist() == [1]
    assert later.test.tokens == later.train.tokens
    assert home.encoder is not None
    npz = write_npz(tmp_path)
    numpy.savez(tmp_path / "march.npz", test_inputs=bytes_of(5, 4) / 255, test_labels=cyclic(5, 3))
    march = load_dataset("npz", test=str(tmp_path / "march.npz"), **npz)
    assert march.test.labels.tolist() == [0, 1, 2, 0, 1]
    numpy.savez(tmp_path / "march.npz", inputs=bytes_of(5, 4) / 255)
    with pytest.raises(UserError, match="expected the array test_inputs, it is not there"):
        load_dataset("npz", test=str(tmp_path / "march.npz"), **npz)
