"""LSTM and GRU over the words of a text: the paper's network for 20 Newsgroups."""

from torch import Tensor, nn

from falconcal.models.pixel_recurrent import RECURRENT_LAYERS, CellType


class TextRecurrent(nn.Module):
    """Frozen word vectors and one recurrent layer, all of whose states go to a dense layer.

    Padding is read like words, as in the paper.

    Args:
        classes: The number of classes.
        vectors: Word vectors (vocabulary, width); row 0 is that of padding.
        length: Tokens per text.
        kind: Whether it is an LSTM or a GRU.
        hidden: The width of the recurrent layer.
        dropout: The probability that an input of the recurrent layer is dropped.

    Example:
        >>> import torch
        >>> from falconcal.models import TextRecurrent
        >>> model = TextRecurrent(2, torch.randn(20, 4), length=6, hidden=8)
        >>> model(torch.zeros(3, 6, dtype=torch.long)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        classes: int,
        vectors: Tensor,  # (vocabulary, width)
        length: int,
        kind: CellType = "lstm",
        hidden: int = 130,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words = frozen_words(vectors)
        self.dropout = nn.Dropout(dropout)
        self.layer = RECURRENT_LAYERS[kind](vectors.shape[1], hidden, batch_first=True)
        self.classifier = nn.Linear(length * hidden, classes)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, width)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor) -> Tensor:  # (N, L, width) -> (N, classes)
        states, _ = self.layer(self.dropout(embedded))  # (N, L, hidden)
        logits: Tensor = self.classifier(states.flatten(1))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))


def frozen_words(vectors: Tensor) -> nn.Embedding:
    """Return an embedding of word vectors (vocabulary, width) that is not trained."""
    words: nn.Embedding = nn.Embedding.from_pretrained(vectors, freeze=True)  # type: ignore[no-untyped-call]
    return words
