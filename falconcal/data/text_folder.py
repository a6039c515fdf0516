"""Your own texts: a folder of train, validation and test, in each a folder a class of .txt files.

Words become numbers as those of 20 Newsgroups do, by a vocabulary of the training texts; with a
file of word vectors (GloVe's form) networks of words begin with these.
"""

from pathlib import Path

import torch

from falconcal.data.examples import Dataset, Examples
from falconcal.data.own_folders import HeldOut, Listed, list_parts
from falconcal.data.places import folders
from falconcal.data.texts import Texts
from falconcal.data.words import Encoder, most_frequent, read_vectors
from falconcal.errors import UserError
from falconcal.io.folders import irregular
from falconcal.settings import Count, settings


@settings
class TextFolder:
    """Where the texts lie, how many words are kept, and word vectors if there are any."""

    path: str
    length: Count = 500  # the first words
    vocabulary: Count = 20_000
    held_out: HeldOut = 0.1
    vectors: str | None = None
    width: Count = 100  # numbers of a word vector

    def load(self) -> Dataset:
        (root,) = folders((), self.path)
        listed = list_parts(root, frozenset({".txt"}), self.held_out)
        raw = {part: [_text(file) for file in one.files] for part, one in listed.items()}
        encoder = Encoder(most_frequent(raw["train"], self.vocabulary), self.length)
        train, validation, test = (
            _examples(listed[part], raw[part], encoder) for part in ("train", "validation", "test")
        )
        classes = listed["train"].classes
        vectors = self._vectors(encoder)
        return Dataset(
            "text_folder", "text", classes, None, train, validation, test, vectors, encoder=encoder
        )

    def _vectors(self, encoder: Encoder) -> torch.Tensor | None:
        if self.vectors is None:
            return None
        (path,) = folders((), self.vectors)
        return torch.from_numpy(read_vectors(path, encoder.vocabulary, self.width))


def _text(path: Path) -> str:
    reason = irregular(path)
    if reason is not None:
        raise UserError(f"{path}: cannot be read as text: {reason}.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8 text: {error}.") from None


def _examples(listed: Listed, raw: list[str], encoder: Encoder) -> Examples:
    labels, tokens = torch.from_numpy(listed.labels), len(encoder.vocabulary) + 1
    return Examples(encoder(raw), labels, None, listed.classes, tokens, Texts(raw, encoder))
