"""A network after the layer that prepares its images as the dataset states."""

from typing import Any

import torch
from torch import Tensor, nn

from falconcal.core.model_inputs import call_model, main_of, packed, with_main
from falconcal.data.preparation import Preparation


class PreparedModel(nn.Module):
    """Images averaged down and normalised, then the network; the layer has nothing to train."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, network: nn.Module, preparation: Preparation, perturb: str | int | None = None
    ) -> None:
        super().__init__()
        self.perturb = perturb  # which of several inputs are the images
        self.network, self.side = network, preparation.side
        for name, values in (("mean", preparation.mean), ("deviation", preparation.deviation)):
            numbers = torch.tensor(values or (float(name == "deviation"),))[:, None, None]
            self.register_buffer(name, numbers, persistent=False)

    def forward(self, *given: Any, **named: Any) -> Tensor:  # (N, channels, H, W) -> (N, classes)
        inputs = packed(given, named, self.perturb)
        images = main_of(inputs)
        if self.side is not None:
            images = nn.functional.adaptive_avg_pool2d(images, self.side)
        normal = (images - self.mean) / self.deviation
        # half precision stays half
        return call_model(self.network, with_main(inputs, normal.to(images.dtype)))


def with_preparation(network: nn.Module, preparation: Preparation | None) -> nn.Module:
    """Return the network after the layer that its data asks for, if it asks for one.

    A network whose published weights want another preparation states that as its own.
    """
    own = getattr(network, "preparation", None)
    preparation = own if isinstance(own, Preparation) else preparation
    return network if preparation is None else PreparedModel(network, preparation)
