"""Networks: plain modules, logits out. One file each, and the table of them.

To add one, write ``models/NAME.py`` and add a line to ``MODELS`` with a function that sizes it to a
dataset; what a study file may set are arguments of that function by name, with defaults.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from falconcal.core.registry import check_name, look_up
from falconcal.core.settings import Count, call_checked, check_settable
from falconcal.core.trust import PERSON, CodeKind, Trust, check_takes, is_function
from falconcal.data import Dataset
from falconcal.data.part import count_tokens
from falconcal.errors import UsageError, UserError, described
from falconcal.models import resnet, vgg
from falconcal.models.cifar_resnet import CifarResNet
from falconcal.models.efficientnet_lite import EfficientNetLite
from falconcal.models.lenet import LeNet
from falconcal.models.mlp import MLP
from falconcal.models.pixel_recurrent import CellType, FirstWeights, PixelRecurrent
from falconcal.models.predict import predict
from falconcal.models.prepared_model import with_preparation
from falconcal.models.published_weights import load_published
from falconcal.models.resnet import ResNet
from falconcal.models.signal_network import SignalNetwork
from falconcal.models.text_recurrent import TextRecurrent
from falconcal.models.transformer import TokenTransformer
from falconcal.models.vgg import VGG

# oneDNN corrupts memory in the backward pass of 1x1 convolutions of stride 2 with fewer channels
Sixteens = Annotated[int, Field(ge=16, multiple_of=16)]

__all__ = [
    "MLP",
    "MODELS",
    "VGG",
    "CifarResNet",
    "EfficientNetLite",
    "LeNet",
    "PixelRecurrent",
    "ResNet",
    "SignalNetwork",
    "TextRecurrent",
    "TokenTransformer",
    "make_model",
    "predict",
]


def _lenet(dataset: Dataset) -> nn.Module:
    """Two convolutions and three dense layers, the paper's network for MNIST."""
    return LeNet(len(dataset.classes), *_image(dataset, "lenet"))


def _vgg19(dataset: Dataset, width: Count = 64) -> nn.Module:
    """Sixteen convolutions with batch norm and three dense layers, the paper's for CIFAR-10."""
    classes, (channels, size) = len(dataset.classes), _image(dataset, "vgg19")
    plan = [layer // 64 * width for layer in vgg.VGG19]  # the narrowest layer has that width
    return VGG(classes, channels, size, plan, dense=(16 * width, 16 * width))


def _vgg_small(dataset: Dataset) -> nn.Module:
    """Six convolutions with batch norm and one dense layer, for CPUs."""
    classes, (channels, size) = len(dataset.classes), _image(dataset, "vgg_small")
    return VGG(classes, channels, size, vgg.SMALL_PLAN, dense=(), dropout=0.0)


def _resnet50(dataset: Dataset) -> nn.Module:
    """ResNet50, the paper's network for ImageNet; takes torchvision's published weights."""
    channels, _ = _image(dataset, "resnet50")
    return ResNet(len(dataset.classes), channels)


def _resnet_small(dataset: Dataset, width: Sixteens = 16) -> nn.Module:
    """Three residual blocks, for small images and CPUs."""
    channels, _ = _image(dataset, "resnet_small")
    return ResNet(len(dataset.classes), channels, resnet.SMALL_BLOCKS, width, "basic", "small")


def _resnet20(dataset: Dataset) -> nn.Module:
    """ResNet of depth 20 for small colour images; takes published weights of CIFAR-10."""
    return _cifar_resnet(dataset, 20)


def _resnet56(dataset: Dataset) -> nn.Module:
    """ResNet of depth 56 for small colour images; takes published weights of CIFAR-10."""
    return _cifar_resnet(dataset, 56)


def _cifar_resnet(dataset: Dataset, depth: int) -> nn.Module:
    channels, _ = _image(dataset, f"resnet{depth}")
    if channels != 3:
        raise UserError(f"resnet{depth} needs images of 3 channels, got {channels}.")
    return CifarResNet(len(dataset.classes), depth)


def _efficientnet_lite0(dataset: Dataset, trained_blocks: int | None = None) -> nn.Module:
    """EfficientNet-Lite0 for colour images; takes the weights of the extra imagenet."""
    channels, _ = _image(dataset, "efficientnet_lite0")
    if channels != 3:
        raise UserError(f"efficientnet_lite0 needs colour images, got {channels} channels.")
    return EfficientNetLite(len(dataset.classes), trained_blocks=trained_blocks)


def _lstm(
    dataset: Dataset, hidden: Count = 130, first_weights: FirstWeights = "uniform"
) -> nn.Module:
    """LSTM of 130 over the pixels of an image, one by one."""
    return _recurrent(dataset, "lstm", hidden, first_weights)


def _gru(
    dataset: Dataset, hidden: Count = 250, first_weights: FirstWeights = "uniform"
) -> nn.Module:
    """GRU of 250 over the pixels of an image, one by one."""
    return _recurrent(dataset, "gru", hidden, first_weights)


def _recurrent(
    dataset: Dataset, kind: CellType, hidden: int, first_weights: FirstWeights
) -> nn.Module:
    channels, _ = _image(dataset, kind)
    return PixelRecurrent(len(dataset.classes), channels, kind, hidden, first_weights=first_weights)


def _text_lstm(dataset: Dataset, hidden: Count = 130, width: Count = 100) -> nn.Module:
    """LSTM of 130 over word vectors, all states to a dense layer, the paper's for texts."""
    return _text_recurrent(dataset, "lstm", hidden, width)


def _text_gru(dataset: Dataset, hidden: Count = 130, width: Count = 100) -> nn.Module:
    """GRU of 130 over word vectors, all states to a dense layer."""
    return _text_recurrent(dataset, "gru", hidden, width)


def _text_recurrent(dataset: Dataset, kind: CellType, hidden: int, width: int) -> nn.Module:
    vectors, length = _words(dataset, f"text_{kind}", width)
    return TextRecurrent(len(dataset.classes), vectors, length, kind, hidden)


def _text_transformer(dataset: Dataset, layers: Count = 2, width: Count = 100) -> nn.Module:
    """Two encoder layers of a transformer over word vectors; not in the paper."""
    vectors, length = _words(dataset, "text_transformer", width)
    return TokenTransformer(
        len(dataset.classes), len(vectors), length, layers=layers, vectors=vectors
    )


def _signal_network(dataset: Dataset) -> nn.Module:
    """Three convolutions over time with batch norm, for signals of several channels."""
    shape = dataset.train.shape
    if len(shape) != 2:
        raise UserError(
            f"signal_network needs signals (time, channels), got examples of shape {shape}."
        )
    return SignalNetwork(len(dataset.classes), shape[1])


def _mlp(dataset: Dataset) -> nn.Module:
    """Dense layers with ReLU, for tables; images are flattened."""
    return MLP(len(dataset.classes), math.prod(dataset.seen_shape))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": _lenet,
    "vgg19": _vgg19,
    "vgg_small": _vgg_small,
    "resnet50": _resnet50,
    "resnet_small": _resnet_small,
    "resnet20": _resnet20,
    "resnet56": _resnet56,
    "efficientnet_lite0": _efficientnet_lite0,
    "lstm": _lstm,
    "gru": _gru,
    "text_lstm": _text_lstm,
    "text_gru": _text_gru,
    "text_transformer": _text_transformer,
    "signal_network": _signal_network,
    "mlp": _mlp,
}
"""The networks by name: functions that size one to a dataset."""


def make_model(
    name: str,
    dataset: Dataset,
    seed: int = 0,
    *,
    weights: str | Path | None = None,
    **settings: Any,
) -> nn.Module:
    """Return a network by name, sized to a dataset.

    Args:
        name: A name in ``MODELS``, or ``package.module:Name`` of your own class or function.
        dataset: What gives the number of classes and the shape of the inputs.
        seed: The seed of the first weights.
        weights: A file of published weights, safetensors or ``.pth``, with the names and shapes
            of the network's own.
        **settings: The settings of the network.

    Returns:
        The network; inputs in, logits (N, C) out.

    Raises:
        UsageError: The name or a setting is not known.
        UserError: The network does not fit the data, or the weights do not fit the network.

    Example:
        >>> import falconcal
        >>> digits = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("lenet", digits, seed=1)
        >>> model(digits.test.first(5).inputs).shape
        torch.Size([5, 10])
    """
    check_name("model", name)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"expected a falconcal.Dataset to size the network to, got {described(dataset)}."
        )
    settings |= {} if weights is None else {"weights": weights}
    return make_named(name, settings, dataset, seed, PERSON)


def make_named(
    name: str, settings: Mapping[str, Any], dataset: Dataset, seed: int, trust: Trust
) -> nn.Module:
    """Return a network that a file names, ``weights`` among its settings."""
    make = look_up(MODEL_CODE, name, MODELS, trust)
    own = {setting: value for setting, value in settings.items() if setting != "weights"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = call_checked(f"model {name}", make, dataset, **own)
    if not isinstance(model, nn.Module):
        raise UserError(f"expected model {name!r} to make a torch.nn.Module, got {model!r}.")
    if settings.get("weights") is not None:
        load_published(model, settings["weights"])
    return with_preparation(model, dataset.preparation)


def check_model(name: str, settings: Mapping[str, Any], trust: Trust) -> None:
    """Refuse a name or settings that are not known, before a network is made."""
    make = look_up(MODEL_CODE, name, MODELS, trust)
    own = {setting: value for setting, value in settings.items() if setting != "weights"}
    check_settable(f"model {name}", make, sorted(own))
    check_takes(f"model {name}", make, "the dataset", **own)
    weights = settings.get("weights")
    if not isinstance(weights, str | Path | None):
        raise UsageError(f"model {name}: weights should be a path, got {weights!r}")


def is_factory(thing: object) -> bool:
    """Return whether a thing can make a network: a class of modules, or a function."""
    if isinstance(thing, type):
        return issubclass(thing, nn.Module)
    return is_function(thing)


MODEL_CODE = CodeKind(
    "model", "a class of torch.nn.Module, or a function that makes one", is_factory
)


def _image(dataset: Dataset, name: str) -> tuple[int, int]:
    """Return the channels and the height of a dataset's images."""
    shape = dataset.seen_shape
    if len(shape) != 3:
        raise UserError(f"{name} needs images, got examples of shape {shape}.")
    return shape[0], shape[1]


def _words(dataset: Dataset, name: str, width: int) -> tuple[Tensor, int]:
    """Return the dataset's word vectors, or random ones where it has none, and the text length."""
    shape, tokens = dataset.train.shape, count_tokens(dataset.train)
    if tokens is None or len(shape) != 1:
        raise UserError(f"{name} needs tokens (N, length), got examples of shape {shape}.")
    vectors = dataset.vectors
    if vectors is None:
        vectors = torch.randn(tokens, width).index_fill(0, torch.tensor([0]), 0)
    if vectors.shape[1] != width:
        raise UsageError(
            f"{name} expects word vectors of {width} numbers, the data has {vectors.shape[1]}: "
            f"set model.width={vectors.shape[1]}."
        )
    return vectors, shape[0]
