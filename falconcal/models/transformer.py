"""A small transformer encoder over tokens, which the paper lacks (Vaswani et al., NeurIPS 2017)."""

import torch
from torch import Tensor, nn

from falconcal.models.text import frozen_words


class TokenTransformer(nn.Module):
    """Words and places embedded, encoder layers, the mean over the places of words.

    Token 0 is padding: it is not attended to and does not count, so more of it changes nothing.
    Word vectors that are given stay as they are and are brought to the width by a dense layer.
    """

    def __init__(
        self,
        classes: int,
        vocabulary: int,
        length: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
        vectors: Tensor | None = None,  # (vocabulary, any width)
    ) -> None:
        super().__init__()
        self.words, self.widen = _words(vocabulary, width, vectors)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True)
        self.encoder = MeanEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, width of words)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return logits of embedded words, (N, L, width of words) -> (N, classes).

        ``padding`` (N, L) tells which places hold no word; without it all do.
        """
        places = torch.arange(embedded.shape[1], device=embedded.device)
        words = self.widen(embedded) + self.places(places)  # (N, L, width)
        if padding is None:
            padding = torch.zeros(words.shape[:2], dtype=torch.bool, device=words.device)
        logits: Tensor = self.classifier(self.encoder(words, padding))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens), padding_of(tokens))


class MeanEncoder(nn.TransformerEncoder):
    """Encoder layers, and the mean of what they make of the words."""

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """Return the mean over places that hold a word: (N, L, width), (N, L) -> (N, width)."""
        encoded = super().forward(words, src_key_padding_mask=padding)
        total = encoded.masked_fill(padding[..., None], 0.0).sum(1)
        return total / (~padding).sum(1, keepdim=True)


def padding_of(tokens: Tensor) -> Tensor:
    """Return which places hold no word; of a text without words the first counts: (N, L)."""
    padding = tokens == 0
    first = padding[:, :1] & ~padding.all(1, keepdim=True)
    return torch.cat([first, padding[:, 1:]], 1)


def _words(
    vocabulary: int, width: int, vectors: Tensor | None
) -> tuple[nn.Embedding, nn.Linear | nn.Identity]:
    if vectors is None:
        return nn.Embedding(vocabulary, width, padding_idx=0), nn.Identity()
    return frozen_words(vectors), nn.Linear(vectors.shape[1], width)
