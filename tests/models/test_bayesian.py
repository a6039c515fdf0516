"""Bayesian layers against closed forms, and networks made of ordinary ones with them."""

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from falconcal.errors import UserError
from falconcal.models import VGG, LeNet, PixelRecurrent, TokenTransformer
from falconcal.models.bayesian import (
    BayesianLayer,
    Flipout,
    MNFConv2d,
    MNFLinear,
    divergence,
    to_bayesian,
    with_bayesian_last_layer,
)
from falconcal.models.bayesian.flows import Flows, MaskedFlow
from falconcal.models.bayesian.mnf_layers import MultiplicativeFlow

FLIPOUT = {nn.Linear: Flipout, nn.Conv2d: Flipout}
MNF = {nn.Linear: MNFLinear, nn.Conv2d: MNFConv2d}
GEOMETRIES: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    {"kernel_size": (3, 1), "padding": "same", "bias": False},
    {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
]
FORMS: dict[str, Callable[[], BayesianLayer]] = {
    "flipout linear": lambda: Flipout(nn.Linear(5, 3)),
    "flipout conv": lambda: Flipout(nn.Conv2d(4, 6, 3, padding=1, groups=2)),
    "mnf linear": lambda: MNFLinear(nn.Linear(5, 3)),
    "mnf conv": lambda: MNFConv2d(nn.Conv2d(4, 6, 3, padding=1, groups=2)),
    "mnf conv, no bias, no flows": lambda: MNFConv2d(nn.Conv2d(4, 6, 3, bias=False), flows=0),
}


def inputs_of(layer: BayesianLayer, count: int = 7) -> Tensor:
    return torch.randn(count, *((5,) if isinstance(layer.mean, nn.Linear) else (4, 5, 5)))


def with_deviation(layer: BayesianLayer, deviation: float) -> BayesianLayer:
    with torch.no_grad():
        layer.rho.fill_(math.log(math.expm1(deviation)))
    return layer


def drawn(layer: BayesianLayer, inputs: Tensor, count: int) -> Tensor:
    """Return the outputs of many passes in training mode: (count, N, ...)."""
    with torch.no_grad():
        return torch.stack([layer(inputs) for _ in range(count)])


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_without_deviation_flipout_is_the_plain_convolution(geometry: dict[str, Any]) -> None:
    plain, images = nn.Conv2d(4, 6, **geometry), torch.randn(3, 4, 9, 9)
    layer = with_deviation(Flipout(copy.deepcopy(plain)), 1e-12)
    torch.testing.assert_close(layer(images), plain(images))
    assert torch.equal(layer.eval()(images), plain(images))


@pytest.mark.parametrize("inputs", [torch.randn(7, 5), torch.randn(7, 2, 5)])
def test_without_deviation_flipout_is_the_plain_dense_layer(inputs: Tensor) -> None:
    plain = nn.Linear(5, 3)
    layer = with_deviation(Flipout(copy.deepcopy(plain)), 1e-12)
    torch.testing.assert_close(layer(inputs), plain(inputs))


def test_flipout_is_the_formula() -> None:
    """y = x M^T + b + ((x * s_in) (sigma * eps)^T) * s_out, drawn by hand in the same order."""
    layer, inputs = Flipout(nn.Linear(5, 3)), torch.randn(7, 5)
    torch.manual_seed(1)
    ours = layer(inputs)
    torch.manual_seed(1)
    noise = torch.randn(3, 5)
    signs = [torch.randint(2, (7, size)).float() * 2 - 1 for size in (5, 3)]
    sigma = math.log1p(math.exp(-3))
    expected = torch.stack([
        layer.mean(inputs[n])
        + ((inputs[n] * signs[0][n]) @ (sigma * noise).T) * signs[1][n]
        for n in range(7)
    ])  # fmt: skip
    torch.testing.assert_close(ours, expected)


def test_flipout_of_one_pixel_is_that_of_a_dense_layer() -> None:
    convolution, dense = Flipout(nn.Conv2d(5, 3, 1)), Flipout(nn.Linear(5, 3))
    with torch.no_grad():
        dense.mean.weight.copy_(convolution.mean.weight[:, :, 0, 0])
        assert dense.mean.bias is not None
        dense.mean.bias.copy_(convolution.mean.bias)  # type: ignore[arg-type]
    inputs = torch.randn(7, 5)
    torch.manual_seed(1)
    pixels = convolution(inputs[:, :, None, None])
    torch.manual_seed(1)
    torch.testing.assert_close(pixels[:, :, 0, 0], dense(inputs))


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", FORMS)
def test_training_noise_has_the_mean_and_the_variance_of_drawn_weights(name: str) -> None:
    """In training mode, and with several draws per batch, the outputs have one distribution."""
    layer = with_deviation(FORMS[name](), 0.3)
    inputs, count = inputs_of(layer, 2), 1500
    noisy = drawn(layer, inputs, count)
    layer.draws = tuple(range(count))
    with torch.no_grad():
        networks = layer(inputs.repeat(count, *[1] * (inputs.ndim - 1))).unflatten(0, (count, 2))
    spread = networks.std(0)
    gap = (noisy.mean(0) - networks.mean(0)).abs() / (spread * (2 / count) ** 0.5)
    assert gap.max() < 5
    torch.testing.assert_close(noisy.std(0), spread, rtol=0.15, atol=0)


@pytest.mark.end_to_end
def test_flipout_is_unbiased_with_the_variance_of_the_posterior() -> None:
    layer, inputs = with_deviation(Flipout(nn.Linear(5, 3)), 0.5), torch.randn(4, 5)
    outputs = drawn(layer, inputs, 5000)
    expected = layer.mean(inputs)
    error = 0.5 * inputs.square().sum(1, keepdim=True).sqrt()  # (N, 1), by hand
    assert ((outputs.mean(0) - expected).abs() / error).max() < 5 / 5000**0.5
    torch.testing.assert_close(outputs.std(0), error.expand(4, 3), rtol=0.05, atol=0)


def test_flipout_decorrelates_examples_and_so_lowers_the_variance_of_gradients() -> None:
    """Signs of a row's own: the mean over a batch scatters less than with one noise for all."""
    layer, inputs = with_deviation(Flipout(nn.Linear(5, 3)), 0.5), torch.randn(1, 5).repeat(64, 1)

    def gradient_variance(run: Callable[[], Tensor]) -> float:
        gradients = []
        for _ in range(400):
            layer.zero_grad()
            run().square().mean().backward()
            assert layer.mean.weight.grad is not None
            gradients.append(layer.mean.weight.grad.clone())
        return float(torch.stack(gradients).var(0).mean())

    flipped = gradient_variance(lambda: layer(inputs))
    seeds = itertools.count()
    shared = gradient_variance(
        lambda: functional.linear(inputs, *next(layer.draw_weights([next(seeds)])))
    )
    assert flipped < shared / 10
    outputs = drawn(layer, inputs, 400)  # (400, 64, 3)
    pairs = torch.corrcoef(outputs[:, :2, 0].T)[0, 1]
    assert abs(float(pairs)) < 0.2


def test_divergence_is_the_closed_form_summed_over_all_weights() -> None:
    layer = Flipout(nn.Conv2d(4, 6, 3))
    with torch.no_grad():
        layer.rho.normal_(-1, 1)
    posterior = Normal(layer.mean.weight, functional.softplus(layer.rho))
    expected = kl_divergence(posterior, Normal(0.0, 1.0)).sum()
    torch.testing.assert_close(layer.divergence(), expected)
    dense = Flipout(nn.Linear(6, 2))
    two = nn.Sequential(layer, nn.Flatten(), dense)
    torch.testing.assert_close(divergence(two), expected + dense.divergence())
    prior = with_deviation(layer, 1.0)
    nn.init.zeros_(prior.mean.weight)
    assert abs(prior.divergence().item()) < 1e-4


@pytest.mark.parametrize("part", ["data", "divergence"])
@pytest.mark.parametrize("name", FORMS)
def test_gradient_reaches_every_weight(name: str, part: str) -> None:
    """The biases and their deviations too, which a public port of MNF leaves untrained."""
    layer = FORMS[name]()
    loss = layer(inputs_of(layer)).square().mean() if part == "data" else layer.divergence()
    loss.backward()
    for weight_name, weight in layer.named_parameters():
        elsewhere = part == "data" and weight_name.startswith("auxiliary")
        elsewhere |= part == "divergence" and weight_name == "mean.bias" and "flipout" in name
        if not elsewhere:
            assert weight.grad is not None, weight_name
            assert weight.grad.isfinite().all()
            assert weight.grad.abs().sum() > 0, weight_name
    assert layer.rho.grad is not None
    assert (layer.rho.grad != 0).all()


@pytest.mark.end_to_end
def test_the_posterior_of_linear_regression_is_found() -> None:
    """y = x w + noise of deviation 1, prior N(0, I), orthogonal columns: the posterior is known.

    It factorises, so that the best normal distribution is the posterior itself:
    N(X^T y / (n_k + 1), 1 / (n_k + 1)), n_k the squared length of column k.
    """
    lengths = torch.tensor([3.0, 8.0, 24.0])  # squared
    inputs = torch.linalg.qr(torch.randn(40, 3)).Q * lengths.sqrt()
    targets = inputs @ torch.tensor([[1.0], [-0.5], [0.7]]) + torch.randn(40, 1)
    layer = Flipout(nn.Linear(3, 1, bias=False))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    path = []
    for _ in range(1000):
        optimizer.zero_grad()
        likelihood = (layer(inputs) - targets).square().mean() / 2
        (likelihood + layer.divergence() / len(inputs)).backward()
        optimizer.step()
        path.append((layer.mean.weight[0].detach().clone(), layer.deviation[0].detach()))
    # steps scatter around the answer
    mean, deviation = (torch.stack(values[400:]).mean(0) for values in zip(*path, strict=True))
    precision = lengths + 1
    truth = (inputs.T @ targets)[:, 0] / precision
    torch.testing.assert_close(mean, truth, rtol=0, atol=0.03)
    torch.testing.assert_close(deviation, precision.rsqrt(), rtol=0.05, atol=0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_log_determinant_of_flows_is_that_of_the_jacobian(count: int) -> None:
    flows, z = Flows(count, 6, 50).double(), torch.randn(4, 6).double()
    _, found = flows(z)
    for row, value in zip(z, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda z: flows(z[None])[0][0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian).logabsdet, value)
    moved = flows(z)[0] - z
    for step in flows.steps[:1] if count == 1 else []:
        assert (moved[:, step.mask == 1] == 0).all()
        assert (moved[:, step.mask == 0] != 0).all()


def test_no_flows_are_the_identity_and_masks_are_even() -> None:
    z = torch.randn(4, 6)
    end, log_determinant = Flows(0, 6, 50)(z)
    assert torch.equal(end, z)
    assert torch.equal(log_determinant, torch.zeros(4))
    masks = torch.stack([MaskedFlow(6, 1).mask for _ in range(500)])
    assert set(masks.flatten().tolist()) == {0.0, 1.0}
    assert (masks.mean(1) == 0.5).all()
    assert ((masks.mean(0) - 0.5).abs() < 0.1).all()


def test_z_multiplies_inputs_of_dense_layers_and_output_channels_of_convolutions() -> None:
    """Weights scaled along the right axis, which a public port of MNF mixes up."""
    dense, z = MNFLinear(nn.Linear(5, 3)), torch.randn(2, 5)
    inputs = torch.randn(2, 5)
    for n in range(2):
        scaled = dense.mean.weight @ z[n].diag()
        expected = functional.linear(inputs[n], scaled, dense.mean.bias)
        torch.testing.assert_close(dense.multiplied(inputs, z)[n], expected)
        torch.testing.assert_close(dense.scaled(z[n]), scaled)
    convolution, z = MNFConv2d(nn.Conv2d(3, 4, 3, padding=1)), torch.randn(2, 4)
    images = torch.randn(2, 3, 6, 6)
    for n in range(2):
        weight = convolution.mean.weight.clone()
        for channel in range(4):
            weight[channel] *= z[n, channel]
        expected = functional.conv2d(images[n : n + 1], weight, convolution.mean.bias, padding=1)
        torch.testing.assert_close(convolution.multiplied(images, z)[n : n + 1], expected)
        torch.testing.assert_close(convolution.scaled(z[n]), weight)


@pytest.mark.parametrize("name", ["mnf linear", "mnf conv"])
def test_mnf_divergence_is_its_four_parts_written_out(name: str) -> None:
    """With torch's distributions and loops over the elements, the noise drawn alike."""
    layer = FORMS[name]()
    assert isinstance(layer, MultiplicativeFlow)
    torch.manual_seed(1)
    ours = layer.divergence()
    torch.manual_seed(1)
    size = len(layer.mu0)
    start = Normal(layer.mu0, (layer.log_variance0 / 2).exp())
    z, log_determinant = layer.flows(start.mean + start.stddev * torch.randn(1, size))
    weight = layer.mean.weight.clone()
    for index in range(size):
        weight[(slice(None), index) if name == "mnf linear" else index] *= z[0, index]
    sigma = functional.softplus(layer.rho)
    expected = kl_divergence(Normal(weight, sigma), Normal(0.0, 1.0)).sum()
    bias = Normal(layer.mean.bias, functional.softplus(layer.bias_rho))  # type: ignore[arg-type]
    expected = expected + kl_divergence(bias, Normal(0.0, 1.0)).sum()
    expected = expected - start.entropy().sum() - log_determinant[0]
    rows = weight.T if name == "mnf linear" else weight.reshape(size, -1)
    noise = sigma.T if name == "mnf linear" else sigma.reshape(size, -1)
    auxiliary = layer.auxiliary
    values = []
    for column, epsilon in enumerate(torch.randn(rows.shape[1])):
        spread = (auxiliary.c * noise[:, column]).square().sum().sqrt()
        value = (auxiliary.c * rows[:, column]).sum() + spread * epsilon
        values.append(value.tanh() if name == "mnf linear" else value)
    glance = sum(values) / len(values)
    end, extra = auxiliary.flows(z)
    density = Normal(auxiliary.b1 * glance, (auxiliary.b2 * glance / 2).exp())
    expected = expected - density.log_prob(end[0]).sum() - extra[0]
    torch.testing.assert_close(ours, expected)


@pytest.mark.end_to_end
def test_mnf_at_the_prior_diverges_by_nothing() -> None:
    """W ~ N(0, 1) whatever z, and r(z) = q(z): the bound is 0 on average."""
    layer = with_deviation(MNFLinear(nn.Linear(5, 3), flows=0), 1.0)
    assert isinstance(layer, MNFLinear)
    with torch.no_grad():
        for weight in (*layer.mean.parameters(), layer.mu0, layer.log_variance0):
            weight.zero_()
        layer.bias_rho.fill_(math.log(math.e - 1))  # type: ignore[union-attr]
        layer.auxiliary.b1.zero_()
        layer.auxiliary.b2.zero_()
        values = torch.stack([layer.divergence() for _ in range(2000)])
    assert abs(float(values.mean())) < 5 * float(values.std()) / 2000**0.5
    assert float(values.std()) > 0.1


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["mnf linear", "mnf conv", "mnf conv, no bias, no flows"])
def test_mnf_divergence_is_finite_and_falls(name: str) -> None:
    layer = FORMS[name]()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03)
    values = []
    for _ in range(200):
        optimizer.zero_grad()
        value = layer.divergence()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert all(map(math.isfinite, values))
    first, middle, last = (sum(values[start:][:20]) / 20 for start in (0, 90, 180))
    assert first > 2 * middle > 0
    assert middle > last > -1  # the bound is of a divergence, which is never below 0


def test_first_z_is_near_0_with_flows_and_near_1_without() -> None:
    for flows, first in ((2, 0.0), (0, 1.0)):
        layer = MNFLinear(nn.Linear(500, 2), flows=flows)
        assert abs(layer.mu0.mean().item() - first) < 0.05
        torch.testing.assert_close(layer.log_variance0.exp(), torch.full((500,), 0.1))


def test_black_images_and_no_bias_leave_a_gradient() -> None:
    layer = MNFConv2d(nn.Conv2d(1, 2, 3, bias=False))
    layer(torch.zeros(2, 1, 5, 5)).sum().backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in layer.parameters())


@pytest.mark.parametrize("forms", [FLIPOUT, MNF], ids=["flipout", "mnf"])
@pytest.mark.parametrize("network", [LeNet(dropout=0.0), VGG(plan=(8, 0), dense=(16,))])
def test_every_dense_and_convolution_layer_is_converted(forms: Any, network: nn.Module) -> None:
    before = copy.deepcopy(network.state_dict())
    model = to_bayesian(network, forms)
    plain = [layer for layer in network.modules() if type(layer) in forms]
    layers = [layer for layer in model.modules() if isinstance(layer, BayesianLayer)]
    assert [type(layer.mean) for layer in layers] == [type(layer) for layer in plain]
    for layer, old in zip(layers, plain, strict=True):
        assert torch.equal(layer.mean.weight, old.weight)  # type: ignore[arg-type]
        assert layer.mean.weight is not old.weight
        assert (layer.rho == -3).all()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    logits = model(torch.rand(3, *((1, 28, 28) if isinstance(network, LeNet) else (3, 32, 32))))
    assert logits.shape == (3, 10)


def test_a_layer_in_two_places_stays_one() -> None:
    inner = nn.Linear(4, 4)
    model = to_bayesian(nn.Sequential(inner, nn.Sequential(inner, nn.Linear(4, 2))), FLIPOUT)
    assert model.get_submodule("0") is model.get_submodule("1.0")
    assert isinstance(to_bayesian(inner, FLIPOUT), Flipout)


@pytest.mark.parametrize(
    ("network", "layer"),
    [
        (PixelRecurrent(), "LSTM at 'layer'"),
        (PixelRecurrent(kind="gru"), "GRU at 'layer'"),
        (TokenTransformer(3, 20, 5), "Embedding at 'words'"),
        (nn.Sequential(nn.Conv1d(2, 3, 3)), "Conv1d at '0'"),
        (nn.TransformerEncoderLayer(8, 2), "MultiheadAttention at 'self_attn'"),
        (to_bayesian(nn.Linear(2, 2), FLIPOUT), "Flipout at 'the top'"),
    ],
)
def test_layers_without_a_bayesian_form_are_refused(network: nn.Module, layer: str) -> None:
    with pytest.raises(UserError, match=f"got {layer}: use last_layer_svi"):
        to_bayesian(network, FLIPOUT)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(UserError, match=r"nn\.Linear and nn\.Conv2d layers .* found none"):
        to_bayesian(nn.Flatten(), FLIPOUT)
    with pytest.raises(UserError, match=r"last layer is an nn\.Linear, found none"):
        with_bayesian_last_layer(nn.LSTM(2, 3), FLIPOUT)


@pytest.mark.parametrize("network", [PixelRecurrent(), TokenTransformer(3, 20, 5), LeNet()])
def test_the_last_layer_alone_is_converted(network: nn.Module) -> None:
    model = with_bayesian_last_layer(network, FLIPOUT)
    found = {name for name, layer in model.named_modules() if isinstance(layer, BayesianLayer)}
    assert found == {"classifier.6" if isinstance(network, LeNet) else "classifier"}


def test_the_last_layer_can_be_named() -> None:
    network = nn.ModuleDict({"head": nn.Linear(4, 2), "body": nn.Linear(3, 4)})
    assert isinstance(
        with_bayesian_last_layer(network, FLIPOUT, "head").get_submodule("head"), Flipout
    )
    with pytest.raises(UserError, match=r"name of an nn\.Linear, \['head', 'body'\], got 'neck'"):
        with_bayesian_last_layer(network, FLIPOUT, "neck")


def test_flows_are_as_wide_as_what_flows_where_layers_give_half() -> None:
    flows, z = Flows(2, 6, 8), torch.randn(4, 6)
    for layer in [layer for layer in flows.modules() if isinstance(layer, nn.Linear)]:
        layer.register_forward_hook(lambda _, __, output: output.half())
        layer.register_forward_pre_hook(lambda _, inputs: inputs[0].float())
    moved, log_determinant = flows(z)
    assert moved.dtype == log_determinant.dtype == torch.float32
