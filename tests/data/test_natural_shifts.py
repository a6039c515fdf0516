"""Data that nature shifted: gas sensors, USPS, electricity, people's answers, letters."""

import gzip
import lzma
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from falconcal.data import Images, load_dataset, load_test
from falconcal.data.sets.cifar10h import drawn_answers
from falconcal.data.sets.imagenet_val import ImageNetVal
from falconcal.data.sets.usps import framed_digits
from falconcal.errors import UsageError, UserError
from tests.helpers.official_layouts import (
    bytes_of,
    cyclic,
    gas_lines,
    idx,
    write_cifar10h,
    write_elec2,
    write_gas_drift,
    write_imagenet_val,
    write_notmnist,
    write_usps,
)


def pack_batches(path: Path, texts: dict[str, str]) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in texts.items():
                archive.writestr(f"Dataset/{name}", text)
        return
    with tarfile.open(path, "w:xz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))


def test_gas_batches_are_split_and_standardised_by_what_trains(tmp_path: Path) -> None:
    write_gas_drift(tmp_path)
    data = load_dataset("gas_drift", path=str(tmp_path))
    sizes = [len(part) for part in (data.train, data.validation, data.test)]
    assert sum(sizes) == 60
    assert sizes[1] == sizes[2] == 12
    torch.testing.assert_close(data.train.inputs.mean(0), torch.zeros(128), rtol=0, atol=1e-5)
    deviation = data.train.inputs.std(0, unbiased=False)
    torch.testing.assert_close(deviation, torch.ones(128), rtol=0, atol=1e-5)


def test_a_later_gas_batch_is_all_of_the_test_part_in_the_scale_of_training(
    tmp_path: Path,
) -> None:
    write_gas_drift(tmp_path)
    home = load_dataset("gas_drift", path=str(tmp_path))
    later = load_dataset("gas_drift", path=str(tmp_path), test=[3])
    assert len(later.test) == 30
    assert torch.equal(later.train.inputs, home.train.inputs)
    raw = numpy.array(
        [[float(cell.partition(":")[2]) for cell in line.split()[1:]]
         for line in gas_lines(30, 3).splitlines()]
    )  # fmt: skip
    # a straight line from what was measured to what the network sees, the same in every row
    slope, start = numpy.polyfit(raw[:, 0], later.test.inputs[:, 0].double().numpy(), 1)
    torch.testing.assert_close(
        later.test.inputs[:, 0].double(), torch.from_numpy(slope * raw[:, 0] + start), atol=1e-5,
        rtol=0,
    )  # fmt: skip
    assert later.test.inputs.mean() > 0.5


@pytest.mark.parametrize("name", ["batches.tar.xz", "Dataset.zip"])
def test_packed_gas_batches_and_those_without_concentrations_are_the_same(
    tmp_path: Path, name: str
) -> None:
    write_gas_drift(tmp_path / "plain", 2)
    (tmp_path / "packed").mkdir()
    texts = {f"batch{number}.dat": gas_lines(30, number, False) for number in (1, 2)}
    pack_batches(tmp_path / "packed" / name, texts)
    plain, packed = (
        load_dataset("gas_drift", path=str(tmp_path / folder)) for folder in ("plain", "packed")
    )
    assert torch.equal(plain.train.inputs, packed.train.inputs)
    assert torch.equal(plain.test.labels, packed.test.labels)
    with pytest.raises(UserError, match=r"expected batch7.dat, it has batch1.dat, batch2.dat"):
        load_dataset("gas_drift", path=str(tmp_path / "packed"), test=[7])


def test_a_damaged_gas_batch_is_named_with_its_line(tmp_path: Path) -> None:
    write_gas_drift(tmp_path)
    file = tmp_path / "batch1.dat"
    for text, words in (
        (gas_lines(3, 1).replace("2:", "129:", 1), "line 1: .*got column 129"),
        (gas_lines(3, 1) + "7;1.0 1:1\n", "gases 1 to 6, got '7'"),
        ("1;1.0 1:x\n", "could not convert"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=words):
            load_dataset("gas_drift", path=str(tmp_path))
    write_gas_drift(tmp_path)
    with pytest.raises(UserError, match=r"expected batch9\.dat or an archive"):
        load_dataset("gas_drift", path=str(tmp_path), test=[9])


def test_usps_comes_in_three_layouts_and_lies_in_mnists_frame(tmp_path: Path) -> None:
    write_usps(tmp_path / "libsvm")
    libsvm = load_dataset("usps", path=str(tmp_path / "libsvm"))
    assert [len(part) for part in (libsvm.train, libsvm.validation, libsvm.test)] == [30, 10, 20]
    assert libsvm.train.shape == (1, 28, 28)
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    images = numpy.concatenate([bytes_of(40, 256), bytes_of(20, 256)]).reshape(-1, 16, 16)
    with lzma.open(arrays / "images.npy.xz", "wb") as file:
        numpy.save(file, images)
    numpy.save(arrays / "labels.npy", numpy.concatenate([cyclic(40), cyclic(20)]))
    numpy.save(arrays / "is_train.npy", numpy.arange(60) < 40)
    book = tmp_path / "book"
    book.mkdir()
    for name, part in (("zip.train.gz", images[:40]), ("zip.test.gz", images[40:])):
        values = part.reshape(len(part), -1) / 127.5 - 1
        lines = [
            f"{label}.0000 " + " ".join(f"{value:.4f}" for value in row)
            for label, row in zip(cyclic(len(part)), values, strict=True)
        ]
        (book / name).write_bytes(gzip.compress("\n".join(lines).encode()))
    for folder in (arrays, book):
        other = load_test("usps", path=str(folder), test="all")
        assert isinstance(other, Images)
        assert isinstance(libsvm.test, Images)
        assert torch.equal(other.pixels[40:], libsvm.test.pixels)
        assert torch.equal(other.labels[40:], libsvm.test.labels)


def test_a_framed_digit_keeps_its_mean_and_has_a_margin_of_four() -> None:
    framed = framed_digits(numpy.full((1, 16, 16), 200, dtype=numpy.uint8))
    assert (framed[0, 4:24, 4:24] == 200).all()
    assert framed.sum() == 200 * 20 * 20


def test_electricity_is_split_by_days_and_later_spans_follow(tmp_path: Path) -> None:
    write_elec2(tmp_path)
    data = load_dataset("elec2", path=str(tmp_path), train=[0.0, 0.5])
    assert [len(part) // 48 for part in (data.train, data.validation, data.test)] == [9, 3, 3]
    prices = [set(part.inputs[:, 1].tolist()) for part in (data.train, data.validation, data.test)]
    assert not prices[0] & prices[1]
    assert max(max(one) for one in prices) < 0.5
    later = load_dataset("elec2", path=str(tmp_path), test=[0.5, 0.6]).test
    assert len(later) == 3 * 48
    assert torch.equal(later.inputs[:, 1].sort().values, later.inputs[:, 1])
    assert later.labels[:4].tolist() == [0, 1, 1, 0]
    with pytest.raises(UsageError, match=r"expected a span as \[0.3, 0.4\], got \[0.6, 0.5\]"):
        load_dataset("elec2", path=str(tmp_path), test=[0.6, 0.5])


def test_electricity_in_arff_and_packed_is_the_same(tmp_path: Path) -> None:
    write_elec2(tmp_path / "csv")
    header, _, rows = (tmp_path / "csv" / "elecNormNew.csv").read_text().partition("\n")
    names = [f"@attribute {name} numeric" for name in header.split(",")]
    (tmp_path / "arff").mkdir()
    text = "\n".join(["@relation elec", *names, "@data", rows])
    (tmp_path / "arff" / "elecNormNew.arff").write_text(text)
    (tmp_path / "xz").mkdir()
    kept = [
        ",".join(
            [*line.split(",")[2:-1], {"UP": "1", "DOWN": "0"}.get(line.split(",")[-1], "class")]
        )
        for line in (tmp_path / "csv" / "elecNormNew.csv").read_text().splitlines()
    ]
    (tmp_path / "xz" / "elec.csv.xz").write_bytes(lzma.compress("\n".join(kept).encode()))
    first, *others = (load_test("elec2", path=str(tmp_path / one)) for one in ("csv", "arff", "xz"))
    for other in others:
        assert torch.equal(first.inputs, other.inputs)
        assert torch.equal(first.labels, other.labels)
    (tmp_path / "arff" / "elecNormNew.arff").write_text(text.replace("DOWN", "LEFT", 1))
    with pytest.raises(UserError, match=r"line 12: .*'LEFT'"):
        load_test("elec2", path=str(tmp_path / "arff"))


def test_a_person_s_answer_is_drawn_as_often_as_it_was_given() -> None:
    counts = numpy.tile([[6, 0, 3, 1]], (20_000, 1))
    shares = torch.bincount(drawn_answers(counts, 0), minlength=4) / 20_000
    # four deviations of a share of 20,000 draws
    torch.testing.assert_close(shares, torch.tensor([0.6, 0.0, 0.3, 0.1]), rtol=0, atol=0.014)
    assert torch.equal(drawn_answers(counts, 1), drawn_answers(counts, 1))
    assert not torch.equal(drawn_answers(counts, 1), drawn_answers(counts, 2))


def test_people_s_answers_stand_beside_the_test_images_of_cifar10(tmp_path: Path) -> None:
    settings = write_cifar10h(tmp_path)
    official = load_test("cifar10", path=str(tmp_path))
    most = load_test("cifar10h", labels="most", **settings)
    drawn = load_test("cifar10h", **settings)
    assert isinstance(official, Images)
    assert isinstance(most, Images)
    assert torch.equal(most.pixels, official.pixels)
    assert torch.equal(most.labels, official.labels)
    assert ((drawn.labels - official.labels) % 10 <= 1).all()
    numpy.save(tmp_path / "cifar10h-counts.npy", numpy.ones((19, 10)))
    with pytest.raises(UserError, match="each of the 20 test images of CIFAR-10, got 19"):
        load_test("cifar10h", **settings)


def test_letters_come_as_folders_without_empty_files_or_as_idx(tmp_path: Path) -> None:
    write_notmnist(tmp_path / "notMNIST_small")
    folders = load_test("notmnist", path=str(tmp_path))
    assert isinstance(folders, Images)
    assert folders.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert folders.pixels[3, 0, 0, 0] == 21
    packed = tmp_path / "idx"
    packed.mkdir()
    for name, data in (("images-idx3", bytes_of(5, 28, 28)), ("labels-idx1", cyclic(5))):
        (packed / f"t10k-{name}-ubyte").write_bytes(idx(data))
    assert len(load_test("notmnist", path=str(packed))) == 5
    with pytest.raises(UserError, match="a test part alone"):
        load_dataset("notmnist", path=str(tmp_path))


@pytest.mark.parametrize("name", ["usps", "elec2", "notmnist"])
def test_what_is_not_downloaded_says_where_it_comes_from(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="It is not downloaded: get it from"):
        load_test(name, path=str(tmp_path))


def test_validation_images_of_imagenet_are_halved_by_class(tmp_path: Path) -> None:
    write_imagenet_val(tmp_path / "folder")
    data = load_dataset("imagenet_val", path=str(tmp_path / "folder"))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [6, 6, 12]
    assert data.test.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "val_1.tar", "w") as archive:
        archive.add(tmp_path / "folder" / "val", "val")
    packed = load_test("imagenet_val", path=str(tmp_path / "packed"))
    assert isinstance(packed, Images)
    assert isinstance(data.test, Images)
    assert torch.equal(packed.pixels, data.test.pixels)


def test_real_labels_leave_out_images_of_no_class_or_several(tmp_path: Path) -> None:
    write_imagenet_val(tmp_path)
    real = load_test("imagenet_val", path=str(tmp_path), labels="real")
    assert real.labels.tolist() == [0, 0, 1, 1, 2, 2]
    loader = ImageNetVal(path=str(tmp_path))
    assert loader.test_names()[0] == "ILSVRC2012_val_00000005.JPEG"
    assert loader.real_labels()["ILSVRC2012_val_00000008.JPEG"] == [0, 1]


def test_the_sample_of_objectnet_is_read_with_imagenets_numbers(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        pixels = numpy.full((12, 16, 3), 90, dtype=numpy.uint8)
        pixels[:2] = pixels[-2:] = pixels[:, :2] = pixels[:, -2:] = (255, 0, 0)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    (tmp_path / "answers.json").write_text('{"b.png": 7, "a.png": 9, "c.png": 8}')
    mapping = '{"409": 7, "530": 7, "846": 8}'
    (tmp_path / "imagenet_pytorch_id_to_objectnet_id.json").write_text(mapping)
    labels = {
        which: load_test("objectnet", path=str(tmp_path), images=which, workers=0).labels.tolist()
        for which in ("known", "single", "unknown")
    }
    assert labels == {"known": [409, 846], "single": [846], "unknown": [-1]}
    first = load_test("objectnet", path=str(tmp_path), workers=0).first(1)
    torch.testing.assert_close(first.inputs, torch.full((1, 3, 224, 224), 90 / 255))
