"""What each of torchrun's processes does: ``fit`` as it is, then FALCON inside one's own DDP.

python -m torch.distributed.run --nproc-per-node=2 -m tests.helpers.own_processes FILE
"""

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
    networks = {"fit": plain_network(), "own_loop": plain_network()}
    fit(networks["fit"])  # which joins the processes by itself
    count = distributed.get_world_size()
    own_loop(networks["own_loop"], count, distributed.get_rank())
    weights = {
        f"{kind}/{name}": value.contiguous()
        for kind, network in networks.items()
        for name, value in network.state_dict().items()
    }
    if distributed.get_rank() == 0:
        save_file({**weights, "processes": torch.tensor(count)}, sys.argv[1])
    distributed.barrier()
    distributed.destroy_process_group()
