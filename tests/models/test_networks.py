"""Every network of the table under one contract."""

from collections import OrderedDict
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from falconcal.core.perturbation_point import (
    EmbeddingPoint,
    find_perturbation_point,
    input_gradient,
)
from falconcal.data import load_dataset
from falconcal.data.locations import data_folder
from falconcal.errors import UsageError, UserError
from falconcal.metrics import accuracy
from falconcal.models import (
    MODELS,
    VGG,
    CifarResNet,
    LeNet,
    PixelRecurrent,
    ResNet,
    TextRecurrent,
    TokenTransformer,
    make_model,
    predict,
)
from falconcal.models.cifar_resnet import PaddedShortcut
from falconcal.models.pixel_recurrent import CellType, FirstWeights
from falconcal.models.published_weights import load_published
from tests.helpers.small_data import data_for


def parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", MODELS)
def test_it_gives_logits_and_gradients_reach_every_weight(name: str) -> None:
    data = data_for(name)
    model = make_model(name, data)
    logits = model(data.train.inputs)
    assert logits.shape == (6, 4)
    nn.functional.cross_entropy(logits, data.train.labels).backward()
    for weight in model.parameters():
        assert not weight.requires_grad or (weight.grad is not None and weight.grad.any())


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", MODELS)
def test_its_first_weights_depend_on_the_seed_alone(name: str) -> None:
    data = data_for(name)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, again, other = (make_model(name, data, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    same = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in same)
    different = zip(first.parameters(), other.parameters(), strict=True)
    assert not all(torch.equal(one, two) for one, two in different)


@pytest.mark.parametrize("name", MODELS)
def test_it_refuses_inputs_that_it_cannot_read(name: str) -> None:
    other = data_for("lenet" if name.startswith(("text", "signal")) else "text_lstm")
    if name == "mlp":  # it takes everything
        return
    with pytest.raises(UserError, match=f"{name} needs "):
        make_model(name, other)


def test_lenet_has_the_papers_size() -> None:
    assert parameters(LeNet()) == 369_174


def test_lenet_pools_before_relu_to_the_same_bits() -> None:
    """The paper's order is convolution, ReLU, pool; values and gradients are equal."""
    model, images = LeNet(dropout=0.0), torch.rand(8, 1, 28, 28)
    first, pool, relu, second, *_ = model.features
    named = nn.Sequential(first, relu, pool, second, relu, pool, nn.Flatten(), model.classifier)
    gradients = []
    for network in (model, named):
        model.zero_grad()
        logits = network(images)
        logits.square().sum().backward()
        gradients.append([logits, *(weight.grad for weight in model.parameters())])
    for ours, theirs in zip(*gradients, strict=True):
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs)


def test_lenet_takes_other_images() -> None:
    assert LeNet(classes=4, channels=3, size=32)(torch.rand(2, 3, 32, 32)).shape == (2, 4)


def test_vgg19_has_the_papers_size_and_may_be_narrower() -> None:
    assert parameters(VGG()) == 21_624_650
    narrow = make_model("vgg19", data_for("vgg19"), width=4)
    assert narrow.get_submodule("features.0").out_channels == 4
    assert narrow.get_submodule("classifier.0").out_features == 64
    whole = make_model("vgg19", data_for("vgg19"))
    assert [type(one) for one in narrow.modules()] == [type(one) for one in whole.modules()]


def test_vgg_takes_images_that_five_pools_would_use_up() -> None:
    assert VGG(classes=4, channels=1, size=28)(torch.rand(2, 1, 28, 28)).shape == (2, 4)


def test_recurrent_dropout_really_drops() -> None:
    model = PixelRecurrent(dropout=0.5).train()
    images = torch.rand(2, 1, 5, 5)
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), model(images))


def test_a_recurrent_network_reads_pixels_row_by_row() -> None:
    """Its output is that of the layer given the pixels as a list."""
    model, image = PixelRecurrent(hidden=6), torch.rand(1, 1, 3, 4)
    pixels = torch.tensor([[pixel] for row in image[0, 0].tolist() for pixel in row])
    _, (last, _) = model.layer(pixels[None])
    torch.testing.assert_close(model(image), model.classifier(last[0]))


def test_the_transformer_knows_the_order_of_words() -> None:
    model = TokenTransformer(3, vocabulary=9, length=5).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 0]])
    assert model(tokens).shape == (1, 3)
    assert not torch.allclose(model(tokens), model(tokens.flip(1)))
    words = tokens[:, :4]
    torch.testing.assert_close(model.classify(model.embed(words)), model(words))


@pytest.mark.parametrize("vectors", [None, torch.randn(9, 7)])
def test_padding_changes_nothing_of_what_the_transformer_says(vectors: Tensor | None) -> None:
    """Appended to a batch, or there because another text is longer; no text at all is an answer."""
    model = TokenTransformer(3, vocabulary=9, length=8, vectors=vectors).eval()
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [0, 0, 0, 0]])
    longer = nn.functional.pad(tokens, (0, 4))
    torch.testing.assert_close(model(longer), model(tokens))
    torch.testing.assert_close(model(tokens[1:2, :2]), model(tokens[1:2]))
    assert model(tokens).isfinite().all()
    labels = torch.tensor([0, 1, 2])
    gradients = [input_gradient(model, rows, labels) for rows in (tokens, longer)]
    torch.testing.assert_close(gradients[1][:, :4], gradients[0])
    assert gradients[1][:2][longer[:2] == 0].abs().max() == 0


def test_weights_of_a_transformer_keep_their_names() -> None:
    """So files from before it had a mask are still read."""
    names = {name.split(".")[0] for name in TokenTransformer(3, 9, 5).state_dict()}
    assert names == {"words", "places", "encoder", "classifier"}
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict()
    encoder = TokenTransformer(3, 9, 5, 8, 2).encoder.state_dict()
    assert {name: one.shape for name, one in encoder.items()} == {
        name: one.shape for name, one in plain.items()
    }


def test_the_transformer_takes_word_vectors_and_leaves_them_as_they_are() -> None:
    vectors = torch.randn(9, 7)
    model = TokenTransformer(3, vocabulary=9, length=5, vectors=vectors).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 0]])
    assert torch.equal(model.embed(tokens)[0], vectors[tokens[0]])
    assert model(tokens).shape == (1, 3)
    assert not model.words.weight.requires_grad


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_text_network_gives_all_states_in_a_row_to_its_dense_layer(kind: CellType) -> None:
    """State by state with the cell of the same weights."""
    vectors = torch.randn(9, 7)
    model = TextRecurrent(3, vectors, length=4, kind=kind, hidden=5)
    cell = nn.LSTMCell(7, 5) if kind == "lstm" else nn.GRUCell(7, 5)
    weights = model.layer.state_dict()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in weights.items()})
    tokens = torch.tensor([[1, 8, 0, 0]])
    state, states = None, []
    for token in tokens[0]:
        state = cell(vectors[token][None], state)
        states.append(state[0] if kind == "lstm" else state)
    torch.testing.assert_close(model(tokens), model.classifier(torch.cat(states, 1)))


def test_a_text_network_is_perturbed_at_its_word_vectors_in_units_of_their_deviation() -> None:
    vectors = torch.randn(9, 7) * 3
    model = TextRecurrent(3, vectors, length=4)
    perturbation_point = find_perturbation_point(model, torch.tensor([[1, 2, 3, 0]]))
    assert isinstance(perturbation_point, EmbeddingPoint)
    assert perturbation_point.epsilon_unit(torch.zeros(1)) == pytest.approx(float(vectors.std()))


def test_dropout_of_a_text_network_is_on_the_inputs_of_its_layer() -> None:
    model = TextRecurrent(3, torch.randn(9, 7), length=4, dropout=0.5).train()
    seen: list[Tensor] = []
    model.layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(torch.tensor([[1, 2, 3, 4]]))
    assert (seen[0] == 0).any()
    model.eval()(torch.tensor([[1, 2, 3, 4]]))
    assert not (seen[1] == 0).any()


def test_word_vectors_of_another_width_are_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UsageError, match=r"set model\.width=100"):
        make_model("text_lstm", data_for("text_lstm"), width=50)


def test_settings_of_a_network_are_checked() -> None:
    data = data_for("lstm")
    assert make_model("lstm", data, hidden=7).get_submodule("layer").hidden_size == 7
    with pytest.raises(UsageError, match=r"unknown setting 'hiden'\. Did you mean 'hidden'"):
        make_model("lstm", data, hiden=7)
    with pytest.raises(UsageError, match="model lstm: hidden should be greater than or equal to 1"):
        make_model("lstm", data, hidden=0)
    with pytest.raises(UsageError, match="width should be a multiple of 16, got 24"):
        make_model("resnet_small", data, width=24)


def test_resnet50_has_torchvisions_size_and_names() -> None:
    with torch.device("meta"):
        model = ResNet()
    assert parameters(model) == 25_557_032
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert len(shapes) == 320  # as published: 53 convolutions, 53 batch norms of 5, fc of 2
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["bn1.running_mean"] == (64,)
    assert shapes["layer1.0.conv1.weight"] == (64, 64, 1, 1)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer1.0.downsample.1.bias"] == (256,)
    assert shapes["layer2.3.conv2.weight"] == (128, 128, 3, 3)
    assert shapes["layer3.5.bn3.num_batches_tracked"] == ()
    assert shapes["layer4.2.conv3.weight"] == (2048, 512, 1, 1)
    assert shapes["fc.weight"] == (1000, 2048)


def test_resnet20_has_the_published_names_and_size() -> None:
    with torch.device("meta"):
        small, large = CifarResNet(), CifarResNet(depth=56)
    assert parameters(small) == 269_722  # 0.27 million in He et al.'s table 6
    assert parameters(large) == 853_018
    names = [name for name in small.state_dict() if "num_batches" not in name]
    assert len(names) == 97  # 19 convolutions, 19 batch norms of 4, linear of 2
    assert {"conv1.weight", "layer2.0.conv1.weight", "layer3.2.bn2.running_var"} <= set(names)
    assert {"linear.weight", "linear.bias"} <= set(names)


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod."])
def test_weights_of_a_wrapped_network_fit_the_network_inside(wrapper: str, tmp_path: Path) -> None:
    """As DataParallel and torch.compile name them in many published files."""
    kept, loaded = CifarResNet(10), CifarResNet(10)
    state = {wrapper + name: value for name, value in kept.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 200}, tmp_path / "net.pth")
    load_published(loaded, tmp_path / "net.pth")
    for ours, theirs in zip(loaded.parameters(), kept.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    state.pop(wrapper + "linear.bias")
    torch.save(state, tmp_path / "cut.pth")
    with pytest.raises(UserError, match=r"missing: linear\.bias"):
        load_published(loaded, tmp_path / "cut.pth")


def test_a_shortcut_without_weights_takes_every_second_pixel_and_pads_channels() -> None:
    images = torch.arange(32.0).reshape(1, 2, 4, 4)
    found = PaddedShortcut(2)(images)
    assert found.shape == (1, 4, 2, 2)
    assert found[0, 1].tolist() == [[0, 2], [8, 10]]
    assert found[0, 2].tolist() == [[16, 18], [24, 26]]
    assert not found[0, 0].any()
    assert not found[0, 3].any()


@pytest.mark.end_to_end
def test_published_weights_of_cifar10_give_the_accuracy_that_was_measured() -> None:
    folder = data_folder()
    file = (folder or Path()) / "cifar-10-resnets" / "resnet20-12fca82f.safetensors"
    if folder is None or not file.exists():
        pytest.skip("the weights lie in the folder FALCONCAL_DATA, which is not set or lacks them")
    data = load_dataset("cifar10")
    model = make_model("resnet20", data, weights=file).eval()
    found = accuracy(predict(model, data.test.first(1000)))
    assert abs(found - 0.9173) < 3 * (0.9173 * 0.0827 / 1000) ** 0.5  # measured on all 10,000


def test_a_bottleneck_halves_the_size_in_its_3x3_convolution() -> None:
    """Where torchvision has the stride, on which its published weights were trained."""
    with torch.device("meta"):
        model = ResNet()
    strides = {
        name: layer.stride[0]
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Conv2d) and layer.stride[0] > 1
    }
    assert set(strides) == {
        "conv1", "layer2.0.conv2", "layer2.0.downsample.0", "layer3.0.conv2",
        "layer3.0.downsample.0", "layer4.0.conv2", "layer4.0.downsample.0",
    }  # fmt: skip


def test_a_residual_network_is_what_its_parts_give_in_a_row() -> None:
    """A bottleneck worked by functions alone, from the weights by their names."""
    model = ResNet(3, blocks=(1,), width=4).eval()
    for name, value in model.state_dict().items():
        if "running_var" in name:
            value.uniform_(0.5, 2)
        elif "running_mean" in name:
            value.normal_()
    weights, images = model.state_dict(), torch.rand(2, 3, 16, 16)

    def normed(features: Tensor, name: str) -> Tensor:
        mean, variance, scale, shift = (
            weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return nn.functional.batch_norm(features, mean, variance, scale, shift)

    convolve = nn.functional.conv2d
    stem = normed(convolve(images, weights["conv1.weight"], stride=2, padding=3), "bn1").relu()
    stem = nn.functional.max_pool2d(stem, 3, 2, 1)
    block = normed(convolve(stem, weights["layer1.0.conv1.weight"]), "layer1.0.bn1").relu()
    block = convolve(block, weights["layer1.0.conv2.weight"], padding=1)
    block = convolve(normed(block, "layer1.0.bn2").relu(), weights["layer1.0.conv3.weight"])
    past = convolve(stem, weights["layer1.0.downsample.0.weight"])
    features = normed(block, "layer1.0.bn3") + normed(past, "layer1.0.downsample.1")
    expected = model.fc(features.relu().mean((2, 3)))
    torch.testing.assert_close(model(images), expected)


def published(classes: int = 4) -> "OrderedDict[str, Tensor]":
    """Return a state dict such as is published, made by hand: older ones count no batches."""
    generator = torch.Generator().manual_seed(1)
    with torch.device("meta"):
        shapes = ResNet(classes).state_dict()
    return OrderedDict(
        (name, torch.rand(value.shape, generator=generator))
        for name, value in shapes.items()
        if not name.endswith("num_batches_tracked")
    )


@pytest.mark.end_to_end
@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_published_weights_are_read_from_a_file(tmp_path: Path, ending: str) -> None:
    weights, file = published(), tmp_path / f"resnet50{ending}"
    if ending == ".pth":
        torch.save(weights, file)
    else:
        safetensors.torch.save_file(weights, file)
    model = make_model("resnet50", data_for("resnet50"), weights=str(file))
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights.items())


def test_weights_that_a_training_script_saved_are_read_too(tmp_path: Path) -> None:
    small = make_model("lenet", data_for("lenet"), seed=5)
    torch.save({"epoch": 3, "state_dict": small.state_dict()}, tmp_path / "checkpoint.pth")
    again = make_model("lenet", data_for("lenet"), weights=tmp_path / "checkpoint.pth")
    assert all(map(torch.equal, small.parameters(), again.parameters()))


def test_weights_of_another_network_are_refused_by_name(tmp_path: Path) -> None:
    weights = make_model("lenet", data_for("lenet")).state_dict()
    weights["classifier.6.bias"] = torch.zeros(7)
    weights["extra"] = weights.pop("classifier.3.bias")
    torch.save(weights, tmp_path / "lenet.pth")
    with pytest.raises(UserError) as error:
        make_model("lenet", data_for("lenet"), weights=tmp_path / "lenet.pth")
    assert "missing: classifier.3.bias; too many: extra" in str(error.value)
    assert "classifier.6.bias (7,) for (4,)" in str(error.value)


def test_a_file_that_needs_pickle_is_not_read(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pth")
    with pytest.raises(UserError, match="files that need pickle are not read"):
        make_model("lenet", data_for("lenet"), weights=tmp_path / "whole.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(UserError, match="expected tensors by name"):
        make_model("lenet", data_for("lenet"), weights=tmp_path / "list.pth")
    with pytest.raises(UserError, match=r"no file of weights at .*none\.pth"):
        make_model("lenet", data_for("lenet"), weights=tmp_path / "none.pth")


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_orthogonal_first_weights_keep_lengths_and_open_the_forget_gate(kind: CellType) -> None:
    layer = PixelRecurrent(kind=kind, hidden=6, first_weights="orthogonal").layer
    weights = dict(layer.named_parameters())
    for gate in torch.split(weights["weight_hh_l0"], 6):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6))
    biases = torch.split(weights["bias_ih_l0"] + weights["bias_hh_l0"], 6)
    expected = [0.0, 1.0, 0.0, 0.0] if kind == "lstm" else [0.0, 0.0, 0.0]
    assert [bias.unique().tolist() for bias in biases] == [[value] for value in expected]


def test_with_orthogonal_first_weights_the_first_pixel_of_196_still_counts() -> None:
    def weight_of_first_pixel(first_weights: FirstWeights) -> float:
        torch.manual_seed(0)
        image = torch.rand(4, 1, 14, 14, requires_grad=True)
        PixelRecurrent(hidden=40, first_weights=first_weights)(image).square().sum().backward()
        assert image.grad is not None
        return float(image.grad[..., 0, 0].norm() / image.grad[..., -1, -1].norm())

    assert weight_of_first_pixel("uniform") < 1e-12
    assert weight_of_first_pixel("orthogonal") > 1e6 * weight_of_first_pixel("uniform")
