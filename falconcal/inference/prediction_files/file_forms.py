"""Which form a file has, by the names of its columns alone: no value is looked at.

A name that others use counts as if it were given: scikit-learn's and pandas' columns 0, 1, ...,
those that Evidently, NannyML and MLflow expect, the arrays of Hugging Face's ``Trainer.predict``.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from falconcal.errors import UsageError
from falconcal.inference.prediction_files.open_table import MOST_NAMED, OpenTable, matrix_columns
from falconcal.inference.prediction_files.read_options import FILE_FORMS, Layout, ReadOptions

LABEL_NAMES = ("label", "labels", "label_ids", "y_true", "target", "truth", "true_label")
CLASS_PREFIXES = ("p_", "prob_", "proba_", "probability_", "y_pred_proba_")
POSITIVE_NAMES = ("p", "prob", "proba", "probability", "y_prob", "y_proba", "y_pred_proba",
                  "prediction_proba", "probabilities")  # fmt: skip
PREDICTION_NAMES = ("prediction", "predictions", "predicted", "y_pred", "predicted_label")
CONFIDENCE_NAMES = ("confidence", "confidences", "max_probability")
MATRIX_NAMES = ("probabilities", "probs", "y_prob", "y_proba", "array")
LOGIT_PREFIXES, LOGIT_MATRICES = ("logit_",), ("logits", "predictions", "array")


def find_labels(table: OpenTable, options: ReadOptions) -> str:
    """Return the column of the true classes."""
    if options.labels is not None:
        table.check_there("--labels", options.labels)
        return options.labels
    there = [name for name in LABEL_NAMES if name in table.columns]
    if len(there) > 1:
        raise UsageError(
            f"{table.path}: expected one column of true classes, got "
            f"{' and '.join(map(repr, there))}: say which with --labels."
        )
    if not there:
        table.check_there("--labels", "labels" if table.kind == "array" else "label")
    return there[0]


def find_layout(
    table: OpenTable,
    taken: Sequence[str | None],
    seen: Callable[[], list[str]],
    options: ReadOptions,
) -> Layout:
    """Return the one form that a file fits.

    Args:
        table: The file.
        taken: Columns that hold something else: labels, groups, identifiers.
        seen: The different labels, as text.
        options: What the caller says.
    """
    names = [name for name in table.columns if name not in taken]
    fitting = list(_fitting(table, names, options))
    if not any(one.form == "classes" for one in fitting) and options.probabilities is None:
        fitting += _named_like_labels(names, seen(), options)
    if not fitting and options.truth is not None and len(names) == 1 and not options.logits:
        fitting = [_positive(names[0])]
    chosen = [one for one in fitting if options.form in (None, one.form)]
    if len(chosen) == 1:
        return chosen[0]
    raise _ambiguous(table, chosen) if chosen else _none_fits(table, options)


def _fitting(table: OpenTable, names: Sequence[str], options: ReadOptions) -> Iterator[Layout]:
    """Yield every form whose columns are there."""
    if options.prediction is None and options.confidence is None:
        yield from _matrices(table, options)
        if options.probabilities is not None:
            yield from _asked_for(table, names, options.probabilities)
        else:
            yield from _by_prefix(table, names, options)
            if not options.logits:
                yield from (_positive(name) for name in POSITIVE_NAMES if name in names)
    if options.probabilities is None and not options.logits:
        yield from _top(table, names, options)


def _matrices(table: OpenTable, options: ReadOptions) -> Iterator[Layout]:
    usual = LOGIT_MATRICES if options.logits else MATRIX_NAMES
    wanted = usual if options.probabilities is None else (options.probabilities,)
    for name in wanted:
        if name in table.matrices:
            yield _matrix(table, name)


def _matrix(table: OpenTable, name: str) -> Layout:
    width = table.matrices[name]
    if width < 2:
        raise UsageError(
            f"{table.path}, array {name!r}: expected one row per example and one column per "
            f"class, at least 2, shape (N, C), got {width} columns."
        )
    if table.classes is not None and len(table.classes) != width:
        raise UsageError(
            f"{table.path}, array 'classes': expected {width} names, one per column of {name!r}, "
            f"got {len(table.classes)}."
        )
    classes = table.classes or tuple(str(number) for number in range(width))
    words = f"array {name!r} of {width} classes"
    values = matrix_columns(name, width)
    return Layout("classes", words, values, classes, named=table.classes is not None)


def _asked_for(table: OpenTable, names: Sequence[str], text: str) -> Iterator[Layout]:
    """Yield what --probabilities means: columns, one column, or what columns begin with."""
    if text in table.matrices:
        return
    if "," in text:
        columns = [name.strip() for name in text.split(",")]
        for name in columns:
            table.check_there("--probabilities", name)
        yield _named_columns(table, "", columns)
    elif text in names:
        yield _positive(text)
    else:
        yield from _prefixed(table, names, text)


def _by_prefix(table: OpenTable, names: Sequence[str], options: ReadOptions) -> Iterator[Layout]:
    for prefix in LOGIT_PREFIXES if options.logits else CLASS_PREFIXES:
        yield from _prefixed(table, names, prefix)
    numbers = [name for name in names if name.isdecimal()]
    if len(numbers) > 1:
        yield _named_columns(table, "", numbers)


def _prefixed(table: OpenTable, names: Sequence[str], prefix: str) -> Iterator[Layout]:
    found = [name for name in names if name.startswith(prefix) and name != prefix]
    if len(found) == 1:
        yield _positive(found[0], found[0].removeprefix(prefix))
    elif found:
        yield _named_columns(table, prefix, found)


def _named_columns(table: OpenTable, prefix: str, found: Sequence[str]) -> Layout:
    values, named = _ordered(table, prefix, found)
    classes = tuple(name.removeprefix(prefix) for name in values)
    words = f"columns {values[0]!r} to {values[-1]!r} of {len(values)} classes"
    return Layout("classes", words, values, classes, named)


def _named_like_labels(
    names: Sequence[str], seen: Sequence[str], options: ReadOptions
) -> list[Layout]:
    """Return columns that are called as the labels are, in the order of the file."""
    if len(seen) < 2 or not set(seen) <= set(names) or options.confidence is not None:
        return []
    values = tuple(name for name in names if name in set(seen))
    words = f"columns {values[0]!r} to {values[-1]!r}, called as the {len(values)} labels are"
    return [Layout("classes", words, values, values, named=True)]


def _positive(name: str, of_class: str = "") -> Layout:
    classes = (of_class,) if of_class else ()
    return Layout("positive", f"column {name!r}", (name,), classes)


def _top(table: OpenTable, names: Sequence[str], options: ReadOptions) -> Iterator[Layout]:
    for option, name in (("prediction", options.prediction), ("confidence", options.confidence)):
        if name is not None:
            table.check_there(f"--{option}", name)
    predictions = [options.prediction] if options.prediction is not None else PREDICTION_NAMES
    confidences = [options.confidence] if options.confidence is not None else CONFIDENCE_NAMES
    for prediction in (name for name in predictions if name in names):
        for confidence in (name for name in confidences if name in names):
            words = f"columns {prediction!r} and {confidence!r}"
            yield Layout("top", words, (confidence,), prediction=prediction)


def _ordered(table: OpenTable, prefix: str, found: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the columns in the order of the classes, and whether these have names."""
    whole = [re.fullmatch(r"[0-9]+", name.removeprefix(prefix)) is not None for name in found]
    if not any(whole):
        return tuple(found), True
    if not all(whole):
        other = found[whole.index(False)]
        raise UsageError(
            f"{table.path}: expected columns that begin with {prefix!r} to end all in numbers, or "
            f"all in names, got {found[whole.index(True)]!r} and {other!r}. Rename those that are "
            "not a class, or name the columns of the classes with --probabilities a,b,c."
        )
    ordered = sorted(found, key=lambda name: int(name.removeprefix(prefix)))
    numbers = [int(name.removeprefix(prefix)) for name in ordered]
    if numbers != list(range(len(numbers))):
        raise UsageError(
            f"{table.path}: expected columns {prefix}0 to {prefix}{len(found) - 1}, one per class, "
            f"got {', '.join(ordered[:MOST_NAMED])}: number the classes from 0, in labels too, or "
            "give them names."
        )
    return tuple(ordered), False


def _ambiguous(table: OpenTable, fitting: Sequence[Layout]) -> UsageError:
    forms = [f"{FILE_FORMS[one.form]} in {one.words}" for one in fitting]
    kinds = list(dict.fromkeys(one.form for one in fitting))
    remedy = f"--form {' or --form '.join(kinds)}" if len(kinds) > 1 else "--probabilities"
    return UsageError(
        f"{table.path}: the file fits {len(forms)} forms: {', and '.join(forms)}. Choose with "
        f"{remedy}."
    )


def _none_fits(table: OpenTable, options: ReadOptions) -> UsageError:
    if table.kind == "array":
        usual = "logits" if options.logits else "probabilities"
        wanted = f"there is no array {options.probabilities or usual!r}"
    else:
        prefix = options.probabilities or (LOGIT_PREFIXES if options.logits else CLASS_PREFIXES)[0]
        wanted = f"expected one column per class that begin with {prefix!r}, got none"
    numbers = [name for name in table.columns if re.fullmatch(r"[-+]?[0-9]*\.[0-9e+-]+", name)]
    header = " Its first line has numbers, no names: add --no-header." * bool(numbers)
    form = f" in the form of {options.form}" if options.form is not None else ""
    return UsageError(
        f"{table.path}: {wanted}{form}. {table.listed()} Name them with --probabilities: one "
        "column, several as a,b,c, or what they begin with; a top prediction with --prediction "
        f"and --confidence; for logits add --logits.{header}"
    )
