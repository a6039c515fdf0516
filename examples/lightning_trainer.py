"""FALCON under Lightning's Trainer, with its loggers and checkpoints.

pip install 'falconcal[lightning]'
python examples/lightning_trainer.py [epochs]
"""

import sys

import lightning
from torch.utils.data import DataLoader, TensorDataset

import falconcal
from falconcal.integrations.lightning import FalconModule

digits = falconcal.load_dataset("digits")
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
loader = DataLoader(
    TensorDataset(digits.train.inputs, digits.train.labels), batch_size=100, shuffle=True
)
falcon = falconcal.Falcon(
    epochs=epochs, bounds=digits.bounds, entropy_weight=0.5, calibration_learning_rate=0.01
)
network = falconcal.models.LeNet()
before = falconcal.predict(network, digits.test)
trainer = lightning.Trainer(
    max_epochs=epochs,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(FalconModule(network, falcon), loader)
after = falconcal.predict(network, digits.test)
for when, found in (("before", before), ("after", after)):
    error = falconcal.expected_calibration_error(found)
    print(f"{when}: accuracy {falconcal.accuracy(found):.3f}, ECE {error:.3f}")
