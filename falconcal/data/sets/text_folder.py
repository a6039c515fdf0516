"""Your own texts: folders train, validation and test, with one folder of .txt files per class.

Words become numbers like those of 20 Newsgroups, by a vocabulary of the training texts. If a file
of word vectors (GloVe's form) is given, networks for texts use them.
"""

from pathlib import Path

import torch

from falconcal.core.settings import Count, settings
from falconcal.data.class_folders import HeldOut, LabelledFiles, list_parts
from falconcal.data.dataset import Dataset
from falconcal.data.locations import given_folder, search_folders
from falconcal.data.part import Examples
from falconcal.data.texts import Texts
from falconcal.data.vocabulary import Encoder, most_frequent, read_vectors
from falconcal.errors import UserError
from falconcal.io.folders import irregular


@settings
class TextFolder:
    """Your own texts, with settings."""

    path: str
    """The folder."""

    length: Count = 500
    """Words per text that are kept, from the first."""

    vocabulary: Count = 20_000
    """The number of most frequent words that are kept."""

    test: str | None = None
    """Another folder, with one folder per class, for the test part."""

    held_out: HeldOut = 0.1
    """The share of training texts that is held out for each part without a folder."""

    vectors: str | None = None
    """A file of word vectors; without it networks learn their own or draw them at random."""

    width: Count = 100
    """Numbers per word vector."""

    def load(self) -> Dataset:
        (root,) = search_folders((), self.path)
        listed = list_parts(root, frozenset({".txt"}), self.held_out, given_folder(self.test))
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
        (path,) = search_folders((), self.vectors)
        return torch.from_numpy(read_vectors(path, encoder.vocabulary, self.width))


def _text(path: Path) -> str:
    reason = irregular(path)
    if reason is not None:
        raise UserError(f"{path}: cannot be read as text: {reason}.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8 text: {error}.") from None


def _examples(listed: LabelledFiles, raw: list[str], encoder: Encoder) -> Examples:
    labels, tokens = torch.from_numpy(listed.labels), len(encoder.vocabulary) + 1
    return Examples(encoder(raw), labels, None, listed.classes, tokens, Texts(raw, encoder))
