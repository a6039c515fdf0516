"""Readers of stored shifts, each on made files in its layout."""

import json
from pathlib import Path

import numpy
import polars
import pytest
import torch
from PIL import Image

from falconcal.data import Bounds, Dataset, Examples, Framing
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import evaluate, score_under_shift
from falconcal.metrics import accuracy
from falconcal.models.predict import predict
from falconcal.report import write_report
from falconcal.shifts import OUTLIERS, STORED, StoredShift, find_shift, find_stored
from falconcal.shifts.stored.stored_shift import StoredLevel
from falconcal.studies.runner import do_runs
from tests.helpers.paths import STRIPES
from tests.helpers.small_data import small_network, stripes
from tests.helpers.small_studies import Silent
from tests.helpers.stripes import read_own_file

STUDY = STRIPES
COUNT = 6


def pixels(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8)


def colour_data(
    classes: tuple[str, ...] | None = None, size: int = 32, framing: Framing | None = None
) -> Examples:
    inputs, labels = torch.rand(COUNT, 3, size, size), torch.arange(COUNT) % 2
    return Examples(inputs, labels, Bounds(0, 1), classes, framing=framing)


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    numpy.save(folder / "fog.npy", pixels(5 * COUNT, 32, 32, 3))
    numpy.save(folder / "labels.npy", numpy.tile(numpy.arange(COUNT) % 2, 5).astype(numpy.uint8))
    return folder


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    folder = tmp_path / "mnist_c"
    for corruption in ("fog", "stripe"):
        (folder / corruption).mkdir(parents=True)
        images = (stripes(30, 2).inputs.permute(0, 2, 3, 1) * 200).byte().numpy()
        numpy.save(folder / corruption / "test_images.npy", images)
        numpy.save(folder / corruption / "test_labels.npy", stripes(30, 2).labels.numpy())
    return folder


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    folder = tmp_path / "ImageNet-C"
    for severity in range(1, 6):
        for number, synset in enumerate(("n01440764", "n01443537")):
            place = folder / "weather" / "fog" / str(severity) / synset
            place.mkdir(parents=True)
            for image in range(3):
                made = Image.fromarray(pixels(32, 32, 3, seed=10 * severity + 3 * number + image))
                made.save(place / f"{image}.JPEG", quality=95)
    return folder


@pytest.fixture
def objectnet(tmp_path: Path) -> Path:
    folder = tmp_path / "objectnet-1.0"
    (folder / "mappings").mkdir(parents=True)
    contents = {
        "folder_to_objectnet_label": {
            "banana": "Banana", "alarm_clock": "Alarm clock", "air_freshener": "Air freshener",
        },
        "objectnet_to_imagenet_1k": {
            "Banana": "banana", "Alarm clock": "digital clock; analog clock, round one",
        },
        "pytorch_to_imagenet_2012_id": {"0": 2, "1": 0, "2": 1},
    }  # fmt: skip
    for name, content in contents.items():
        (folder / "mappings" / f"{name}.json").write_text(json.dumps(content))
    lines = "analog clock, round one\nbanana\ndigital clock\n"  # numbers 1, 2 and 0
    (folder / "mappings" / "imagenet_to_label_2012_v2").write_text(lines)
    for kind in ("alarm_clock", "banana", "air_freshener"):
        (folder / "images" / kind).mkdir(parents=True)
        for image in range(2):
            bordered = numpy.zeros((36, 36, 3), numpy.uint8)
            bordered[..., 0] = 255
            bordered[2:-2, 2:-2] = pixels(32, 32, 3, seed=image)
            Image.fromarray(bordered).save(folder / "images" / kind / f"{image}.png")
    return folder


def test_cifar_10_c_holds_its_severities_in_order(cifar: Path) -> None:
    data, stored = colour_data(), numpy.load(cifar / "fog.npy")
    ladder = find_stored("cifar10_c:fog", str(cifar))
    assert ladder.name == "cifar10_c:fog"
    assert list(ladder.levels) == [0, 1, 2, 3, 4, 5]
    for level in range(1, 6):
        expected = stored[(level - 1) * COUNT : level * COUNT].transpose(0, 3, 1, 2) / 255
        batches = list(ladder.batches(level, data, size=4))
        assert [len(labels) for _, labels in batches] == [4, 2]
        images = torch.cat([inputs for inputs, _ in batches])
        numpy.testing.assert_allclose(images, expected, atol=1e-6)
        assert torch.equal(torch.cat([labels for _, labels in batches]), data.labels)


def test_images_come_in_the_range_of_the_data(cifar: Path) -> None:
    centred = Examples(torch.zeros(2, 3, 32, 32), torch.zeros(2).long(), Bounds(-1, 1))
    inputs, _ = next(find_stored("cifar10_c:fog", str(cifar)).batches(1, centred))
    plain, _ = next(find_stored("cifar10_c:fog", str(cifar)).batches(1, colour_data()))
    torch.testing.assert_close(inputs, 2 * plain - 1)


def test_mnist_c_is_scored_like_any_shift(
    mnist: Path, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALCONCAL_DATA", str(mnist.parent))
    model, ladder = small_network(), find_shift("mnist_c:fog")
    rows = evaluate(model, tiny.test, [ladder])
    images = torch.from_numpy(numpy.load(mnist / "fog" / "test_images.npy")).permute(0, 3, 1, 2)
    expected = accuracy(predict(model, tiny.test.repeated(images / 255)))
    found = rows.filter(shift="mnist_c:fog", level=1, metric="accuracy")["value"].item()
    assert found == pytest.approx(expected)
    whole, cut = (
        score_under_shift(model, tiny.test, [ladder], batch_size=size) for size in (500, 7)
    )
    assert whole["prediction"].equals(cut["prediction"])


def test_imagenet_c_is_read_by_synset_and_at_size_untouched(imagenet: Path) -> None:
    ladder = find_stored("imagenet_c:fog", str(imagenet))
    turned = colour_data(("n01443537", "n01440764"))  # numbers by the data's own classes
    for data, expected in ((colour_data(), [0, 0, 0, 1, 1, 1]), (turned, [1, 1, 1, 0, 0, 0])):
        inputs, labels = next(ladder.batches(2, data))
        assert labels.tolist() == expected
        file = imagenet / "weather" / "fog" / "2" / "n01440764" / "0.JPEG"
        with Image.open(file) as image:
            decoded = numpy.asarray(image).transpose(2, 0, 1) / 255
        numpy.testing.assert_allclose(inputs[0], decoded, atol=1e-6)
    with pytest.raises(UserError, match="each of the 3 classes"):
        ladder.level(1, colour_data(("a", "b", "c")))


def test_larger_images_lose_their_edges_evenly(imagenet: Path) -> None:
    data = colour_data(size=28, framing=Framing(height=28, width=28, resize=32))
    inputs, _ = next(find_stored("imagenet_c:fog", str(imagenet)).batches(1, data))
    assert inputs.shape == (COUNT, 3, 28, 28)
    file = imagenet / "weather" / "fog" / "1" / "n01440764" / "0.JPEG"
    with Image.open(file) as image:  # of 32 pixels, as the data's own are scaled to
        cut = numpy.asarray(image.crop((2, 2, 30, 30))).transpose(2, 0, 1) / 255
    numpy.testing.assert_allclose(inputs[0], cut, atol=1e-6)


def test_objectnet_has_shared_classes_outliers_and_no_border(
    objectnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = colour_data(("digital clock", "analog clock", "banana"))
    inputs, labels = next(find_stored("objectnet", str(objectnet)).batches(1, data))
    assert labels.tolist() == [0, 0, 2, 2]
    expected = pixels(32, 32, 3, seed=0).transpose(2, 0, 1) / 255
    numpy.testing.assert_allclose(inputs[0], expected, atol=1e-6)
    _, single = next(find_stored("objectnet:single", str(objectnet)).batches(1, data))
    assert single.tolist() == [2, 2]
    monkeypatch.setenv("FALCONCAL_DATA", str(objectnet.parent))
    others, none = next(OUTLIERS["objectnet_outliers"].batches(data))
    assert none.tolist() == [-1, -1]
    numpy.testing.assert_allclose(others[0], expected, atol=1e-6)


@pytest.mark.end_to_end
def test_a_study_takes_a_shift_with_examples_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ObjectNet has them: counted as they are, and resampled apart from the test data."""
    others = stripes(17, 3)
    level = StoredLevel(others.labels, lambda part: others.inputs[part])
    ladder = StoredShift("elsewhere", 1, lambda _level, _data: level, own_examples=True)
    monkeypatch.setitem(STORED, "elsewhere", (lambda _which, _path: ladder, "others"))
    study = read_own_file(STUDY, ['shifts=["elsewhere", "shear"]', "dropout.epochs=2"])
    do_runs(study, tmp_path, Silent(), ["dropout"])
    rows = polars.read_parquet(tmp_path / "rows.parquet").filter(shift="elsewhere")
    assert rows.filter(metric="accuracy").sort("level")["examples"].to_list() == [30, 17]
    write_report(tmp_path)
    found = polars.read_parquet(tmp_path / "comparisons.parquet")
    micro = found.filter(kind="interval", figure="micro_ece", shift="elsewhere")
    assert micro["value"].item() == pytest.approx(rows.filter(metric="micro_ece")["value"].item())
    assert micro["low"].item() <= micro["value"].item() <= micro["high"].item()


@pytest.mark.end_to_end
def test_a_study_takes_a_stored_shift_by_a_line(mnist: Path, tmp_path: Path) -> None:
    changes = ['shifts=["mnist_c:fog", "shear"]', f'stored="{mnist}"', "dropout.epochs=2"]
    study = read_own_file(STUDY, changes)
    do_runs(study, tmp_path / "run", Silent(), ["dropout"])
    assert (tmp_path / "run" / "examples" / "mnist_c.fog.png").is_file()
    with pytest.raises(UserError, match="no settings can be chosen"):
        read_own_file(STUDY, [*changes[1:], 'selection_shifts=["mnist_c:fog"]'])
    labels = mnist / "fog" / "test_labels.npy"
    numpy.save(labels, 1 - numpy.load(labels).clip(0, 1))
    with pytest.raises(UserError, match=r"30 test examples of stripes at level 1 of mnist_c:fog"):
        do_runs(study, tmp_path / "other", Silent(), ["dropout"])


def test_missing_and_damaged_files_are_named(
    cifar: Path, mnist: Path, imagenet: Path, objectnet: Path
) -> None:
    data = colour_data()
    (cifar / "labels.npy").unlink()
    with pytest.raises(UserError, match=r"expected the file .*labels\.npy"):
        find_stored("cifar10_c:fog", str(cifar)).level(1, data)
    (cifar / "fog.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=r"fog\.npy: cannot be read as NPY"):
        find_stored("cifar10_c:fog", str(cifar)).level(1, data)
    file = imagenet / "weather" / "fog" / "1" / "n01440764" / "0.JPEG"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match=r"0\.JPEG: cannot be read as an image: it is damaged"):
        next(find_stored("imagenet_c:fog", str(imagenet)).batches(1, data))
    (objectnet / "mappings" / "imagenet_to_label_2012_v2").unlink()
    with pytest.raises(UserError, match="imagenet_to_label_2012_v2, which is part of ObjectNet"):
        find_stored("objectnet", str(objectnet)).level(1, data)
    with pytest.raises(UserError, match=r"got 'fogg'; .* has fog, stripe"):
        find_stored("mnist_c:fogg", str(mnist))
    with pytest.raises(UserError, match=r"shape \(3, 32, 32\) in .*test_images.npy, got \(1, 28"):
        find_stored("mnist_c:fog", str(mnist)).level(1, data)
    with pytest.raises(UserError, match="levels 1 to 1 on disk, got 2"):
        find_stored("mnist_c:fog", str(mnist)).level(2, data)


@pytest.mark.parametrize("name", STORED)
def test_data_that_is_nowhere_is_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALCONCAL_DATA", str(tmp_path))
    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="FALCONCAL_DATA names, it is not there"):
        find_shift(name if name == "objectnet" else f"{name}:fog")


def test_pickled_arrays_are_not_loaded(mnist: Path, tiny: Dataset) -> None:
    objects = numpy.array([{"a": 1}], dtype=object)
    numpy.save(mnist / "fog" / "test_images.npy", objects, allow_pickle=True)
    with pytest.raises(UserError, match="never loaded"):
        find_stored("mnist_c:fog", str(mnist)).level(1, tiny.test)
