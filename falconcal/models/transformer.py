"""A small transformer encoder over tokens, which the paper lacks (Vaswani et al., NeurIPS 2017)."""

import torch
from torch import Tensor, nn


class TokenTransformer(nn.Module):
    """Words and places embedded, encoder layers, the mean over the words; token 0 is padding."""

    def __init__(
        self,
        classes: int,
        vocabulary: int,
        length: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, width)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor) -> Tensor:  # (N, L, width) -> (N, classes)
        places = torch.arange(embedded.shape[1], device=embedded.device)
        encoded = self.encoder(embedded + self.places(places))
        logits: Tensor = self.classifier(encoded.mean(1))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))
