"""Predictions of two classes with stated confidences."""

import torch

from falconcal.metrics.predictions import Predictions


def two_class(confidences: list[float], correct: list[bool]) -> Predictions:
    """Return predictions of class 0 with the given confidences, right or wrong as given."""
    confidence = torch.tensor(confidences, dtype=torch.float64)
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    labels = torch.tensor([0 if hit else 1 for hit in correct])
    return Predictions.from_probabilities(probabilities, labels)
