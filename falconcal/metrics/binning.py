"""Equal-width confidence bins: one convention for the loss, the metrics and every histogram.

Bin m of M holds (m-1)/M < confidence <= m/M; confidence 0 falls into the first bin, 1 into the
last. A confidence up to ``EDGE_TOLERANCE`` above an edge counts as on it, because 0.3 in float32 is
0.30000001 and must not change bins for that.
"""

from numbers import Integral

from torch import Tensor

from falconcal.errors import UserError

EDGE_TOLERANCE = 1e-6


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a whole number of at least 1."""
    if not isinstance(bins, Integral) or bins < 1:
        raise UserError(f"expected at least 1 bin, a whole number, got {bins!r}.")


def bin_index(confidence: Tensor, bins: int) -> Tensor:
    """Return the bin, from 0, of each confidence: (N,) -> (N,)."""
    check_bins(bins)
    # in place after the first: on a million confidences, new memory costs more than the sums
    upper = (confidence.double() - EDGE_TOLERANCE).mul_(bins).ceil_()
    return upper.sub_(1).clamp_(0, bins - 1).long()
