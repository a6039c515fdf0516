"""A training in a process of its own, to be killed: FOLDER of checkpoints, FILE of weights."""

import sys

import torch
from safetensors.torch import save_file
from torch import nn

from falconcal import Falcon, checkpointing
from tests.helpers.small_data import small_network
from tests.helpers.stripes import load_stripes


def train() -> nn.Module:
    data = load_stripes()
    falcon = Falcon(epochs=80, keep="best")
    return falcon.fit(small_network(), data.train.batches(10), data.validation.batches())


if __name__ == "__main__":
    torch.set_num_threads(1)
    with checkpointing(sys.argv[1], every_minutes=0.0005):
        save_file(train().state_dict(), sys.argv[2])
