"""LSTM and GRU over the pixels of an image, one by one: the paper's sequential MNIST."""

from typing import Literal

from torch import Tensor, nn

CellType = Literal["lstm", "gru"]
FirstWeights = Literal["uniform", "orthogonal"]
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
        first_weights: ``"uniform"`` is what torch draws. With ``"orthogonal"`` recurrent weights
            are orthogonal per gate, biases zero and the forget gate open (bias 1): hundreds of
            steps are learned in a few hundred batches, where uniform weights learn nothing yet.

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
        first_weights: FirstWeights = "uniform",
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layer = RECURRENT_LAYERS[kind](channels, hidden, batch_first=True)
        if first_weights == "orthogonal":
            draw_orthogonal(self.layer)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:  # (N, channels, H, W) -> (N, classes)
        pixels = images.flatten(2).transpose(1, 2)  # (N, H W, channels)
        states, _ = self.layer(self.dropout(pixels))  # (N, H W, hidden)
        logits: Tensor = self.classifier(states[:, -1])
        return logits


def draw_orthogonal(layer: nn.LSTM | nn.GRU) -> None:
    """Draw first weights that carry a state far: orthogonal per gate, the forget gate open."""
    hidden, weights = layer.hidden_size, dict(layer.named_parameters())
    for gate in range(0, len(weights["weight_hh_l0"]), hidden):  # (gates H, H)
        nn.init.orthogonal_(weights["weight_hh_l0"].detach()[gate : gate + hidden])
    nn.init.xavier_uniform_(weights["weight_ih_l0"])
    for bias in ("bias_ih_l0", "bias_hh_l0"):
        nn.init.zeros_(weights[bias])
    if isinstance(layer, nn.LSTM):  # torch's order of gates: input, forget, cell, output
        nn.init.ones_(weights["bias_ih_l0"].detach()[hidden : 2 * hidden])
