"""What each process of tests/training/test_processes.py does: evaluate together, write it down.

python -m torch.distributed.run --nproc-per-node=3 -m tests.helpers.evaluate_together FOLDER
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from falconcal.data import Examples
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.methods import L2Dropout
from falconcal.metrics.predictions import Predictions
from falconcal.models.predict import predict
from falconcal.shifts import SHIFTS
from falconcal.training import History
from tests.helpers.small_data import small_network
from tests.helpers.stripes import load_stripes

SHIFTED = [SHIFTS["gaussian_noise"], SHIFTS["shear"]]
SIZES = {"many": (30, 4), "one_batch": (30, 500), "fewer_than_processes": (2, 1)}  # and of a batch


def scored(examples: int, batch_size: int) -> Tensor:
    """Return the table of scores as numbers, rows in their order: (rows, columns)."""
    data = load_stripes().test.first(examples)
    table = score_under_shift(small_network(), data, SHIFTED, batch_size=batch_size)
    return torch.from_numpy(table.drop("shift").to_numpy())


def loaders() -> dict[str, object]:
    """Return anybody's loaders of 29 examples, which no number of processes divides."""
    data = load_stripes().test.first(29)
    pairs = TensorDataset(data.inputs, data.labels)
    found: dict[str, object] = {
        "examples": data,
        "batches": data.batches(4, shuffle=True, seed=3),
        "plain": DataLoader(pairs, batch_size=4),
        "shuffled": DataLoader(pairs, batch_size=4, shuffle=True),
        "list": list(DataLoader(pairs, batch_size=4)),
        "few": DataLoader(TensorDataset(data.inputs[:2], data.labels[:2])),
    }
    if distributed.is_initialized():
        sampler: DistributedSampler[object] = DistributedSampler(pairs, shuffle=False)
        found["distributed"] = DataLoader(pairs, batch_size=4, sampler=sampler)
    return found


class Different:
    """Batches that are not the same in every process."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield torch.rand(3, 1, 28, 28) + distributed.get_rank(), torch.tensor([0, 1, 2])


def _refusal(data: object) -> str:
    try:
        predict(small_network(), data)  # type: ignore[arg-type]
    except UserError as error:
        return str(error)
    return ""


def _trained_until_no_better() -> dict[str, Tensor]:
    """Return the epochs, and the weights and statistics of a training that ends by patience."""
    data, history = load_stripes(), History()
    model = nn.Sequential(small_network(), nn.BatchNorm1d(3))
    training = L2Dropout(
        epochs=30, patience=1, learning_rate=0.02, devices=distributed.get_world_size(),
        accelerator="cpu",
    )  # fmt: skip
    with history.recording():
        training.fit(model, data.train.batches(30), data.validation.batches())
    assert history[-1].ended == "patience"
    return {"ended": torch.tensor(len(history)), **model.state_dict()}


def _write_down(folder: Path) -> None:
    rank = distributed.get_rank()
    tensors = {name: scored(*sizes) for name, sizes in SIZES.items()}
    model = small_network()
    torch.manual_seed(rank)  # so that what shuffles would do so differently
    for name, loader in loaders().items():
        found: Predictions = predict(model, loader)  # type: ignore[arg-type]
        tensors |= {f"{name}/log_probs": found.log_probs, f"{name}/labels": found.labels}
    test = load_stripes().test
    data = test.first(len(test))
    own = predict(
        small_network(), data.first(4 + rank), single_process=True
    )  # sizes differ, none waits
    tensors["alone"] = own.labels
    tensors |= {f"trained/{name}": value for name, value in _trained_until_no_better().items()}
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / str(rank))
    assert "same batches in every process" in _refusal(Different())
    assert "same batches" in _score_refusal(replace(data, labels=(data.labels + rank) % 3))
    sampler: DistributedSampler[object] = DistributedSampler(data.labels, 2, 0)  # type: ignore[arg-type]
    assert "0 among 2" in _refusal(DataLoader(data.labels, sampler=sampler))  # type: ignore[arg-type]


def _score_refusal(data: Examples) -> str:
    try:
        score_under_shift(small_network(), data, SHIFTED)
    except UserError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    _write_down(Path(sys.argv[1]))
    distributed.destroy_process_group()
