"""A text network of one's own: tokens in, perturbed where they become vectors.

    python examples/own_text_model.py [epochs]

Made sentences of two kinds that share most of their words; the shift swaps words for others.
"""

import sys

import torch
from torch import Tensor, nn

import falconcal

WORDS, LENGTH = 200, 20
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15


class Classifier(nn.Module):
    """``embed`` and ``classify`` tell FALCON where a perturbation enters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.layer, self.last = nn.GRU(16, 32, batch_first=True), nn.Linear(32, 2)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.words(tokens)

    def classify(self, embedded: Tensor) -> Tensor:
        states, _ = self.layer(embedded)
        return self.last(states.mean(1))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))


def sentences(count: int, seed: int) -> falconcal.Examples:
    """Words 0 to 119 or 80 to 199: two fifths of the words may stand in either kind."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    tokens = torch.randint(120, (count, LENGTH), generator=generator) + 80 * labels[:, None]
    return falconcal.Examples(tokens, labels)


def swapped(data: falconcal.Examples, share: float) -> falconcal.Examples:
    generator = torch.Generator().manual_seed(9)
    hit = torch.rand(data.inputs.shape, generator=generator) < share
    others = torch.randint(WORDS, data.inputs.shape, generator=generator)
    return falconcal.Examples(torch.where(hit, others, data.inputs), data.labels)


train, validation, test = sentences(400, 0), sentences(200, 1), sentences(1000, 2)
methods = {
    "plain": falconcal.L2Dropout(epochs=epochs),
    "FALCON": falconcal.Falcon(epochs=epochs, entropy_weight=0.5, calibration_learning_rate=0.01),
}
for name, method in methods.items():
    torch.manual_seed(0)
    network = method.fit(Classifier(), train.batches(50, shuffle=True), validation.batches(200))
    figures = []
    for share in (0.0, 0.9):
        predictions = falconcal.predict(network, swapped(test, share))
        figures.append(f"{falconcal.expected_calibration_error(predictions):.3f}")
    print(f"{name}: ECE {figures[0]} clean, {figures[1]} with 90 % of the words swapped")
