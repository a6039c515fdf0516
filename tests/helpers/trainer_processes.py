"""What each of torchrun's processes does: Hugging Face's Trainer and FALCON under it.

python -m torch.distributed.run --nproc-per-node=2 -m tests.helpers.trainer_processes FOLDER

writes the weights that each training ends with, from the first process; ``trained_by`` gives the
same for as many processes as there are.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, distributed, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from falconcal import Falcon
from falconcal.integrations.transformers import FalconTrainer

CLASSES, ROWS, BATCH = 3, 24, 8
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TRAININGS: dict[str, dict[str, Any] | None] = {
    "trainer": None,
    "both weights 0": {"entropy_weight": 0.0, "calibration_weight": 0.0},
    "half_sum, shared": {"calibration_weight": 0.5},
    "root, exact": {"calibration_weight": 0.5, "calibration_form": "root", "gradient": "exact"},
    "accumulated": {"calibration_weight": 0.5},
}


def trained_by(name: str, processes: int, folder: Path) -> nn.Module:
    """Train in steps of eight rows over all processes, in double precision."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, num_labels=CLASSES, intermediate_size=32, **SMALL, **NO_DROPOUT
    )
    model: nn.Module = BertForSequenceClassification(config).double()
    halves = 2 if name == "accumulated" and processes > 1 else 1
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH // processes // halves,
        gradient_accumulation_steps=halves, num_train_epochs=2, learning_rate=1e-3,
        max_grad_norm=0.0, lr_scheduler_type="constant", report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, logging_strategy="no", optim="adamw_torch",
        train_sampling_strategy="sequential", weight_decay=0.0,
    )  # fmt: skip
    given = {"args": arguments, "train_dataset": rows(), "data_collator": collated}
    settings = TRAININGS[name]
    if settings is None:
        Trainer(model, **given).train()
    else:
        falcon = Falcon(epochs=2, bounds=None, epsilons=(0.1,), **settings)
        FalconTrainer(model, **given, falcon=falcon).train()
    return model


def rows() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 30, (ROWS, 6), generator=generator)
    tokens[:, 0] = 1 + torch.arange(ROWS) % CLASSES
    return [{"input_ids": row, "labels": row[0] - 1} for row in tokens]


def collated(some: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in some]) for name in some[0]}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Tensor] = {}
    for name in TRAININGS:
        model = trained_by(name, 2, folder)
        found |= {f"{name}/{key}": one.contiguous() for key, one in model.state_dict().items()}
    count = distributed.get_world_size()
    if distributed.get_rank() == 0:
        save_file({**found, "processes": torch.tensor(count)}, folder / "weights")
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
