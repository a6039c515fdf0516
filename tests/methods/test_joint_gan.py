"""The joint training of a classifier and a GAN: who moves whom, and what the divergence is."""

import copy
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from falconcal import Bounds, Examples, JointGAN
from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.methods import joint_gan
from falconcal.models.dcgan import Discriminator, Generator
from falconcal.training import History, Step, checkpointing
from falconcal.training.losses import divergence_from_uniform
from falconcal.training.run_steps import run_steps
from falconcal.training.step import AuxiliaryNetwork
from tests.helpers.joined_training import with_gan
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network
from tests.helpers.stopping import StoppedError, Stopping
from tests.helpers.stripes import load_stripes, load_table

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def small(**settings: Any) -> JointGAN:
    return JointGAN(**{"latent": 4, "width": 4, **settings})


def normalised_network() -> nn.Module:
    """Return a classifier with running statistics and dropout."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(144, 3),
    )  # fmt: skip


class Players:
    """The three networks and one batch, outside of the loop."""

    def __init__(self, method: JointGAN) -> None:
        data = load_stripes().train
        self.method, self.inputs, self.labels = method, data.inputs[:12], data.labels[:12]
        self.networks = {
            "classifier": normalised_network(),
            **method.auxiliary(self.inputs, data.bounds),
        }

    def step(self) -> Step:
        beside = {
            name: AuxiliaryNetwork(network, network)
            for name, network in self.networks.items()
            if name != "classifier"
        }
        random = torch.Generator().manual_seed(3)
        model = self.networks["classifier"].train()
        return Step(model, self.inputs, self.labels, 1, 1, random, auxiliary=beside)

    def take(self, name: str) -> None:
        """Take the step of one objective."""
        (objective,) = (one for one in self.method.objectives() if one.name == name)
        optimizer = objective.optimizer(list(self.networks[name].parameters()))
        run_steps(Fabric(accelerator="cpu", devices=1), [self.step()], [objective], [optimizer])

    def states(self) -> dict[str, dict[str, Tensor]]:
        return {name: copy.deepcopy(one.state_dict()) for name, one in self.networks.items()}


@pytest.mark.parametrize("name", ["classifier", "generator", "discriminator"])
def test_a_step_changes_its_own_network_and_no_bit_of_the_others(name: str) -> None:
    """Running statistics are part of the state."""
    players = Players(small())
    before = players.states()
    players.take(name)
    after = players.states()
    changed = {
        network: [key for key in state if not torch.equal(state[key], after[network][key])]
        for network, state in before.items()
    }
    assert {network for network, keys in changed.items() if keys} == {name}
    weights = {key for key, _ in players.networks[name].named_parameters()}
    assert weights <= set(changed[name])


def test_running_statistics_see_the_clean_batch_alone() -> None:
    players = Players(small())
    alone = normalised_network().train()
    alone(players.inputs)
    players.take("classifier")
    for ours, theirs in zip(players.networks["classifier"].buffers(), alone.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_divergence_reaches_every_weight_of_the_generator() -> None:
    players = Players(small())
    uniform = joint_gan.generator_terms(players.method, players.step())["uniform"]
    uniform.backward()
    for weight in players.networks["generator"].parameters():
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0
    for name in ("classifier", "discriminator"):
        assert all(weight.grad is None for weight in players.networks[name].parameters())
        assert all(weight.requires_grad for weight in players.networks[name].parameters())


def test_the_terms_are_the_paper_s_written_out() -> None:
    """Cross-entropies of a sigmoid for the GAN, KL(U || p) by torch.distributions."""
    method = small(uniform_weight=0.3)
    players = Players(method)
    players.networks["classifier"] = small_network().eval()
    classifier, generator, discriminator = players.networks.values()

    def step() -> Step:
        given = players.step()
        classifier.eval()  # no dropout
        return given

    noise = torch.randn(12, 4, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        made = generator(noise)
        real, fake = discriminator(players.inputs).sigmoid(), discriminator(made).sigmoid()
        probs = classifier(made).softmax(1)
        even = torch.distributions.Categorical(torch.full_like(probs, 1 / 3))
        kl = torch.distributions.kl_divergence(even, torch.distributions.Categorical(probs)).mean()
        truth = nn.functional.cross_entropy(classifier(players.inputs), players.labels)
    expected = {
        joint_gan.discriminator_terms: {
            "real": -real.log().mean(),
            "made": -(1 - fake).log().mean(),
        },
        joint_gan.generator_terms: {"fooled": -fake.log().mean(), "uniform": 0.3 * kl},
        joint_gan.classifier_terms: {"cross_entropy": truth, "uniform": 0.3 * kl},
    }
    for terms, values in expected.items():
        found = terms(method, step())
        assert found.keys() == values.keys()
        for name, value in values.items():
            torch.testing.assert_close(found[name].detach(), value, rtol=1e-4, atol=1e-6)


def test_divergence_from_uniform_is_closed_form_and_zero_where_it_is_uniform() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).double().log()
    expected = math.log(1 / 3) - (math.log(0.5) + 2 * math.log(0.25)) / 3
    assert divergence_from_uniform(logits).item() == pytest.approx(expected, abs=1e-12)
    assert divergence_from_uniform(torch.full((4, 7), 3.0)).item() == pytest.approx(0.0, abs=1e-6)
    random = torch.randn(50, 5).double() * 10
    even = torch.distributions.Categorical(torch.full((50, 5), 0.2).double())
    other = torch.distributions.Categorical(logits=random)
    kl = torch.distributions.kl_divergence(even, other).mean()
    torch.testing.assert_close(divergence_from_uniform(random), kl)


def test_divergence_from_uniform_of_half_precision_is_float32() -> None:
    assert divergence_from_uniform(torch.tensor([[3.0, -3.0]]).half()).dtype == torch.float32


@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 8),
        (3, 9, 13),
        (1, 28, 28),
        (3, 32, 32),
        (2, 8, 100),
        (3, 67, 65),
        (5,),
        (3, 40),
        (1, 4, 4),
    ],
)
@pytest.mark.parametrize("bounds", [Bounds(-2.0, 5.0), None])
def test_the_networks_fit_data_of_any_shape(shape: tuple[int, ...], bounds: Bounds | None) -> None:
    generator = Generator(shape, bounds, 6, 4)
    for weight in generator.parameters():
        weight.data *= 30  # so that outputs saturate
    made = generator(torch.randn(3, 6)).detach()
    assert made.shape == (3, *shape)
    if bounds is not None:
        bounds.check(made)
        assert made.min() < -1.5  # and they reach both ends
        assert made.max() > 4.5
    assert Discriminator(shape, bounds, 4)(made).shape == (3,)


def test_an_example_does_not_hang_on_its_batch() -> None:
    generator = Generator((1, 28, 28), None, 6, 8)
    noise = torch.randn(5, 6)
    torch.testing.assert_close(generator(noise)[:2], generator(noise[:2]))


def test_what_is_made_lies_within_the_bounds_stated(tiny: Dataset) -> None:
    networks = small().auxiliary(tiny.train.inputs, Bounds(0.0, 255.0))
    noise = torch.randn(4, 4)
    assert networks["generator"](noise).max() > 100


def test_tables_are_taken_and_tokens_refused() -> None:
    table = load_table()
    network = nn.Sequential(nn.Linear(784, 3))
    method = small(epochs=2)
    fitted = method.fit(network, table.train.batches(30), table.validation.batches())
    assert fitted is network
    tokens = Examples(torch.randint(9, (30, 5)), torch.arange(30) % 3)
    words = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(10, 3))
    with pytest.raises(UserError, match=r"floating-point .* got torch\.int64.* not take tokens"):
        method.fit(words, tokens.batches(10), tokens.batches(10))


def test_plain_loaders_need_bounds(tiny: Dataset) -> None:
    loader = [(tiny.train.inputs, tiny.train.labels)]
    with pytest.raises(UserError, match=r"bounds=Bounds\(0, 1\)"):
        small(epochs=1).fit(small_network(), loader, loader)
    small(epochs=1, bounds=None).fit(small_network(), loader, loader)


@pytest.mark.end_to_end
def test_without_its_weight_it_takes_the_steps_of_dropout(tiny: Dataset) -> None:
    from falconcal import L2Dropout

    settings = {"epochs": 3, "dropout": 0.0, "l2_weight": 0.01}
    networks = [
        method.fit(small_network(), tiny.train.batches(30), tiny.validation.batches())
        for method in (
            small(uniform_weight=0.0, **settings),
            L2Dropout(**settings),  # type: ignore[arg-type]
            small(uniform_weight=1.0, **settings),
        )
    ]
    neutral, plain, other = (network[2].weight for network in networks)  # type: ignore[index]
    torch.testing.assert_close(neutral, plain)
    assert not torch.allclose(other, plain)


def test_the_gradient_of_each_network_is_clipped_by_itself(tiny: Dataset) -> None:
    """With a tiny norm and SGD-like first Adam steps nothing breaks, and each term is recorded."""
    history = History()
    with history.recording():
        small(epochs=1, clip_norm=1e-3, accumulate=2).fit(
            small_network(), tiny.train.batches(30), tiny.validation.batches()
        )
    assert set(history[0].terms) == {
        "discriminator/real", "discriminator/made", "generator/fooled", "generator/uniform",
        "classifier/cross_entropy", "classifier/uniform",
    }  # fmt: skip


def train(stop_after: int = 10**6) -> nn.Module:
    """Train four epochs of five steps, or stop by an error once some batches are done."""
    data = load_stripes()
    method = small(
        epochs=4, accelerator="cpu", learning_rate=0.01, gan_learning_rate=0.01,
        bounds=Bounds(0.0, 1.0),
    )  # fmt: skip
    batches = Stopping(data.train.batches(18), stop_after)
    return method.fit(normalised_network(), batches, data.validation.batches())


@pytest.mark.slow
def test_two_processes_train_a_network_with_running_statistics() -> None:
    state = with_gan(2, normalised_network).state_dict()
    assert all(value.isfinite().all() for value in state.values())
    assert state["1.num_batches_tracked"] == 4 * 5


@pytest.mark.end_to_end
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Generator, discriminator and their optimisers come back too."""
    with checkpointing(tmp_path, every_minutes=0), pytest.raises(StoppedError):
        train(stop_after=9)
    with checkpointing(tmp_path, every_minutes=0):
        found = train().state_dict()
    expected = train().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_kill_nine_leaves_the_same_bits(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.methods.test_joint_gan", str(tmp_path)]
    process = subprocess.Popen(command, env=environment, cwd=ROOT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(tmp_path.glob("*.safetensors")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with checkpointing(tmp_path):
        found = train().state_dict()
    expected = train().state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with checkpointing(sys.argv[1], every_minutes=0):
        train()
