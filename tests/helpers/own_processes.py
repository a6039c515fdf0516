"""What each of torchrun's processes does: FALCON inside one's own DDP, or ``fit`` as it is."""

import sys

import torch
from safetensors.torch import save_file
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from falconcal import Bounds, Falcon, FalconStep
from tests.helpers.joined_training import plain_network
from tests.helpers.small_data import stripes

SETTINGS = {"epochs": 2, "epsilons": (0.2,), "calibration_weight": 1.0, "accelerator": "cpu"}


def own_loop(model: nn.Module, parts: int, part: int) -> None:
    """Train by plain SGD on this part of every batch, inside DDP where there are several."""
    inner = DistributedDataParallel(model) if parts > 1 else model
    falcon = Falcon(bounds=Bounds(0.0, 1.0), **SETTINGS)  # type: ignore[arg-type]
    step = FalconStep(inner, torch.optim.SGD(inner.parameters(), lr=0.05), falcon)
    for _ in step.epochs():
        for inputs, labels in stripes(60).batches(20):
            step(inputs.tensor_split(parts)[part], labels.tensor_split(parts)[part])


def fit(model: nn.Module) -> None:
    """Train with settings that say nothing of processes."""
    Falcon(**SETTINGS).fit(model, stripes(60).batches(20))  # type: ignore[arg-type]


if __name__ == "__main__":
    kind, file = sys.argv[1:]
    network = plain_network()
    if kind == "own_loop":
        distributed.init_process_group("gloo")
        own_loop(network, distributed.get_world_size(), distributed.get_rank())
    else:
        fit(network)
    count = distributed.get_world_size()
    weights = {name: value.contiguous() for name, value in network.state_dict().items()}
    if distributed.get_rank() == 0:
        save_file({**weights, "processes": torch.tensor(count)}, file)
    distributed.barrier()
    distributed.destroy_process_group()
