"""Mutated files for all readers: each is read or refused in our words, and nothing else happens.

Half of the inputs have bytes changed, cut out or put in; the other half are whole files that say
hostile things. ``make test-slow`` goes on for ``FALCONCAL_FUZZ_MINUTES``, 10 unless set, shared
among the readers, each time from another seed; ``FALCONCAL_FUZZ_SEED`` repeats one.
"""

import copy
import gc
import io
import json
import math
import os
import random
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as some
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import nn

import falconcal
from falconcal.data import Bounds, Examples, load_dataset
from falconcal.errors import UserError
from falconcal.inference.inputs import open_inputs
from falconcal.inference.model_file import load
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.inference.prediction_files import read_predictions
from falconcal.io.parsing import parse_toml
from falconcal.methods import SVI, Ensemble, L2Dropout
from falconcal.recalibration import Temperature
from falconcal.studies import STUDIES
from falconcal.studies.study_reading import read_study
from tests.helpers.plain_study import TEXT
from tests.helpers.watched_process import COUNTS, harmless

pytestmark = pytest.mark.filterwarnings("ignore")
MINUTES = float(os.environ.get("FALCONCAL_FUZZ_MINUTES", "10"))
SEED = int(os.environ.get("FALCONCAL_FUZZ_SEED", str(random.SystemRandom().randrange(10**9))))
ROUND = 200  # inputs of one search
PATIENCE = 20  # seconds for one input
ROOM = 6 * 2**30  # bytes that an input may take beyond what is there
NAMES = (
    "os:system", "subprocess:Popen", "builtins:eval", "sys:exit", "math:pi", "lure:Net", "tests:x",
    "falconcal.models:make_model", "falconcal.io.atomic:write_text", "mlp", "lenet", "text_lstm",
    "dropout", "ensemble", "temperature", "digits", "npz", "shear", "mnist_c:fog", ":", "a | b",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2, 7, 10**6, 2**31, 2**63 - 1, 2**64 - 1, -(2**63), 0.5, -0.5, 1e308, 1e-320)
HOSTILE: tuple[Any, ...] = (
    *NAMES, *NUMBERS, math.nan, math.inf, "", "none", "best", "\x00", "../../x", "é" * 300,
    True, None, [], {}, [[[]]], list(NAMES[:3]), [1] * 50, {"name": "os:system"}, [0.1, "a", None],
    {"method": "lure:Net"}, {"name": "npz", "path": "/"}, {"low": 0, "high": math.nan},
)  # fmt: skip
Check = Callable[[bytes, Path], object]
Thing = TypeVar("Thing")
Few = Callable[[], tuple[Thing, ...]]  # a function, so that a failure does not print them all


# mutations


@some.composite
def damaged(draw: DrawFn, files: "Few[bytes]") -> bytes:
    """A file with a few of its bytes changed, cut out or put in."""
    content = bytearray(draw(some.sampled_from(files())))
    for _ in range(draw(some.integers(1, 5))):
        start = draw(some.integers(0, max(len(content) - 1, 0)))
        # most of what matters stands in the head of a file, or at the end of an archive
        start = draw(
            some.sampled_from((start, start % 512, max(len(content) - 1 - start % 256, 0)))
        )
        how = draw(some.sampled_from(("change", "cut", "put", "end")))
        if how == "change":
            content[start : start + 1] = draw(some.binary(min_size=1, max_size=4))
        elif how == "cut":
            del content[start : start + draw(some.integers(1, 64))]
        elif how == "put":
            content[start:start] = draw(some.binary(min_size=1, max_size=16))
        else:
            del content[start:]
    return bytes(content)


def paths_of(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the way to every value inside plain data; of long lists to the first few."""
    listed = values[:8] if isinstance(values, list) else []
    inner = values.items() if isinstance(values, dict) else enumerate(listed)
    for key, value in inner:
        yield (*path, key)
        yield from paths_of(value, (*path, key))


@some.composite
def forged(draw: DrawFn, tables: "Few[dict[str, Any]]") -> dict[str, Any]:
    """Plain data in which a few values are others, gone, or one deeper."""
    values: dict[str, Any] = json.loads(json.dumps(draw(some.sampled_from(tables()))))
    for _ in range(draw(some.integers(1, 4))):
        paths = list(paths_of(values))
        if not paths:
            break
        *way, key = draw(some.sampled_from(paths))
        inside = values
        for step in way:
            inside = inside[step]
        how = draw(some.sampled_from(("replace", "replace", "replace", "remove", "wrap", "add")))
        if how == "remove":
            del inside[key]
        elif how == "wrap":
            inside[key] = {"base": inside[key], "method": "temperature"}
        elif how == "add" and isinstance(inside, dict):
            inside[draw(some.sampled_from(NAMES))] = copy.deepcopy(draw(some.sampled_from(HOSTILE)))
        else:
            inside[key] = copy.deepcopy(draw(some.sampled_from(HOSTILE)))
    return values


# model files and checkpoints: safetensors with metadata in the head


def head_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the head of a safetensors file, its metadata as data, and the tensors behind it."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    head["__metadata__"] = json.loads(head["__metadata__"]["falconcal"])
    return head, content[8 + length :]


def with_head(head: dict[str, Any], tensors: bytes) -> bytes:
    metadata = json.dumps(head.get("__metadata__"))
    text = json.dumps({**head, "__metadata__": {"falconcal": metadata}}).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def tensor_files(files: tuple[bytes, ...]) -> SearchStrategy[bytes]:
    """Damaged files, files with forged metadata, and files with forged heads."""
    parts = [head_of(content) for content in files]
    by_metadata = [_forged_metadata(head, rest) for head, rest in parts]
    by_head = [_forged_head(head, rest) for head, rest in parts]
    return some.one_of(damaged(lambda: files), *by_metadata, *by_head)


def _forged_metadata(head: dict[str, Any], rest: bytes) -> SearchStrategy[bytes]:
    metadata = forged(lambda: (head["__metadata__"],))
    return metadata.map(lambda other: with_head({**head, "__metadata__": other}, rest))


def _forged_head(head: dict[str, Any], rest: bytes) -> SearchStrategy[bytes]:
    return forged(lambda: (head,)).map(lambda other: with_head(other, rest))


def saved_models() -> tuple[bytes, ...]:
    """Return a few small model files of different kinds."""
    classes, folder = ("a", "b", "c"), Path(os.environ["FUZZ_FOLDER"])
    rows = Examples(torch.rand(12, 4), torch.arange(12) % 3, Bounds(0.0, 1.0), classes)
    data = falconcal.Dataset("rows", "signal", classes, rows.bounds, rows, rows, rows)
    files = []
    for method in (None, L2Dropout(epochs=1), Temperature(base=L2Dropout(epochs=1)), SVI(epochs=1),
                   Ensemble(base=L2Dropout(epochs=1), size=2)):  # fmt: skip
        model = falconcal.make_model("mlp", data)
        if method is not None:
            model = method.fit(model, rows.batches(), rows.batches())
        file = folder / "seed"
        falconcal.save(
            model, file, "mlp", classes=classes, shape=(4,), method=method, bounds=data.bounds,
            columns=tuple("wxyz"),
        )  # fmt: skip
        files.append(file.read_bytes())
    return tuple(files)


def check_model(content: bytes, folder: Path) -> None:
    file = folder / "model"
    file.write_bytes(content)
    with harmless():
        load(file)


def trained(folder: Path) -> nn.Module:
    """Train for two short epochs, or go on from the checkpoint in the folder."""
    data = Examples(torch.linspace(0, 1, 24).reshape(6, 4), torch.arange(6) % 3)
    with falconcal.checkpointing(folder), torch.random.fork_rng():
        torch.manual_seed(0)
        return L2Dropout(epochs=2).fit(nn.Linear(4, 3), data.batches(3), data.batches())


def checkpoints() -> tuple[bytes, ...]:
    folder = Path(os.environ["FUZZ_FOLDER"]) / "made"
    trained(folder)
    (file,) = folder.iterdir()
    return (file.read_bytes(),)


def check_checkpoint(content: bytes, folder: Path) -> None:
    place = folder / "checkpoints"
    place.mkdir(exist_ok=True)
    (place / "training-1.safetensors").write_bytes(content)
    with harmless(place):
        trained(place)


# study files


def written(value: Any) -> str:
    """Return plain data as TOML, tables inline; what TOML cannot say becomes text."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(str(k))} = {written(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # also nan and inf
    return json.dumps("none" if value is None else value)


def study_text(values: dict[str, Any]) -> bytes:
    lines = (f"{json.dumps(str(key))} = {written(value)}\n" for key, value in values.items())
    return "".join(lines).encode()


def study_files() -> SearchStrategy[bytes]:
    more = "[variants.other]\n'dropout.epochs' = 2\n[search.dropout]\ndropout = [0.1, 0.2]\n"
    texts = (*STUDIES.values(), TEXT + more)
    tables = tuple(parse_toml(text) for text in texts)
    bytes_of = tuple(text.encode() for text in texts)
    return some.one_of(damaged(lambda: bytes_of), forged(lambda: tables).map(study_text))


def check_study(content: bytes, folder: Path) -> None:
    text = content.decode(errors="replace")
    with harmless(), working_in(folder):
        read_study(text, "fuzzed", smoke=len(text) % 2 == 0).resolved()


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# data

FACTS = ModelMetadata(architecture="mlp", classes=("a", "b"), shape=(3,), columns=("x", "y", "z"))


def arrays() -> tuple[bytes, ...]:
    inputs, labels = numpy.random.default_rng(0).random((12, 3)), numpy.arange(12) % 2
    probabilities = numpy.stack([inputs[:, 0], 1 - inputs[:, 0]], 1)
    pictures = (numpy.random.default_rng(0).random((12, 4, 4)) * 255).astype(numpy.uint8)
    contents: list[dict[str, Any]] = [
        {"train_inputs": inputs, "train_labels": labels},
        {"train_inputs": pictures, "train_labels": labels, "classes": numpy.array(["a", "b"])},
        {"labels": labels, "probabilities": probabilities, "inputs": inputs.astype("f4")},
        {"inputs": inputs},
    ]
    files = []
    for content in contents:
        for save in (numpy.savez, numpy.savez_compressed):
            buffer = io.BytesIO()
            save(buffer, **content)
            files.append(buffer.getvalue())
    return tuple(files)


def check_npz(content: bytes, folder: Path) -> None:
    check_data(content, folder / "x.npz", "npz")


def tables() -> tuple[bytes, ...]:
    rows = [f"{i / 7},{i},{-i},{'ab'[i % 2]}" for i in range(12)]
    predictions = [f"{i % 2},{i / 12},{1 - i / 12}" for i in range(12)]
    texts = ("x,y,z,label", *rows), ("label,p_a,p_b", *predictions), ("x,y,z", "1,2,3", "4,5,6")
    return tuple(("\n".join(lines) + "\n").encode() for lines in texts)


def check_csv(content: bytes, folder: Path) -> None:
    check_data(content, folder / "x.csv", "csv")


def check_data(content: bytes, file: Path, kind: str) -> None:
    """Give a file to the three readers of data; it counts as read when one of them does."""
    file.write_bytes(content)
    readers: list[Callable[[], object]] = [
        lambda: load_dataset(kind, path=str(file)),
        lambda: read_predictions(file),
        lambda: list(open_inputs(file, FACTS).batches),
    ]
    refused = []
    for read in readers:
        try:
            with harmless():
                read()
        except UserError as error:
            refused.append(error)
    if len(refused) == len(readers):
        raise refused[0]


# the search

TARGETS: dict[str, tuple[Callable[[], SearchStrategy[bytes]], Check]] = {
    "model files": (lambda: tensor_files(saved_models()), check_model),
    "study files": (study_files, check_study),
    "NPZ files": (lambda: damaged(cache(arrays)), check_npz),
    "CSV files": (lambda: damaged(cache(tables)), check_csv),
    "checkpoints": (lambda: tensor_files(checkpoints()), check_checkpoint),
}


class HangError(Exception):
    """An input took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Bound the memory of this process, and let an input that hangs end in an error."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    before = signal.signal(signal.SIGALRM, _hang)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _hang(*_: object) -> None:
    raise HangError(f"more than {PATIENCE} seconds")


def search(target: str, folder: Path, number: int, inputs: int, met: Counter[str]) -> None:
    """Look for an input that is neither read nor refused, and count the others."""
    make, check = TARGETS[target]

    @seed(number)
    @settings(
        max_examples=inputs, deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(make())
    def one(content: bytes) -> None:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(content, folder)
            met["read"] += 1
        except UserError as error:
            met["refused"] += 1
            met["without words"] += not str(error) or "Traceback" in str(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    with limited(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that a library leaves open when it fails
        try:
            one()
        finally:
            gc.collect()
    assert not met.pop("without words", 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUZZ_FOLDER", str(tmp_path))
    return tmp_path


@pytest.mark.end_to_end
@pytest.mark.parametrize("target", TARGETS)
def test_a_few_mutated_files(target: str, folder: Path) -> None:
    met: Counter[str] = Counter()
    search(target, folder, 0, 60, met)
    assert met["refused"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_mutated_files_are_read_or_refused(target: str, folder: Path) -> None:
    met: Counter[str] = Counter()
    begun, number = time.monotonic(), SEED
    try:
        while time.monotonic() - begun < 60 * MINUTES / len(TARGETS):
            search(target, folder, number, ROUND, met)
            number += 1
    finally:
        seconds = time.monotonic() - begun
        COUNTS[target] = (
            f"{met.total():,} inputs in {seconds:.0f} s, {60 * met.total() / seconds:,.0f} per "
            f"minute: {met['refused']:,} refused, {met['read']:,} read, from seed {SEED}"
        )
    assert met["read"]
    assert met["refused"]
