"""The bins of a reliability diagram as a table, with bounds of their accuracy."""

import polars
from scipy.special import ndtri
from torch import Tensor

from falconcal.metrics.calibration import ReliabilityCurve


def reliability_bins_table(curve: ReliabilityCurve) -> polars.DataFrame:
    """Return the bins that hold examples, with the bounds of their accuracy."""
    low, high = wilson_bounds(curve.accuracy * curve.counts, curve.counts.double())
    bins = len(curve.counts)
    table = polars.DataFrame(
        {
            "from": [number / bins for number in range(bins)],
            "to": [(number + 1) / bins for number in range(bins)],
            "counts": curve.counts.numpy(),
            "share": curve.shares.numpy(),
            "confidence": curve.confidence.numpy(),
            "accuracy": curve.accuracy.numpy(),
            "low": low.numpy(),
            "high": high.numpy(),
        }
    )
    return table.filter(polars.col("counts") > 0)


def wilson_bounds(hits: Tensor, counts: Tensor, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Return the bounds of a share at each number of hits among counts (Wilson, JASA 1927)."""
    z = float(ndtri((1 + level) / 2))
    share = hits / counts
    middle = (share + z**2 / (2 * counts)) / (1 + z**2 / counts)
    spread = share * (1 - share) / counts + z**2 / (4 * counts**2)
    half = z / (1 + z**2 / counts) * spread.sqrt()
    return (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)
