"""The bins of several batches together, where one step of an optimiser takes all of them."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from falconcal.training.objectives import Objective
from falconcal.training.run_steps import unseen_statistics
from falconcal.training.step import Step


def with_common_bins(objective: Objective, steps: list[Step], rounds: int) -> Objective:
    """Return the objective with the bins of all batches of a step together.

    The sums that the bins are made of are gathered by passes without gradients, with the same
    random numbers as the pass that follows: one for the bins, and one for the root of squares.
    """
    sums: list[Tensor] = []
    for _ in range(rounds):
        sums = _gathered_sums(objective, steps, sums)

    def terms(step: Step) -> dict[str, Tensor]:
        return objective.terms(_counting(step, KnownSums(step.processes.total, sums)))

    return replace(objective, terms=terms)


def _gathered_sums(objective: Objective, steps: list[Step], known: list[Tensor]) -> list[Tensor]:
    """Return what a loss sums over processes, here over all batches too, in the order of calls."""
    found: list[list[Tensor]] = []
    with (
        torch.random.fork_rng(),
        torch.no_grad(),
        unseen_statistics(steps[0].layers_with_statistics),
    ):
        for step in steps:
            sums = KnownSums(step.processes.total, known)
            random = torch.Generator().set_state(step.random.get_state())
            objective.terms(replace(_counting(step, sums), random=random))
            found.append(sums.asked)
    return [torch.stack(parts).sum(0) for parts in zip(*found, strict=True)]


def _counting(step: Step, sums: "KnownSums") -> Step:
    return replace(step, processes=replace(step.processes, total=sums))


class KnownSums:
    """Sums over processes; those of all batches are given where they are known already."""

    def __init__(self, total: Callable[[Tensor], Tensor], known: list[Tensor]) -> None:
        self.total, self.known = total, known
        self.asked: list[Tensor] = []

    def __call__(self, value: Tensor) -> Tensor:
        number = len(self.asked)
        self.asked.append(self.total(value))
        return self.known[number] if number < len(self.known) else self.asked[number]
