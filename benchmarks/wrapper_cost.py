"""What falconcal's loops cost over a loop written by hand that computes the same.

    python -m benchmarks.wrapper_cost results/cost/wrapper.json

The loops by hand take plain steps, and FALCON's two, with the same losses, fused optimisers and
memory format, and nothing else: no checks, records, seeds or forms of batches. LeNet at batch 100
on 28x28 images, and MiniLM's encoder with a classifier (6 layers of width 384, random weights) at
batch 8 on 64 tokens; the latter needs transformers. One thread, CPU time of this process, the kinds
interleaved, the least of the rounds, which noise can only lengthen; three repetitions of all of it.
The table goes into docs/cost.md.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.pages import table, write_between
from benchmarks.timing import Figures, cpu_time, repeated, shown, write_figures
from falconcal import Bounds, Falcon, FalconStep, L2Dropout
from falconcal.core.layout import to_channels_last, weights_to_channels_last
from falconcal.models import LeNet
from falconcal.training import calibration_loss, predictive_entropy_loss

EPSILON, WEIGHT, RATE, CALIBRATION_RATE, SEED = 0.1, 0.1, 1e-3, 0.05, 0
MINILM = {
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "num_labels": 20,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A network, its batches, and how often they are trained on."""

    make: Callable[[], nn.Module]
    batches: list[Any]
    bounds: Bounds | None
    rounds: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="the figures as JSON")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    figures = repeated(measured)
    print(page(figures))
    if file is not None:
        write_figures(file, figures)
        write_between("docs/cost.md", "wrapper", "wrapper_cost", page(figures))


def page(figures: Figures) -> str:
    rows = [(name, shown(values), "at most 1.05") for name, values in figures.items()]
    return table(("CPU time, times the loop by hand", "figure", "goal"), rows)


def measured() -> dict[str, float]:
    return {key: value for name, make in CASES.items() for key, value in ratios(name, make())}


def ratios(name: str, case: Case) -> Iterator[tuple[str, float]]:
    """Yield CPU time of each of our loops relative to the one by hand."""
    plain, falcon = L2Dropout(epochs=1, learning_rate=RATE), falcon_of(case)
    kinds: dict[str, Callable[[nn.Module], object]] = {
        "plain by hand": partial(by_hand, case, steps=plain_step),
        "plain, fit": lambda model: plain.fit(model, case.batches),
        "FALCON by hand": partial(by_hand, case, steps=falcon_step),
        "FALCON, fit": lambda model: falcon.fit(model, case.batches),
        "FALCON, FalconStep": partial(own_loop, case, falcon),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(case.rounds):
        for kind, train in kinds.items():
            torch.manual_seed(SEED)
            times[kind].append(cpu_time(partial(train, case.make())))
    least = {kind: min(seconds) for kind, seconds in times.items()}
    for kind in ("plain, fit", "FALCON, fit", "FALCON, FalconStep"):
        hand = f"{kind.partition(',')[0]} by hand"
        yield f"{name}, {kind}", round(least[kind] / least[hand], 3)


def falcon_of(case: Case) -> Falcon:
    return Falcon(epochs=1, bounds=case.bounds, epsilons=(EPSILON,), learning_rate=RATE)


def own_loop(case: Case, falcon: Falcon, model: nn.Module) -> None:
    step = FalconStep(model, torch.optim.Adam(model.parameters(), RATE, fused=True), falcon)
    for _ in step.epochs():
        for batch in case.batches:
            step(batch)


Step = Callable[[nn.Module, Any, torch.optim.Optimizer, torch.optim.Optimizer], None]


def by_hand(case: Case, model: nn.Module, steps: Step) -> None:
    weights_to_channels_last(model)
    model.train()
    adam = torch.optim.Adam(model.parameters(), RATE, fused=True)
    descent = torch.optim.SGD(model.parameters(), CALIBRATION_RATE, fused=True)
    for batch in case.batches:
        steps(model, batch, adam, descent)


def plain_step(model: nn.Module, batch: Any, adam: Any, _: object) -> None:
    adam.zero_grad()
    logits, labels = model_of(batch)(model, None), labels_of(batch)
    nn.functional.cross_entropy(logits, labels).backward()
    adam.step()


def falcon_step(model: nn.Module, batch: Any, adam: Any, descent: Any) -> None:
    """Take the clean step with the gradient of what is perturbed, then the calibration step."""
    run, labels = model_of(batch), labels_of(batch)
    adam.zero_grad()
    point = entered(model, batch)
    point.retain_grad()
    logits = run(model, point)
    loss = nn.functional.cross_entropy(logits, labels)
    (loss + WEIGHT * predictive_entropy_loss(logits, labels)).backward()
    adam.step()
    assert point.grad is not None
    descent.zero_grad()
    (0.02 * calibration_loss(run(model, moved(model, batch, point.grad)), labels)).backward()
    descent.step()


def labels_of(batch: Any) -> Tensor:
    found: Tensor = batch["labels"] if isinstance(batch, dict) else batch[1]
    return found


def entered(model: Any, batch: Any) -> Tensor:
    """Return what is perturbed: images, or the embedding of tokens."""
    if isinstance(batch, dict):
        embedded: Tensor = model.get_input_embeddings()(batch["input_ids"])
        return embedded
    return to_channels_last(batch[0]).requires_grad_()


def moved(model: Any, batch: Any, gradient: Tensor) -> Tensor:
    if not isinstance(batch, dict):
        return to_channels_last((batch[0] + EPSILON * gradient.sign()).clamp(0, 1))
    start = entered(model, batch)
    scale = float(model.get_input_embeddings().weight.detach().std())
    there = start.detach() + EPSILON * scale * gradient.sign()
    kept = torch.where(batch["attention_mask"].bool()[..., None], there, start.detach())
    return kept + (start - start.detach())


def model_of(batch: Any) -> Callable[[Any, Tensor | None], Tensor]:
    """Return what runs a model on a batch, with another point instead of its own."""
    if not isinstance(batch, dict):
        return lambda model, point: model(to_channels_last(batch[0]) if point is None else point)

    def run(model: Any, point: Tensor | None) -> Tensor:
        given = {"input_ids": batch["input_ids"]} if point is None else {"inputs_embeds": point}
        logits: Tensor = model(attention_mask=batch["attention_mask"], **given).logits
        return logits

    return run


def lenet() -> Case:
    batches = [(torch.rand(100, 1, 28, 28), torch.randint(10, (100,))) for _ in range(20)]
    return Case(LeNet, batches, Bounds(0.0, 1.0), 4)


def minilm() -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    def batch() -> dict[str, Tensor]:
        tokens = torch.randint(1, 30522, (8, 64))
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": torch.randint(20, (8,)),
        }

    def make() -> nn.Module:
        model: nn.Module = BertForSequenceClassification(BertConfig(**MINILM))
        return model

    return Case(make, [batch() for _ in range(2)], None, 2)


CASES = {"LeNet": lenet, "MiniLM": minilm}

if __name__ == "__main__":
    main()
