"""A small transformer encoder over tokens, not in the paper (Vaswani et al., NeurIPS 2017)."""

import torch
from torch import Tensor, nn

from falconcal.models.text_recurrent import frozen_words


class TokenTransformer(nn.Module):
    """Embedded words and positions, encoder layers, and the mean over the positions of words.

    Token 0 is padding: it is not attended to and does not count in the mean, so more of it changes
    nothing.

    Args:
        classes: The number of classes.
        vocabulary: The number of different tokens, padding included.
        length: The largest number of tokens per text.
        width: The width of the encoder.
        heads: Attention heads per layer.
        layers: Encoder layers.
        dropout: The probability that a value is dropped.
        vectors: Word vectors (vocabulary, any width), which are not trained; a dense layer brings
            them to the encoder's width. By default the embedding is trained.

    Example:
        >>> import torch
        >>> from falconcal.models import TokenTransformer
        >>> TokenTransformer(2, vocabulary=20, length=6)(torch.tensor([[5, 3, 0, 0]])).shape
        torch.Size([1, 2])
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
        self.places = nn.Embedding(length, width)  # stored weights have this name
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True)
        self.encoder = MeanEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, width of words)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return logits of embedded words, (N, L, width of words) -> (N, classes).

        ``padding`` (N, L) marks positions without a word; without it all have one.
        """
        positions = torch.arange(embedded.shape[1], device=embedded.device)
        words = self.widen(embedded) + self.places(positions)  # (N, L, width)
        if padding is None:
            padding = torch.zeros(words.shape[:2], dtype=torch.bool, device=words.device)
        logits: Tensor = self.classifier(self.encoder(words, padding))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens), padding_of(tokens))


class MeanEncoder(nn.TransformerEncoder):
    """Encoder layers, and the mean of their outputs over the words."""

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        """Return the mean over positions that hold a word: (N, L, width), (N, L) -> (N, width)."""
        encoded = super().forward(words, src_key_padding_mask=padding)
        total = encoded.masked_fill(padding[..., None], 0.0).sum(1)
        return total / (~padding).sum(1, keepdim=True)


def padding_of(tokens: Tensor) -> Tensor:
    """Return which positions hold no word; in an empty text the first one counts as one: (N, L)."""
    padding = tokens == 0
    first = padding[:, :1] & ~padding.all(1, keepdim=True)
    return torch.cat([first, padding[:, 1:]], 1)


def _words(
    vocabulary: int, width: int, vectors: Tensor | None
) -> tuple[nn.Embedding, nn.Linear | nn.Identity]:
    if vectors is None:
        return nn.Embedding(vocabulary, width, padding_idx=0), nn.Identity()
    return frozen_words(vectors), nn.Linear(vectors.shape[1], width)
