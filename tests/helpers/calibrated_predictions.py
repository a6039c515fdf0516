"""Predictions that are calibrated by construction."""

import torch

from falconcal.metrics.predictions import Predictions
from tests.helpers.made_predictions import two_class


def calibrated(count: int, seed: int = 0, gap: float = 0.0) -> Predictions:
    """Return two-class predictions whose accuracy is their confidence less a gap."""
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.6 + 0.4 * torch.rand(count, generator=generator).double()
    right = torch.rand(count, generator=generator).double() < confidence - gap
    return two_class(confidence.tolist(), right.tolist())
