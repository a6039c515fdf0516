"""What a caller may say about a file of predictions, and where its columns were found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FileForm = Literal["classes", "positive", "top"]
FILE_FORMS: dict[FileForm, str] = {
    "classes": "one probability per class",
    "positive": "the probability of one of two classes",
    "top": "the top prediction and its confidence",
}


@dataclass(frozen=True)
class ReadOptions:
    """How the caller names the columns; None is what the format has by default."""

    labels: str | None = None
    probabilities: str | None = None
    logits: bool = False
    groups: str | None = None
    form: FileForm | None = None
    positive: str | None = None
    prediction: str | None = None
    confidence: str | None = None
    normalise: bool = False
    header: bool = True
    truth: Path | None = None
    identifier: str | None = None
    shift: str | None = None
    level: int | None = None


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold the predictions."""

    form: FileForm
    words: str  # the columns, as the line says them that tells which form was found
    values: tuple[str, ...]  # C of them; one for the positive class, or of the confidence
    classes: tuple[str, ...] = ()  # names of the classes, empty where labels tell them
    named: bool = False  # whether labels are names, not numbers from 0
    prediction: str | None = None  # of the top prediction
