"""Tiny data in the official layouts: files that the readers take for the real ones."""

import bz2
import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from PIL import Image


def bytes_of(*shape: int, seed: int = 0, below: int = 256) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(0, below, shape, dtype=numpy.uint8)


def cyclic(count: int, classes: int = 10) -> numpy.ndarray:
    """Return labels of which every class has some."""
    return (numpy.arange(count) % classes).astype(numpy.uint8)


def idx(array: numpy.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


def write_mnist(folder: Path, train: int = 5030, test: int = 20, ending: str = ".gz") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        # rows that repeat, so that packing them takes no time
        images = numpy.resize(bytes_of(20, 28, 28), (count, 28, 28))
        images[:, 0, 0] = numpy.arange(count) % 251  # by which an image is known again
        for kind, data in (("images-idx3", images), ("labels-idx1", cyclic(count))):
            packed = gzip.compress(idx(data), 1) if ending else idx(data)
            (folder / f"{part}-{kind}-ubyte{ending}").write_bytes(packed)


def cifar_records(count: int, seed: int = 0) -> numpy.ndarray:
    """Return records of the binary version: label, then planes of red, green and blue."""
    planes = numpy.resize(bytes_of(10, 3072, seed=seed), (count, 3072))
    return numpy.concatenate([cyclic(count)[:, None], planes], 1)


def write_cifar10(folder: Path, train: int = 1010, test: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(cifar_records(train, number).tobytes())
    (folder / "test_batch.bin").write_bytes(cifar_records(test).tobytes())


GROUPS = ("alt.birds", "rec.boats", "sci.stars")


def newsgroup_text(group: int, number: int) -> str:
    """Return a text with a head; its group shows in one word, its number in how often."""
    subject = ("wing", "sail", "light")[group]
    return f"From: somebody\n\nThe {subject}'s {subject} " + f"WORD{number % 5}, " * (
        1 + number % 5
    )


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def newsgroup_members(part: str, count: int) -> dict[str, bytes]:
    return {
        f"20news-bydate-{part}/{GROUPS[number % 3]}/{1000 + number}": newsgroup_text(
            number % 3, number
        ).encode("latin-1")
        for number in range(count)
    }


def write_newsgroups(folder: Path) -> dict[str, Any]:
    members = {**newsgroup_members("train", 60), **newsgroup_members("test", 30)}
    write_archive(folder / "20news-bydate.tar.gz", members)
    lines = [f"{word} " + " ".join(f"{index}.5" for _ in range(100)) for index, word in VECTORS]
    (folder / "glove.6B.100d.txt").write_text("\n".join(lines) + "\n")
    return {"path": str(folder), "vectors": str(folder), "training": 40, "length": 8}


VECTORS = list(enumerate(("the", "wing", "sail", "light", "from")))


def write_images(folder: Path, classes: tuple[str, ...], count: int, ending: str = ".png") -> None:
    """Write images 12 high and 16 wide, a class by its brightness, an image by its first pixel."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = numpy.full((12, 16, 3), 60 * label + 40, dtype=numpy.uint8)
            pixels[0, 0] = number
            Image.fromarray(pixels).save(folder / name / f"{number:02}{ending}")


def write_image_folder(folder: Path) -> dict[str, Any]:
    write_images(folder, ("dark", "middle", "bright"), 10)
    return {"path": str(folder), "size": 8}


def write_imagenet(folder: Path) -> dict[str, Any]:
    for part, count in (("train", 6), ("val", 3)):
        write_images(folder / part, ("n01440764", "n01443537", "n01484850"), count, ".JPEG")
    return {"path": str(folder), "workers": 0, "held_out": 3}


SYNSETS = ("n01440764", "n01443537", "n01484850")


def write_imagenet_val(folder: Path) -> None:
    """Write eight validation images per class with the official names, and ReaL labels."""
    number = 0
    for label, synset in enumerate(SYNSETS):
        (folder / "val" / synset).mkdir(parents=True)
        for _ in range(8):
            number += 1
            pixels = numpy.full((12, 16, 3), 60 * label + 40, dtype=numpy.uint8)
            name = f"ILSVRC2012_val_{number:08}.JPEG"
            Image.fromarray(pixels).save(folder / "val" / synset / name)
    real = [[one // 8] if one % 8 < 6 else [] if one % 8 == 6 else [0, 1] for one in range(number)]
    (folder / "real.json").write_text(json.dumps(real))


def write_objectnet(folder: Path) -> dict[str, Any]:
    """Write a known class, one that is two of ImageNet's, and one that it lacks."""
    write_images(folder / "images", ("clock", "chair", "boat"), 4)
    files = {
        "imagenet_to_label_2012_v2": "sundial\nrocker\nthrone\n",
        "pytorch_to_imagenet_2012_id.json": '{"0": 2, "1": 0, "2": 1}',
        "objectnet_to_imagenet_1k.json": '{"Clock": "sundial", "Chair": "rocker; throne"}',
        "folder_to_objectnet_label.json": '{"clock": "Clock", "chair": "Chair", "boat": "Boat"}',
    }
    (folder / "mappings").mkdir()
    for name, text in files.items():
        (folder / "mappings" / name).write_text(text)
    return {"path": str(folder), "workers": 0}


def write_text_folder(folder: Path) -> dict[str, Any]:
    for label, group in enumerate(GROUPS):
        (folder / group).mkdir(parents=True)
        for number in range(10):
            (folder / group / f"{number}.txt").write_text(newsgroup_text(label, number))
    return {"path": str(folder), "length": 6}


def write_npz(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    inputs = numpy.random.default_rng(0).random((30, 4), dtype=numpy.float32)
    path = folder / "numbers.npz"
    numpy.savez(path, train_inputs=inputs, train_labels=cyclic(30, 3))
    return {"path": str(path), "bounds": (0.0, 1.0)}


def write_csv(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{number},{number / 7:.3f},{('no', 'yes')[number % 2]}" for number in range(30)]
    (folder / "rows.csv").write_text("width,height,label\n" + "\n".join(rows) + "\n")
    return {"path": str(folder / "rows.csv")}


def gas_lines(count: int, seed: int, concentrations: bool = True) -> str:
    """Return lines of a batch: the gas, its concentration, and 128 numbers with their columns."""
    numbers = numpy.random.default_rng(seed).normal(seed, 1 + seed, (count, 128))
    lines = []
    for number, row in enumerate(numbers):
        head = f"{number % 6 + 1};10.000000" if concentrations else f"{number % 6 + 1}"
        cells = " ".join(f"{place}:{value:.6f}" for place, value in enumerate(row, start=1))
        lines.append(f"{head} {cells} ")
    return "\n".join(lines) + "\n"


def write_gas_drift(folder: Path, batches: int = 4) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, batches + 1):
        (folder / f"batch{number}.dat").write_text(gas_lines(30, number))


def write_usps(folder: Path) -> None:
    """Write LIBSVM's two files: labels from 1, numbers from -1 to 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("usps.bz2", 40), ("usps.t.bz2", 20)):
        values = bytes_of(count, 256) / 127.5 - 1
        rows = [
            f"{number % 10 + 1} " + " ".join(f"{k}:{v:.4f}" for k, v in enumerate(row, start=1))
            for number, row in enumerate(values)
        ]
        (folder / name).write_bytes(bz2.compress("\n".join(rows).encode()))


def write_elec2(folder: Path) -> None:
    """Write MOA's CSV of 30 days; the price rises with its number."""
    folder.mkdir(parents=True, exist_ok=True)
    names = "date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class"
    rows = [
        f"0.{row:04},{row // 48 % 7},{row % 48 / 47:.6f},{row / 1440:.6f},0.4,0.003467,0.42,0.41,"
        + ("UP" if row % 3 else "DOWN")
        for row in range(30 * 48)
    ]
    (folder / "elecNormNew.csv").write_text("\n".join([names, *rows]) + "\n")


def write_notmnist(folder: Path) -> None:
    """Write the folders of letters, and one empty file, as the official data has."""
    for label, letter in enumerate("ABCDEFGHIJ"):
        (folder / letter).mkdir(parents=True)
        for number in range(2):
            pixels = numpy.full((28, 28), 20 * label + number, dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / letter / f"{number}.png")
    (folder / "A" / "broken.png").touch()


def write_cifar10h(folder: Path) -> dict[str, Any]:
    """Write CIFAR-10 and three answers per test image: two for its label, one for the next."""
    write_cifar10(folder)
    labels = cyclic(20)
    counts = 2 * numpy.eye(10, dtype=numpy.int64)[labels]
    counts += numpy.eye(10, dtype=numpy.int64)[(labels + 1) % 10]
    numpy.save(folder / "cifar10h-counts.npy", counts)
    return {"path": str(folder), "answers": str(folder)}


def _at(write: Callable[[Path], None]) -> Callable[[Path], dict[str, Any]]:
    def made(folder: Path) -> dict[str, Any]:
        write(folder)
        return {"path": str(folder)}

    return made


# settings under which each dataset that reads files is there
MADE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "mnist": _at(write_mnist),
    "fashion_mnist": _at(write_mnist),
    "cifar10": _at(write_cifar10),
    "sequential_mnist": _at(write_mnist),
    "newsgroups": write_newsgroups,
    "gas_drift": _at(write_gas_drift),
    "usps": _at(write_usps),
    "elec2": _at(write_elec2),
    "notmnist": _at(write_notmnist),
    "cifar10h": write_cifar10h,
    "imagenet": write_imagenet,
    "imagenet_val": _at(write_imagenet_val),
    "objectnet": write_objectnet,
    "image_folder": write_image_folder,
    "text_folder": write_text_folder,
    "npz": write_npz,
    "csv": write_csv,
}
