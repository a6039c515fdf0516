"""A network that is trained already, made more trustworthy by a few FALCON epochs.

    python examples/fine_tuning.py [epochs]

A small learning rate and few epochs: the paper's recipe for ImageNet, and the commonest case.
"""

import sys

from torch import nn

import falconcal

digits = falconcal.load_dataset("digits")
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
train, validation = digits.train.batches(100, shuffle=True), digits.validation.batches(500)


def show(name: str, network: nn.Module) -> None:
    turned = falconcal.SHIFTS["rot_right"]
    rows = falconcal.evaluate(network, digits.test, [turned]).to_dicts()
    found = {(row["shift"], row["metric"]): row["value"] for row in rows if not row["level"]}
    print(
        f"{name}: accuracy {found['clean', 'accuracy']:.3f}, ECE {found['clean', 'ece']:.3f} "
        f"clean, {found['rot_right', 'micro_ece']:.3f} over ten levels of rotation"
    )


network = falconcal.L2Dropout(epochs=epochs).fit(falconcal.models.LeNet(), train, validation)
show("as it was", network)
falcon = falconcal.Falcon(
    epochs=3, learning_rate=1e-4, entropy_weight=0.5, calibration_learning_rate=0.01
)
show("after three epochs of FALCON", falcon.fit(network, train, validation))
