r"""Words as numbers: text to words, a vocabulary, and word vectors of GloVe.

As Keras's tokenizer with the paper's list of characters: lower case, each listed character becomes
a blank, and words are what is between blanks. Words outside the vocabulary are dropped, the first
words of a text are kept, and zeros fill the end. The list is Keras's and the apostrophe; in print
the paper's list has no ``|``, because it delimits the list.
"""

import gzip
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
import torch
from torch import Tensor

from falconcal.errors import UserError

REMOVED = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'"
BLANKS = str.maketrans(dict.fromkeys(REMOVED, " "))


@dataclass(frozen=True, eq=False)
class Encoder:
    """Makes tokens of texts: 1 for the first word of the vocabulary, 0 for padding."""

    vocabulary: tuple[str, ...]
    length: int

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the first known words of each text, (N,) -> (N, length) int32."""
        tokens = numpy.zeros((len(texts), self.length), dtype=numpy.int32)
        for row, text in zip(tokens, texts, strict=True):
            known = [number for word in split_words(text) if (number := self.numbers.get(word))]
            row[: len(known)] = known[: self.length]
        return torch.from_numpy(tokens)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary, start=1)}


def split_words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.lower().translate(BLANKS).split()


def most_frequent(texts: Iterable[str], size: int) -> tuple[str, ...]:
    """Return the vocabulary: the most frequent words; of equals those that come first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text))
    return tuple(word for word, _ in counts.most_common(size))


def read_vectors(path: Path, vocabulary: Sequence[str], width: int) -> numpy.ndarray:
    """Return the vectors of a vocabulary, (words + 1, width); zeros for padding and the unknown."""
    vectors = numpy.zeros((len(vocabulary) + 1, width), dtype=numpy.float32)
    numbers = {word.encode(): number for number, word in enumerate(vocabulary, start=1)}
    with _lines(path) as lines:
        for number, line in enumerate(lines, start=1):
            word, _, values = line.partition(b" ")
            if word in numbers:
                vectors[numbers[word]] = _numbers(path, number, values, width)
    if not vectors.any():
        raise UserError(f"{path}: expected vectors of the words in the texts, it has none of them.")
    return vectors


def _numbers(path: Path, line: int, values: bytes, width: int) -> list[float]:
    try:
        numbers = [float(value) for value in values.split()]
    except ValueError:
        numbers = []
    if len(numbers) != width:
        raise UserError(f"{path}, line {line}: expected a word and {width} numbers after it.")
    return numbers


@contextmanager
def _lines(path: Path) -> Iterator[Iterable[bytes]]:
    """Give the lines of a text file, plain, gzip'd, or inside GloVe's own archive."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open("glove.6B.100d.txt") as file:
                yield file
        else:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as plain:
                yield plain
    except (EOFError, KeyError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: expected word vectors, the file is damaged ({error}).") from None
