"""The epochs of a training that are judged after its end.

Choosing an epoch takes validation data that the reference model perturbs, and the reference is the
last epoch of plain training. Where the run of plain training keeps its best epoch, it is the same
training: the weights of the epochs that count are held while the reference is trained, and judged
once it is there, as if the run had trained by itself.
"""

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from falconcal.core.module_state import flush_denormals
from falconcal.data import Batches
from falconcal.io.atomic import write_text
from falconcal.studies.run_files import is_whole, load_weights, read_json, save_weights, to_json
from falconcal.training import EpochRecord, TrainingMethod
from falconcal.training.checkpoint_state import RECORDS
from falconcal.training.history import publish
from falconcal.training.loop import make_fabric, warn_of_predictions
from falconcal.training.selection import EpochSelector, checked_epochs


@dataclass(frozen=True)
class HeldEpochs:
    """The folder of held weights, with what was recorded of the training when it has ended."""

    folder: Path
    epochs: int

    def begin(self) -> None:
        """Forget an earlier training."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def hold(self, model: nn.Module, epoch: int) -> None:
        """Write the weights of an epoch that will be judged."""
        if epoch in checked_epochs(self.epochs):
            self.folder.mkdir(parents=True, exist_ok=True)
            save_weights(self.weights(epoch), model)

    def end(self, records: Iterable[EpochRecord], seconds: dict[str, float]) -> None:
        """Write what happened in each epoch, and how long all took."""
        content = {"records": [asdict(record) for record in records], "seconds": seconds}
        write_text(self.record, to_json(content))

    def complete(self) -> bool:
        """Return whether the training has ended and every file is there."""
        files = [self.record, *map(self.weights, checked_epochs(self.epochs))]
        return all(is_whole(file) for file in files)

    def recorded(self) -> tuple[list[EpochRecord], dict[str, Any]]:
        """Return what happened in each epoch, and the seconds that the training took."""
        content = read_json(self.record)
        return RECORDS.validate_python(content["records"]), content["seconds"]

    @property
    def record(self) -> Path:
        return self.folder / "training.json"

    def weights(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch}.safetensors"


def judge_epochs(
    held: HeldEpochs, method: TrainingMethod, model: nn.Module, validation: Batches
) -> nn.Module:
    """Return the model with the weights of the best epoch; records are published as in training."""
    model = model.to(make_fabric(method).device)
    selector = EpochSelector(validation, method.epochs)
    with flush_denormals():
        for record in held.recorded()[0]:
            figures = {}
            if record.epoch in selector.checked_epochs:
                load_weights(held.weights(record.epoch), model)
                figures = selector.check(model, record.epoch)
            kept = selector.best().epoch if record.ended else None
            publish(replace(record, validation=figures, kept=kept))
    model.load_state_dict(selector.best().weights)
    warn_of_predictions(model, validation, method.seed)
    return model.eval()
