"""20 Newsgroups by date, words by frozen GloVe vectors: the paper's 9,000 / 2,314 / 7,532 texts.

K. Lang, NewsWeeder, ICML 1995, in J. Rennie's version by date; J. Pennington, R. Socher and C.
Manning, GloVe, EMNLP 2014. The training texts are shuffled once: in the order of the folders, the
first 9,000 hold only 16 of the 20 groups. The vocabulary is that of the training part.
"""

import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import overload

import numpy
import torch

from falconcal.core.settings import Count, settings
from falconcal.data.array_cache import cached_arrays
from falconcal.data.data_files import GLOVE, NEWSGROUPS
from falconcal.data.dataset import Dataset
from falconcal.data.part import Examples
from falconcal.data.texts import Texts
from falconcal.data.vocabulary import Encoder, most_frequent, read_vectors
from falconcal.errors import UserError

MEMBER = re.compile(r"^(?:\./)?20news-bydate-(train|test)/([^/]+)/(\d+)$")
VECTOR_WIDTH = 100
RECIPE = 1  # of the cache; raise it when texts are split into words in another way


@settings
class Newsgroups:
    """20 Newsgroups, with settings."""

    length: Count = 2500
    """Words per text that are kept, from the first."""

    vocabulary: Count = 20_000
    """The number of most frequent words that are kept."""

    training: Count = 9000
    """Texts to train on; the other texts of the training folder are for validation."""

    path: str | None = None
    """The archive or its folder; by default it is looked for where data is kept."""

    vectors: str | None = None
    """The file of GloVe's word vectors; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        archive, vectors = NEWSGROUPS.find_or_fetch(self.path), GLOVE.find_or_fetch(self.vectors)
        sizes = (RECIPE, self.length, self.vocabulary, self.training)
        arrays = cached_arrays(
            "newsgroups", [archive, vectors], lambda: self._arrays(archive, vectors), *sizes
        )
        return _dataset(archive, self, *arrays)

    def _arrays(self, archive: Path, vectors: Path) -> tuple[numpy.ndarray, ...]:
        """Return tokens and labels of training folder and test, word vectors, words, groups."""
        documents = read_documents(archive)
        order = shuffled(len(documents["train"].texts))
        _check_sizes(archive, self.training, len(order))
        train = [documents["train"].texts[index] for index in order]
        words = most_frequent(train[: self.training], self.vocabulary)
        encode = Encoder(words, self.length)
        return (
            encode(train).numpy(),
            documents["train"].labels[order],
            encode(documents["test"].texts).numpy(),
            documents["test"].labels,
            read_vectors(vectors, words, VECTOR_WIDTH),
            _as_bytes(words),
            _as_bytes(documents["train"].groups),
        )


def shuffled(count: int) -> numpy.ndarray:
    """Return the order of the training texts, the same on every machine and in every version."""
    return numpy.random.RandomState(0).permutation(count)  # whose numbers NumPy never changes


@dataclass(frozen=True, eq=False)
class Documents:
    """The texts of one folder, in the order of groups and names."""

    texts: list[str]
    labels: numpy.ndarray  # (N,)
    groups: tuple[str, ...]


def read_documents(archive: Path) -> dict[str, Documents]:
    """Return the texts of both folders, those of the last archive from memory."""
    return _read_documents(archive, archive.stat().st_mtime_ns, archive.stat().st_size)


@lru_cache(maxsize=1)
def _read_documents(archive: Path, *_: int) -> dict[str, Documents]:
    """Read members in place; nothing is unpacked to disk."""
    found: dict[str, dict[tuple[str, str], str]] = {"train": {}, "test": {}}
    try:
        with tarfile.open(archive) as members:
            for part, group, name, text in _texts(members):
                found[part][group, name] = text
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(
            f"{archive}: expected 20 Newsgroups by date, it is damaged ({error}): fetch it again."
        ) from None
    groups = {part: tuple(sorted({group for group, _ in texts})) for part, texts in found.items()}
    if len(groups["train"]) < 2 or groups["train"] != groups["test"]:
        raise UserError(
            f"{archive}: expected the same groups in 20news-bydate-train and 20news-bydate-test, "
            f"got {len(groups['train'])} and {len(groups['test'])}: is it the version by date?"
        )
    return {part: _in_order(texts, groups[part]) for part, texts in found.items()}


class LazyTexts(Sequence[str]):
    """Raw texts in some order, read from the archive when the first is asked for."""

    def __init__(self, archive: Path, part: str, order: numpy.ndarray) -> None:
        self.archive, self.part, self.order = archive, part, order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyTexts": ...
    def __getitem__(self, index: int | slice) -> "str | LazyTexts":
        if isinstance(index, slice):
            return LazyTexts(self.archive, self.part, self.order[index])
        return read_documents(self.archive)[self.part].texts[int(self.order[index])]


def _dataset(
    archive: Path,
    chosen: Newsgroups,
    train: numpy.ndarray,
    train_labels: numpy.ndarray,
    test: numpy.ndarray,
    test_labels: numpy.ndarray,
    vectors: numpy.ndarray,
    words: numpy.ndarray,
    groups: numpy.ndarray,
) -> Dataset:
    encoder, classes = Encoder(_from_bytes(words), chosen.length), _from_bytes(groups)

    def examples(
        part: str, tokens: numpy.ndarray, labels: numpy.ndarray, order: numpy.ndarray
    ) -> Examples:
        texts = Texts(LazyTexts(archive, part, order), encoder)
        inputs, answers = torch.from_numpy(tokens), torch.from_numpy(labels)
        return Examples(inputs, answers, None, classes, len(vectors), texts)

    order, cut = shuffled(len(train)), chosen.training
    parts = (
        examples("train", train[:cut], train_labels[:cut], order[:cut]),
        examples("train", train[cut:], train_labels[cut:], order[cut:]),
        examples("test", test, test_labels, numpy.arange(len(test))),
    )
    return Dataset(
        "newsgroups", "text", classes, None, *parts, torch.from_numpy(vectors), encoder=encoder
    )


def _texts(members: tarfile.TarFile) -> Iterator[tuple[str, str, str, str]]:
    for member in members:
        named = MEMBER.match(member.name)
        file = members.extractfile(member) if named and member.isfile() else None
        if named is not None and file is not None:
            yield named[1], named[2], named[3], file.read().decode("latin-1")


def _in_order(texts: dict[tuple[str, str], str], groups: tuple[str, ...]) -> Documents:
    keys = sorted(texts)
    labels = numpy.array([groups.index(group) for group, _ in keys])
    return Documents([texts[key] for key in keys], labels, groups)


def _check_sizes(archive: Path, training: int, count: int) -> None:
    if count <= training:
        raise UserError(
            f"{archive}: expected more than {training} training texts, because the others are for "
            f"validation, got {count}."
        )


def _as_bytes(words: Sequence[str]) -> numpy.ndarray:
    return numpy.frombuffer("\n".join(words).encode(), numpy.uint8)


def _from_bytes(array: numpy.ndarray) -> tuple[str, ...]:
    return tuple(array.tobytes().decode().split("\n"))
