"""FALCON's step in a training loop of one's own, with a scheduler.

python examples/own_loop.py [epochs]
"""

import sys

import torch

import falconcal

digits = falconcal.load_dataset("digits")
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15

torch.manual_seed(0)
network = falconcal.models.LeNet()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
falcon = falconcal.Falcon(
    epochs=epochs,
    bounds=digits.bounds,
    entropy_weight=0.5,
    calibration_learning_rate=0.01,
    clip_norm=5.0,
)
step = falconcal.FalconStep(network, optimizer, falcon)

before = falconcal.predict(network, digits.test)
print(
    f"before: accuracy {falconcal.accuracy(before):.3f}, "
    f"ECE {falconcal.expected_calibration_error(before):.3f}"
)
for epoch in step.epochs():
    order = torch.randperm(len(digits.train))
    for chosen in order.split(100):
        losses = step(digits.train.inputs[chosen], digits.train.labels[chosen])
    scheduler.step()
    print(epoch, {name: round(value, 4) for name, value in losses.items()})
predictions = falconcal.predict(network, digits.test)
found = falconcal.interval(predictions, "ece")
print(
    f"after: accuracy {falconcal.accuracy(predictions):.3f}, ECE {found.value:.3f}, "
    f"true error between {found.low:.3f} and {found.high:.3f}"
)
