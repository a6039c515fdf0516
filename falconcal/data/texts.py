"""The raw text that tokens were made of, kept for whoever wants to change it and encode it anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Texts:
    """Raw text, one an example, and the function that makes tokens of it."""

    raw: Sequence[str]  # (N,)
    encode: Callable[[Sequence[str]], Tensor]  # (N,) -> (N, L) whole numbers, 0 is padding

    def __len__(self) -> int:
        return len(self.raw)

    def part(self, first: int, count: int) -> "Texts":
        """Return some of the texts, in their order."""
        return replace(self, raw=self.raw[first : first + count])
