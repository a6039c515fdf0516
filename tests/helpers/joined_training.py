"""Trainings that two processes do together, all in one start of the processes.

python -m torch.distributed.run --nproc-per-node=2 -m tests.helpers.joined_training FOLDER

writes what each process found to FOLDER/RANK; ``found_by`` gives the same for one process.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from falconcal import MNF, Adversarial, Bounds, Ensemble, Falcon, JointGAN
from falconcal.training import History
from falconcal.training.losses import CalibrationForm
from tests.helpers.small_data import small_network, stripes
from tests.helpers.stripes import load_stripes


def plain_network() -> nn.Module:
    """Return a network without dropout or running statistics, which processes would not share."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def normalised_network() -> nn.Module:
    """Return a network with running statistics, which processes share."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
    )


def ten_steps(
    devices: int,
    form: CalibrationForm = "half_sum",
    gradient: Literal["exact", "shared"] = "shared",
) -> nn.Module:
    """Train ten steps of 18 examples, one epsilon for all."""
    data = load_stripes()
    falcon = Falcon(
        epochs=2, devices=devices, accelerator="cpu", bounds=Bounds(0.0, 1.0), epsilons=(0.2,),
        calibration_weight=1.0, calibration_form=form, gradient=gradient,
    )  # fmt: skip
    return falcon.fit(plain_network(), data.train.batches(18), data.validation.batches())


def uneven_steps(devices: int) -> nn.Module:
    """Train on 80 examples in steps of two batches of 21, the last of 17, in double precision."""
    data = stripes(80)
    falcon = Falcon(
        epochs=2, devices=devices, accelerator="cpu", epsilons=(0.2,), calibration_weight=1.0,
        l2_weight=0.01, accumulate=2, precision="64-true",
    )  # fmt: skip
    return falcon.fit(plain_network(), data.batches(21), data.batches())


def with_gan(devices: int, network: Callable[[], nn.Module] = plain_network) -> nn.Module:
    """Train a classifier and a GAN for four epochs of five steps."""
    data = load_stripes()
    method = JointGAN(
        epochs=4, devices=devices, accelerator="cpu", learning_rate=0.01, gan_learning_rate=0.01,
        bounds=Bounds(0.0, 1.0), latent=4, width=4,
    )  # fmt: skip
    return method.fit(network(), data.train.batches(18), data.validation.batches())


def with_flows(devices: int) -> nn.Module:
    """Take one step of MNF, whose auxiliary weights have gradients too."""
    data = load_stripes()
    method = MNF(epochs=1, devices=devices, accelerator="cpu", samples=3)
    batches = data.train.batches(len(data.train))
    return method.fit(small_network(), batches, data.validation.batches())


def with_members(devices: int) -> nn.Module:
    """Train one member of an ensemble: clean and moved batch in one step."""
    data = load_stripes()
    base = Adversarial(epochs=1, devices=devices, accelerator="cpu", bounds=Bounds(0.0, 1.0))
    batches = data.train.batches(30, shuffle=True, seed=7)
    ensemble = Ensemble(base=base, size=1)
    return ensemble.fit(normalised_network(), batches, data.validation.batches())


TRAININGS: dict[str, Callable[[int], nn.Module]] = {
    "half_sum, shared": ten_steps,
    "root, exact": partial(ten_steps, form="root", gradient="exact"),
    "uneven": uneven_steps,
    "gan": with_gan,
    "flows": with_flows,
    "members": with_members,
}


def found_by(name: str, devices: int) -> dict[str, Tensor]:
    """Return the weights after a training, and as ``epoch/term`` what it recorded."""
    history = History()
    with history.recording():
        model = TRAININGS[name](devices)
    terms = {
        f"{record.epoch}/{term}": torch.tensor(value, dtype=torch.float64)
        for record in history
        for term, value in record.terms.items()
    }
    return {**model.state_dict(), **terms}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # a few steps teach these networks little
    found = {
        f"{name}/{key}": value for name in TRAININGS for key, value in found_by(name, 2).items()
    }
    save_file(found, folder / os.environ["RANK"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
