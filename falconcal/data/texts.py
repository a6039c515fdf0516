"""The raw texts that tokens were made of, kept so that they can be changed and encoded again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Texts:
    """Raw texts, one per example, and the function that makes tokens of them.

    Args:
        raw: The N texts.
        encode: Makes tokens (N, L) of N texts; 0 is padding.

    Example:
        >>> import torch
        >>> from falconcal.data import Texts
        >>> texts = Texts(["a", "b"], lambda raw: torch.tensor([[ord(text)] for text in raw]))
        >>> texts.encode(texts.raw).tolist()
        [[97], [98]]
    """

    raw: Sequence[str]  # (N,)
    encode: Callable[[Sequence[str]], Tensor]  # (N,) -> (N, L)

    def __len__(self) -> int:
        return len(self.raw)

    def part(self, first: int, count: int) -> "Texts":
        """Return ``count`` texts from number ``first`` on."""
        return replace(self, raw=self.raw[first : first + count])
