"""How much faster batches of corrupted images are made than image by image elsewhere.

    python -m benchmarks.corruption_speed results/corruptions/speed.json

CPU time of one thread against imagecorruptions-imaug (the extra ``peers``), which works on one
image at a time, in one run and turn by turn: for each corruption and severity first ours, then
theirs, several rounds, the fastest of each kept. Both go from a batch of tensors to a batch of
tensors and have the same parameters, the published ones for the size; only its elastic transform
has a form of its own.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import cv2
import imagecorruptions.corruptions
import numpy
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor

from benchmarks.pages import write_between
from falconcal.shifts import corruption_shifts
from falconcal.shifts.corruptions import CORRUPTIONS
from tests.helpers.peer_corruptions import Peer, peer

SIZES = {32: 256, 224: 16}  # pixels a side: images a batch

Row = dict[str, float | str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(CORRUPTIONS))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    warnings.simplefilter("ignore")
    rows = [
        compared(name, size, arguments.rounds)
        for size in arguments.sizes
        for name in arguments.only
    ]
    if {(row["corruption"], row["size"]) for row in rows} != set(product(CORRUPTIONS, SIZES)):
        return  # a look at some of them
    conversion = {size: conversion_time(size, arguments.rounds) for size in SIZES}
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    figures = {"rounds": arguments.rounds, "conversion": conversion, "rows": rows}
    arguments.file.write_text(json.dumps(figures, indent=1) + "\n")
    write_page(rows, conversion)


def conversion_time(size: int, rounds: int) -> float:
    """Return the milliseconds per image that converting tensors to bytes and back takes."""
    batch = natural(size, SIZES[size])
    turned = partial(one_by_one, lambda image, _: image, batch, 0)
    return 1000 / len(batch) * min(seconds(turned) for _ in range(5 * rounds))


def compared(name: str, size: int, rounds: int) -> Row:
    """Return the milliseconds per image, mean over the severities, of ours and of theirs."""
    batch = natural(size, SIZES[size])  # (N, 3, size, size)
    shift = corruption_shifts()[f"corrupt_{name}"]
    other = peer(imagecorruptions.corruptions, name, size)
    shift.at(batch[:1], 1)  # what is made once: textures here, compiled loops there
    one_by_one(other, batch[:1], 1)
    ours, theirs = numpy.full(5, math.inf), numpy.full(5, math.inf)
    for _ in range(rounds):
        for place in range(5):
            ours[place] = min(ours[place], seconds(partial(shift.at, batch, place + 1)))
            theirs[place] = min(
                theirs[place], seconds(partial(one_by_one, other, batch, place + 1))
            )
    scale = 1000 / len(batch)
    row: Row = {
        "corruption": name,
        "size": size,
        "ours": ours.mean() * scale,
        "theirs": theirs.mean() * scale,
        "ratio": theirs.sum() / ours.sum(),
    }
    print(json.dumps(row), flush=True)
    return row


def one_by_one(corrupted: Peer, batch: Tensor, severity: int) -> Tensor:
    """Return what ``shift.at`` returns, made the other way: tensor to bytes and back."""
    changed = [
        torch.from_numpy(corrupted(to_bytes(image), severity)).permute(2, 0, 1) for image in batch
    ]
    return torch.stack(changed).float().div_(255)


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def natural(size: int, count: int) -> Tensor:
    """Return squares cut from scikit-learn's two photographs and scaled: (N, 3, size, size)."""
    photographs = [torch.from_numpy(image.copy()) for image in load_sample_images().images]
    squares = []
    for number in range(count):
        photograph = photographs[number % 2].permute(2, 0, 1).float() / 255  # (3, 427, 640)
        side = 224 + 8 * (number % 25)
        top, left = (7 * number) % (427 - side), (31 * number) % (640 - side)
        square = photograph[None, :, top : top + side, left : left + side]
        squares.append(torch.nn.functional.interpolate(square, (size, size), mode="area"))
    return torch.cat(squares)


def to_bytes(image: Tensor) -> numpy.ndarray:
    return (image * 255).round().byte().permute(1, 2, 0).contiguous().numpy()


def write_page(rows: list[Row], conversion: dict[int, float]) -> None:
    """Put the table into the page on shifts."""
    lines = [
        "| corruption | 32 x 32, ours | theirs | times faster | 224 x 224, ours | theirs | "
        "times faster |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(table_line(name, rows) for name in [*CORRUPTIONS, "all 19"]),
        "",
        "Of its time, turning tensors into bytes and back takes "
        + " and ".join(f"{time:.3f} ms at {size}" for size, time in conversion.items())
        + ". " + without_conversion(rows, conversion),
    ]  # fmt: skip
    write_between("docs/shifts.md", "speed", "corruption_speed", "\n".join(lines))


def table_line(name: str, rows: list[Row]) -> str:
    cells = []
    for size in SIZES:
        chosen = [row for row in rows if row["size"] == size]
        chosen = [row for row in chosen if name in (row["corruption"], "all 19")]
        ours, theirs = (sum(float(row[who]) for row in chosen) for who in ("ours", "theirs"))
        cells += [f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.1f}"]
    return f"| {name.replace('_', ' ')} | {' | '.join(cells)} |"


def without_conversion(rows: list[Row], conversion: dict[int, float]) -> str:
    """Say which would be slower than their bare functions on bytes."""
    bare = {
        f"{row['corruption']} at {row['size']}".replace("_", " "): (
            (float(row["theirs"]) - conversion[int(row["size"])]) / float(row["ours"])
        )
        for row in rows
    }
    slower = [f"{name} ({ratio:.2f})" for name, ratio in bare.items() if ratio < 1]
    return f"Without it, these would be below 1: {', '.join(slower) or 'none'}."


if __name__ == "__main__":
    main()
