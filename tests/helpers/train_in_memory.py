"""A training in a process of its own: prints a digest of the weights and the pages it asked for."""

import hashlib
import resource
import sys

import torch

from falconcal import Falcon
from falconcal.models import PixelRecurrent
from tests.helpers.small_data import stripes

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    method = Falcon(epochs=2, reuse_memory=sys.argv[1] == "on")
    data, before = stripes(100), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model = method.fit(PixelRecurrent(3, hidden=64), data.batches(50), data.first(6).batches())
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    digest = hashlib.sha256()
    for weight in model.state_dict().values():
        digest.update(weight.numpy().tobytes())
    print(digest.hexdigest(), pages)
