"""Where a perturbation enters: inputs, a model's own embedding, or one that is found."""

import logging

import pytest
import torch
from torch import Tensor, nn

from falconcal import Falcon, FalconStep, L2Dropout
from falconcal.core.perturbation_point import (
    PerturbationPoint,
    find_perturbation_point,
    input_gradient,
)
from falconcal.errors import UserError
from falconcal.models.predict import predict

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


class Text(nn.Module):
    """Words to vectors, their mean, two classes; with the methods embed and classify."""

    def __init__(self, words: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 6)
        self.last = nn.Linear(6, 2)

    def embed(self, tokens: Tensor) -> Tensor:  # (N, L) -> (N, L, D)
        embedded: Tensor = self.words(tokens)
        return embedded

    def classify(self, embedded: Tensor) -> Tensor:
        logits: Tensor = self.last(embedded.mean(1))
        return logits

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))


class Transformer(nn.Module):
    """Two embeddings, of words and of places; only the first takes the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.words = nn.Embedding(5, 8), nn.Embedding(12, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        logits: Tensor = self.last(self.layer(embedded).mean(1))
        return logits


def sentences(count: int = 80) -> list[tuple[Tensor, Tensor]]:
    """Return batches of five words; those of the first class have low numbers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    tokens = torch.randint(0, 8, (count, 5), generator=generator) + 4 * labels[:, None]
    return list(zip(tokens.split(20), labels.split(20), strict=True))


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", [Text, Transformer])
@pytest.mark.parametrize("gradient", ["exact", "shared"])
def test_token_models_are_trained_with_falcon(kind: type[nn.Module], gradient: str) -> None:
    torch.manual_seed(0)
    falcon = Falcon(epochs=30, learning_rate=0.02, entropy_weight=0.1, gradient=gradient)  # type: ignore[arg-type]
    model = falcon.fit(kind(), sentences(), sentences())
    scores = predict(model, sentences()).scores()
    assert scores.correct.double().mean() > 0.85


@pytest.mark.parametrize("kind", [Text, Transformer])
def test_calibration_moves_what_it_says_and_leaves_nothing_behind(kind: type[nn.Module]) -> None:
    model = kind()
    before = {name: set(vars(part)) for name, part in model.named_modules()}
    (tokens, labels), *_ = sentences()
    perturbation_point = find_perturbation_point(model, tokens)
    point = perturbation_point.point(tokens)
    moved = perturbation_point.run(model, tokens, point + 1.0)
    assert torch.equal(perturbation_point.run(model, tokens, point), model(tokens))
    assert not torch.allclose(moved, model(tokens))
    input_gradient(model, tokens, labels)
    assert {name: set(vars(part)) for name, part in model.named_modules()} == before
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_the_gradient_at_the_embedding_is_autograds() -> None:
    torch.manual_seed(0)
    model = Text()
    (tokens, labels), *_ = sentences()
    embedded = model.embed(tokens).detach().requires_grad_()
    loss = nn.functional.cross_entropy(model.classify(embedded), labels, reduction="sum")
    (expected,) = torch.autograd.grad(loss, embedded)
    torch.testing.assert_close(input_gradient(model, tokens, labels), expected)


def test_epsilon_is_in_units_of_the_embedding_matrix() -> None:
    model = Text()
    (tokens, _), *_ = sentences()
    perturbation_point = find_perturbation_point(model, tokens)
    spread = perturbation_point.epsilon_unit(perturbation_point.point(tokens))
    assert spread == pytest.approx(model.words.weight.std().item())
    assert PerturbationPoint().epsilon_unit(torch.rand(3)) == 1


def test_an_embedding_that_is_found_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    (tokens, _), *_ = sentences()
    with caplog.at_level(logging.WARNING, logger="falconcal"):
        find_perturbation_point(Transformer(), tokens)
    assert "output of words" in caplog.text


def test_tokens_without_an_embedding_are_refused() -> None:
    tokens = torch.randint(5, (2, 3))
    with pytest.raises(UserError, match=r"embed\(tokens\) and classify"):
        find_perturbation_point(nn.Linear(3, 2), tokens)


def test_an_embed_that_forward_does_not_use_is_refused() -> None:
    class Crooked(Text):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.classify(self.words(tokens))

    (tokens, _), *_ = sentences()
    model = Crooked()
    perturbation_point = find_perturbation_point(model, tokens)
    with pytest.raises(UserError, match="use its embedding"):
        perturbation_point.run(model, tokens, perturbation_point.point(tokens))


def test_methods_that_do_not_perturb_need_no_embedding() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(12, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.last(nn.functional.one_hot(tokens, 12).float().mean(1))
            return logits

    L2Dropout(epochs=1).fit(Odd(), sentences(), sentences())


def test_trainable_embeddings_learn_from_both_steps() -> None:
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    falcon = Falcon(calibration_weight=5.0, epochs=1, epsilons=(0.3,), calibration_annealing=1.0)
    step = FalconStep(model, optimizer, falcon)
    before = model.words.weight.detach().clone()
    (tokens, labels), *_ = sentences()
    step(tokens, labels)
    assert not torch.equal(before, model.words.weight)  # by the calibration step, at its own rate
