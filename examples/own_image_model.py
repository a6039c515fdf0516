"""An image network of one's own, batch norm and all, trained with FALCON in five lines.

    python examples/own_image_model.py [epochs]

Prints accuracy and calibration error, clean and under rotation, for plain training and for FALCON.
"""

import sys

import torch
from torch import nn

import falconcal

digits = falconcal.load_dataset("digits")  # 28x28 grey images in [0, 1], ten classes
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


methods = {
    "plain": falconcal.L2Dropout(epochs=epochs),
    "FALCON": falconcal.Falcon(epochs=epochs, entropy_weight=0.5, calibration_learning_rate=0.01),
}
for name, method in methods.items():
    train = digits.train.batches(100, shuffle=True)
    network = method.fit(make_network(), train, digits.validation.batches(500))
    rows = falconcal.evaluate(network, digits.test, [falconcal.SHIFTS["rot_right"]])
    found = {(row["shift"], row["level"], row["metric"]): row["value"] for row in rows.to_dicts()}
    print(
        f"{name}: accuracy {found['clean', 0, 'accuracy']:.3f}, "
        f"ECE {found['clean', 0, 'ece']:.3f} clean, "
        f"{found['rot_right', None, 'micro_ece']:.3f} over ten levels of rotation"
    )
