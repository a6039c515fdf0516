"""Readers of the official layouts: right files, damaged ones, and the paper's splits."""

import gzip
import hashlib
import lzma
import time
from pathlib import Path

import numpy
import pytest
import torch

from falconcal.data import Dataset, Images, Part, load_dataset, load_test
from falconcal.errors import UsageError, UserError
from tests.helpers.official_layouts import (
    bytes_of,
    cifar_records,
    cyclic,
    idx,
    write_archive,
    write_cifar10,
    write_mnist,
)


def checksum(part: Part) -> str:
    """Return a checksum of all pixels and labels."""
    assert isinstance(part, Images)
    digest = hashlib.sha256(part.pixels.numpy().tobytes())
    digest.update(part.labels.numpy().tobytes())
    return digest.hexdigest()


def sizes(dataset: Dataset) -> list[int]:
    return [len(part) for part in (dataset.train, dataset.validation, dataset.test)]


@pytest.mark.parametrize("ending", [".gz", ""])
def test_mnist_is_read_packed_and_plain_and_its_last_5000_validate(
    tmp_path: Path, ending: str
) -> None:
    write_mnist(tmp_path, train=5030, test=20, ending=ending)
    mnist = load_dataset("mnist", path=str(tmp_path))
    assert sizes(mnist) == [30, 5000, 20]
    marks = (mnist.validation.first(3).inputs[:, 0, 0, 0] * 255).round()
    assert marks.tolist() == [30, 31, 32]
    assert mnist.train.shape == (1, 28, 28)
    pixels = bytes_of(20, 28, 28)[1]
    expected = torch.from_numpy(pixels / 255).float()[None]
    expected[0, 0, 0] = 1 / 255
    torch.testing.assert_close(mnist.train.first(2).inputs[1], expected, rtol=0, atol=0)


def test_the_folder_of_the_environment_is_found_and_a_path_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "data" / "MNIST" / "raw", test=20)
    write_mnist(tmp_path / "own", test=30)
    monkeypatch.setenv("FALCONCAL_DATA", str(tmp_path / "data"))
    assert len(load_test("mnist")) == 20
    assert len(load_test("mnist", path=str(tmp_path / "own"))) == 30
    monkeypatch.setenv("FALCONCAL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"FALCONCAL_DATA is .*not a folder"):
        load_test("mnist")
    with pytest.raises(UserError, match="nothing is there"):
        load_test("mnist", path=str(tmp_path / "nowhere"))


def test_damaged_idx_files_are_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    images = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = images.read_bytes()
    damages = {
        "cut off": whole[:-200],
        r"magic number 2051, got the bytes 00 00 08 01": gzip.compress(idx(cyclic(20))),
        "got 15679": gzip.compress(gzip.decompress(whole)[:-1]),
        "20 labels": gzip.compress(idx(bytes_of(21, 28, 28))),
    }
    for words, data in damages.items():
        images.write_bytes(data)
        with pytest.raises(UserError, match=words) as raised:
            load_test("mnist", path=str(tmp_path))
        assert str(images) in str(raised.value)
    images.unlink()
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte.gz or t10k.*falconcal data fetch"):
        load_test("mnist", path=str(tmp_path))


def test_too_few_images_cannot_be_split(tmp_path: Path) -> None:
    write_mnist(tmp_path, train=5000)
    with pytest.raises(UserError, match="more than 5000 training images"):
        load_dataset("mnist", path=str(tmp_path))


def test_labels_beyond_the_classes_are_refused_with_the_file(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(cyclic(20, 11))))
    with pytest.raises(UserError, match=r"t10k-images.*labels from 0 to 9.*got 10 at index 10"):
        load_test("mnist", path=str(tmp_path))


def write_cifar_arrays(folder: Path) -> None:
    """Write the records of ``write_cifar10`` as arrays with the channels last."""
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        rows = numpy.fromfile(folder / f"{name}.bin", numpy.uint8).reshape(-1, 3073)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        stem = name.replace("data_batch", "train_images").replace("test_batch", "test_images")
        with lzma.open(folder / f"{stem}.npy.xz", "wb", preset=0) as file:
            numpy.save(file, images)
        (folder / f"{name}.bin").unlink()
    numpy.save(folder / "train_labels.npy", numpy.tile(cyclic(1010), 5))
    numpy.save(folder / "test_labels.npy", cyclic(20))


@pytest.mark.end_to_end
def test_cifar_reads_the_same_from_every_layout(tmp_path: Path) -> None:
    plain, packed, arrays = (tmp_path / name for name in ("plain", "packed", "arrays"))
    write_cifar10(plain)
    write_cifar10(arrays)
    write_cifar_arrays(arrays)
    packed.mkdir()
    names = [path.name for path in plain.iterdir()]
    members = {f"cifar-10-batches-bin/{name}": (plain / name).read_bytes() for name in names}
    write_archive(packed / "cifar-10-binary.tar.gz", members)
    found = [load_dataset("cifar10", path=str(folder)) for folder in (plain, packed, arrays)]
    assert [sizes(dataset) for dataset in found] == [[50, 5000, 20]] * 3
    for part in ("train", "validation", "test"):
        assert len({checksum(getattr(dataset, part)) for dataset in found}) == 1
    record = cifar_records(1010, seed=1)[3]
    expected = torch.from_numpy(record[1:].reshape(3, 32, 32) / 255).float()
    torch.testing.assert_close(found[0].train.first(4).inputs[3], expected, rtol=0, atol=0)


def test_cifar_is_decoded_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from falconcal.data.sets import cifar10

    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path / "cache"))
    write_cifar10(tmp_path / "data")
    path = str(tmp_path / "data")
    once = checksum(load_test("cifar10", path=path))
    monkeypatch.setattr(cifar10, "_records", lambda _: pytest.fail("decoded again"))
    assert checksum(load_test("cifar10", path=path)) == once
    monkeypatch.undo()
    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path / "cache"))
    for array in (tmp_path / "cache").rglob("*.npy"):
        array.write_bytes(array.read_bytes()[:100])  # a cache that was damaged is made anew
    assert checksum(load_test("cifar10", path=path)) == once
    (tmp_path / "data" / "test_batch.bin").write_bytes(cifar_records(30, 5).tobytes())
    assert len(load_test("cifar10", path=path)) == 30


def test_cifars_pickles_are_refused_with_a_pointer_to_the_binary_version(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"\x80\x04.")
    for path in (tmp_path, folder):
        with pytest.raises(UserError, match=r"pickles.*cifar-10-binary\.tar\.gz"):
            load_dataset("cifar10", path=str(path))


def test_damaged_cifar_files_are_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    batch = tmp_path / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"test_batch\.bin: expected records of 3073 bytes"):
        load_test("cifar10", path=str(tmp_path))
    batch.unlink()
    archive = tmp_path / "cifar-10-binary.tar.gz"
    write_archive(archive, {"cifar-10-batches-bin/readme.html": b"nothing"})
    with pytest.raises(UserError, match=r"binary\.tar\.gz.*test_batch\.bin.*Fetch it again"):
        load_test("cifar10", path=str(tmp_path))
    archive.write_bytes(archive.read_bytes()[:50])
    with pytest.raises(UserError, match=r"binary\.tar\.gz.*Fetch it again"):
        load_test("cifar10", path=str(tmp_path))


def test_settings_of_datasets_are_checked() -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'paht'. Did you mean 'path'\?"):
        load_dataset("mnist", paht="x")
    with pytest.raises(UsageError, match=r"digits.*side"):
        load_dataset("digits", side=14)
    with pytest.raises(UsageError, match="Csv: path is missing"):
        load_dataset("csv")


def test_the_real_mnist_is_read_in_under_a_second_and_split_as_in_the_paper(
    real_data: Path,
) -> None:
    started = time.process_time()
    mnist = load_dataset("mnist", path=str(real_data / "mnist"))
    assert time.process_time() - started < 1
    assert sizes(mnist) == [55000, 5000, 10000]
    # the first ten labels of the official files, and the first of the last 5,000
    assert mnist.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert [checksum(part) for part in (mnist.train, mnist.validation)] == MNIST_CHECKSUMS


def test_the_real_clothes_are_there_as_outliers(real_data: Path) -> None:
    clothes = load_test("fashion_mnist", path=str(real_data / "fashion-mnist"))
    assert len(clothes) == 10000
    assert clothes.labels.bincount().tolist() == [1000] * 10


@pytest.mark.end_to_end
def test_the_real_test_images_of_cifar_are_the_official_ones(real_data: Path) -> None:
    test = load_test("cifar10", path=str(real_data / "cifar-10"))
    assert isinstance(test, Images)
    planes = test.pixels.permute(0, 3, 1, 2).flatten(1)
    records = torch.cat([test.labels[:, None].byte(), planes], 1)
    official = "803d5f7f4d78ea53de84dbe85f74fb6d"  # md5 of test_batch.bin
    assert hashlib.md5(records.numpy().tobytes()).hexdigest() == official


@pytest.mark.slow
def test_the_real_cifar_is_split_as_in_the_paper(real_data: Path) -> None:
    cifar = load_dataset("cifar10", path=str(real_data / "cifar-10"))
    assert sizes(cifar) == [45000, 5000, 10000]
    assert [checksum(part) for part in (cifar.train, cifar.validation)] == CIFAR_CHECKSUMS


MNIST_CHECKSUMS = [  # of pixels and labels, made by gzip and NumPy alone
    "0f2ed5e292b7895e575edbcda03a674665fc74653613d46f1b349739cc339a48",
    "61640d2a6035ca5e6e415f43b1764dd423788de4d09355bbba54d56066770a53",
]
CIFAR_CHECKSUMS = [
    "b6b4790b3b99d57cfb84b23d626f50f59d6d29725c4ff8b530f1ce62994f5822",
    "920b080dc4f6c9fb41d9a4972bf2e9feb9318e25fc5d4cd5a115fbd96e1d8137",
]
