"""LSTM and GRU over the pixels of an image, one by one: the paper's sequential MNIST."""

from typing import Literal

from torch import Tensor, nn

CellType = Literal["lstm", "gru"]
RECURRENT_LAYERS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class PixelRecurrent(nn.Module):
    """One recurrent layer over the pixels of an image; its last state goes to a dense layer.

    Args:
        classes: The number of classes.
        channels: Channels of an image.
        kind: Whether it is an LSTM or a GRU.
        hidden: The width of the recurrent layer.
        dropout: The probability that an input of the layer is dropped; the dropout of ``nn.LSTM``
            does nothing with one layer.

    Example:
        >>> import torch
        >>> from falconcal.models import PixelRecurrent
        >>> PixelRecurrent(kind="gru", hidden=8)(torch.zeros(2, 1, 5, 5)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 1,
        kind: CellType = "lstm",
        hidden: int = 130,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layer = RECURRENT_LAYERS[kind](channels, hidden, batch_first=True)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:  # (N, channels, H, W) -> (N, classes)
        pixels = images.flatten(2).transpose(1, 2)  # (N, H W, channels)
        states, _ = self.layer(self.dropout(pixels))  # (N, H W, hidden)
        logits: Tensor = self.classifier(states[:, -1])
        return logits
