"""The folder in which bad inputs are tried: good files, and each of them spoiled in every way."""

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import polars
import safetensors.torch
import torch
from PIL import Image

import falconcal
from falconcal.data import load_dataset
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.models import make_model
from tests.helpers.report_study import make_study

PREDICTIONS = {"label": [0, 1, 1, 0], "p_0": [0.8, 0.6, 0.3, 0.1], "p_1": [0.2, 0.4, 0.7, 0.9]}
STUDY = """
name = "small"
dataset = "digits"
model = "lenet"
shifts = ["shear", "xshift"]
selection_shifts = ["contrast"]
[methods.dropout]
epochs = 1
[methods.falcon]
epochs = 1
keep = "best"
"""
BEST = "[methods.falcon]\nepochs = 2\n"
TEXTS = ("p.csv", "rows.csv", "own.csv", "study.toml", "best.toml")
BINARIES = ("p.parquet", "p.npz", "x.npy", "x.npz", "own.npz", "model.safetensors")
FILES = (*TEXTS, *BINARIES)
RUN = "runs/default/falcon/seed-1"
FOLDER_FILES = (
    "study.json",
    "rows.parquet",
    f"{RUN}/settings.json",
    f"{RUN}/run.json",
    f"{RUN}/history.parquet",
    f"{RUN}/scores.parquet",
)


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, format="PNG")
    return buffer.getvalue()


def _noise(content: bytes) -> bytes:
    return random.Random(len(content)).randbytes(max(100, len(content)))


# what is done to the bytes of a good file
SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) * 2 // 3],
    "noise": _noise,
    "zeros": lambda content: bytes(max(100, len(content))),
    "picture": lambda _: _png(),
    "utf16": lambda content: content.decode().encode("utf-16"),
    "latin1": lambda content: "größe\n".encode("latin-1") + content,
    "flipped": lambda content: bytes(255 - byte for byte in content[:64]) + content[64:],
}
OF_TEXTS = ("utf16", "latin1")  # binary files have no encoding
# what stands in the place of a file
IN_ITS_PLACE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path,
    "folder": lambda path: path.mkdir(),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "unreadable": lambda path: path.symlink_to("/proc/self/mem"),  # for the administrator too
}


def spoilings(name: str) -> list[str]:
    """Return the ways in which a file is spoiled."""
    return [kind for kind in SPOILED if name in TEXTS or kind not in OF_TEXTS]


def write_home(home: Path) -> None:
    """Write all files, good and bad: ``good/NAME``, ``bad/KIND/NAME`` and folders of runs."""
    good = home / "good"
    good.mkdir()
    _write_good(good)
    for name in FILES:
        for kind in spoilings(name):
            target = home / "bad" / kind / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(SPOILED[kind]((good / name).read_bytes()))
        for kind, put in IN_ITS_PLACE.items():
            (home / "bad" / kind).mkdir(parents=True, exist_ok=True)
            put(home / "bad" / kind / name)
    _write_folders(home)
    _write_pictures(home)
    _write_tables(home / "bad" / "tables")
    _write_metadata(home / "bad" / "metadata", good / "model.safetensors")
    (home / "a_file").write_text("in the way")


def _write_good(good: Path) -> None:
    table = polars.DataFrame(PREDICTIONS)
    table.write_csv(good / "p.csv")
    table.write_parquet(good / "p.parquet")
    probabilities = table.select("p_0", "p_1").to_numpy()
    numpy.savez(good / "p.npz", labels=table["label"].to_numpy(), probabilities=probabilities)
    features = numpy.random.RandomState(0).rand(40, 3).astype(numpy.float32)
    labels = numpy.arange(40) % 3
    numpy.save(good / "x.npy", features)
    numpy.savez(good / "x.npz", inputs=features)
    numpy.savez(good / "own.npz", train_inputs=features, train_labels=labels)
    rows = polars.DataFrame(features, schema=["a", "b", "c"])
    rows.write_csv(good / "rows.csv")
    rows.with_columns(label=polars.Series(labels)).write_csv(good / "own.csv")
    (good / "study.toml").write_text(STUDY)
    (good / "best.toml").write_text(BEST)
    data = load_dataset("npz", path=str(good / "own.npz"))
    model = make_model("mlp", data)
    checked = falconcal.predict(model, data.validation)
    for name, validation in (("model", checked), ("plain", None)):
        falconcal.save(
            model, good / f"{name}.safetensors", "mlp", classes=data.classes,
            shape=data.train.shape, columns=("a", "b", "c"), validation=validation,
        )  # fmt: skip
    safetensors.torch.save_file({"a": torch.zeros(2)}, good / "weights_alone.safetensors")
    make_study(good / "out", seeds=(1,))


def _write_folders(home: Path) -> None:
    """Write a copy of an output folder for each of its files and each way to damage that."""
    contents = {"missing": None, "empty": b"", "noise": _noise(b""), "list": b"[1, 2]"}
    for number, name in enumerate(FOLDER_FILES):
        for kind, content in contents.items():
            folder = home / "bad" / "out" / f"{number}-{kind}"
            shutil.copytree(home / "good" / "out", folder)
            (folder / name).unlink()
            if content is not None:
                (folder / name).write_bytes(content)
    for name, study in STUDY_JSON.items():
        folder = home / "bad" / "out" / name
        shutil.copytree(home / "good" / "out", folder)
        (folder / "study.json").write_text(json.dumps(study))


NAN, INFINITE = float("nan"), float("inf")
# predictions that are a table, and not what they should be: columns, words
TABLES: dict[str, tuple[dict[str, list[object]], str]] = {
    "sum": ({"label": [0, 1], "p_0": [0.8, 0.5], "p_1": [0.2, 0.6]}, "sum to 1"),
    "negative": ({"label": [0, 1], "p_0": [1.1, 0.5], "p_1": [-0.1, 0.5]}, "negative"),
    "nan": ({"label": [0, 1], "p_0": [NAN, 0.5], "p_1": [0.2, 0.5]}, "nan"),
    "infinite": ({"label": [0, 1], "p_0": [INFINITE, 0.5], "p_1": [0.2, 0.5]}, "inf"),
    "label": ({"label": [0, 7], "p_0": [0.8, 0.5], "p_1": [0.2, 0.5]}, "7"),
    "minus": ({"label": [0, -3], "p_0": [0.8, 0.5], "p_1": [0.2, 0.5]}, "-3"),
    "fraction": ({"label": [0.0, 0.5], "p_0": [0.8, 0.5], "p_1": [0.2, 0.5]}, "0.5"),
    "one_class": ({"label": [2, 1], "p_0": [1.0, 1.0]}, "p_"),
    "no_label": ({"p_0": [0.8, 0.5], "p_1": [0.2, 0.5]}, "label"),
    "no_classes": ({"label": [0, 1]}, "p_"),
    "no_rows": ({"label": [], "p_0": [], "p_1": []}, "no"),
}


def _write_tables(folder: Path) -> None:
    folder.mkdir()
    for name, (columns, _) in TABLES.items():
        table = polars.DataFrame(columns)
        table.write_csv(folder / f"{name}.csv")
        table.write_parquet(folder / f"{name}.parquet")
        arrays = {"probabilities": table.select(r"^p_.*$").to_numpy()}
        if "label" in columns:
            arrays["labels"] = table["label"].to_numpy()
        numpy.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)


# what stands in a model file in the place of a fact, and words of the message
FACTS: dict[str, tuple[dict[str, object], str]] = {
    "unknown_architecture": ({"architecture": "mpl"}, "mpl"),
    "architecture_is_a_number": ({"architecture": 3}, "architecture"),
    "other_architecture": ({"architecture": "lenet"}, "lenet"),
    "from_the_standard_library": ({"architecture": "os:system"}, "os:system"),
    "wrong_arguments": ({"arguments": {"what": 1}}, "what"),
    "arguments_are_a_list": ({"arguments": [1]}, "arguments"),
    "one_class": ({"classes": ["a"]}, "classes"),
    "doubled_classes": ({"classes": ["a", "a", "b"]}, "a different name for each class"),
    "other_number_of_classes": ({"classes": ["a", "b"]}, "do not fit"),
    "shape_zero": ({"shape": [0]}, "shape"),
    "shape_negative": ({"shape": [-3]}, "shape"),
    "shape_is_text": ({"shape": "3"}, "shape"),
    "shape_too_large": ({"shape": [10**9, 10**9]}, "at most"),
    "other_columns": ({"columns": ["a"]}, "column"),
    "bounds_of_text": ({"bounds": {"low": "x", "high": 1}}, "bounds"),
    "bounds_upside_down": ({"bounds": {"low": 1.0, "high": 0.0}}, "low"),
    "tokens_zero": ({"tokens": 0}, "tokens"),
    "mean_alone": ({"mean": [0.5, 0.5, 0.5]}, "deviation"),
    "unknown_method": ({"method": {"method": "falkon"}}, "falcon"),
    "unknown_fact": ({"what": 1}, "what"),
    "risks_of_text": ({"risks": "low"}, "risks"),
}
USAGE_FACTS = ("unknown_architecture", "from_the_standard_library", "unknown_method")


def _write_metadata(folder: Path, model: Path) -> None:
    tensors, head = read_tensors(model)
    for name, (metadata, _) in FACTS.items():
        changed = {**head, "facts": {**head["facts"], **metadata}}
        write_tensors(folder / f"{name}.safetensors", tensors, changed)


# study.json as it may not be
STUDY_JSON: dict[str, object] = {
    "no-name": {"shifts": ["rotation"]},
    "name-is-a-number": {"name": 3, "shifts": ["rotation"]},
    "no-shifts": {"name": "digits", "shifts": []},
    "shifts-are-text": {"name": "digits", "shifts": "rotation"},
    "a-shift-without-rows": {"name": "digits", "shifts": ["rotation", "of_nobody"]},
}


def _write_pictures(home: Path) -> None:
    folder = home / "bad" / "pictures"
    (folder / "none").mkdir(parents=True)
    (folder / "texts").mkdir()
    (folder / "texts" / "some.txt").write_text("no picture")
