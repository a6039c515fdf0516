"""The few figures that a notebook shows of predictions."""

from falconcal.metrics.calibration import expected_calibration_error, signed_gap
from falconcal.metrics.predictions import Scores


def notebook_figures(scores: Scores) -> list[list[str]]:
    """Return name and value of accuracy, confidence and calibration, as far as labels are known."""
    rows = []
    if len(scores) and int(scores.label.min()) >= 0:
        rows += [
            ["accuracy", f"{float(scores.correct.double().mean()):.4f}"],
            ["ECE", f"{expected_calibration_error(scores):.4f}"],
            ["confidence less accuracy", f"{signed_gap(scores):+.4f}"],
        ]
    if len(scores):
        rows.append(["mean confidence", f"{float(scores.confidence.double().mean()):.4f}"])
    return rows
