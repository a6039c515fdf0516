"""LSTM and GRU over the words of a text: the paper's network for 20 Newsgroups."""

from torch import Tensor, nn

from falconcal.models.pixel_recurrent import CELLS, CellType


class TextRecurrent(nn.Module):
    """Frozen word vectors, one recurrent layer, all its states in a row to a dense layer.

    Dropout acts on the layer's inputs. Padding is read like words, as in the paper.
    """

    def __init__(
        self,
        classes: int,
        vectors: Tensor,  # (vocabulary, width), row 0 that of padding
        length: int,
        kind: CellType = "lstm",
        hidden: int = 130,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words = frozen_words(vectors)
        self.dropout = nn.Dropout(dropout)
        self.layer = CELLS[kind](vectors.shape[1], hidden, batch_first=True)
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
    """Return an embedding by word vectors (vocabulary, width) that training leaves alone."""
    words: nn.Embedding = nn.Embedding.from_pretrained(vectors, freeze=True)  # type: ignore[no-untyped-call]
    return words
