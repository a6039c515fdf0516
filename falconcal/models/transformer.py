"""A small transformer encoder over tokens, which the paper lacks (Vaswani et al., NeurIPS 2017)."""

import torch
from torch import Tensor, nn

from falconcal.models.text import frozen_words


class TokenTransformer(nn.Module):
    """Words and places embedded, encoder layers, the mean over all places; token 0 is padding.

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
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, width of words)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor) -> Tensor:  # (N, L, width of words) -> (N, classes)
        places = torch.arange(embedded.shape[1], device=embedded.device)
        encoded = self.encoder(self.widen(embedded) + self.places(places))
        logits: Tensor = self.classifier(encoded.mean(1))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))


def _words(
    vocabulary: int, width: int, vectors: Tensor | None
) -> tuple[nn.Embedding, nn.Linear | nn.Identity]:
    if vectors is None:
        return nn.Embedding(vocabulary, width, padding_idx=0), nn.Identity()
    return frozen_words(vectors), nn.Linear(vectors.shape[1], width)
