"""Training in two processes on this machine; the bins of the calibration loss are the batch's.

python examples/two_processes.py [epochs]
torchrun --standalone --nproc-per-node=2 examples/two_processes.py
"""

import os
import sys

import falconcal


def main() -> None:
    digits = falconcal.load_dataset("digits")
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    network = falconcal.models.LeNet()
    before = falconcal.predict(network, digits.test)
    falcon = falconcal.Falcon(
        epochs=epochs,
        entropy_weight=0.5,
        calibration_learning_rate=0.01,
        devices=2,
        accelerator="cpu",
    )
    train = digits.train.batches(100, shuffle=True)
    falcon.fit(network, train, digits.validation.batches(500))
    after = falconcal.predict(network, digits.test)
    if os.environ.get("RANK", "0") == "0":
        for when, found in (("before", before), ("after", after)):
            error = falconcal.expected_calibration_error(found)
            print(f"{when}: accuracy {falconcal.accuracy(found):.3f}, ECE {error:.3f}")


if __name__ == "__main__":  # processes that are started import this file again
    main()
