"""Tables as networks take them: numbers in columns, whatever the frame or matrix held."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from falconcal.core.data_frames import column_types
from falconcal.errors import UserError

Missing = Literal["refuse", "mean"]
DATES = ("datetime", "datetimetz", "timedelta")


class TableColumns:
    """Words become columns of 0 and 1, sparse matrices dense, and missing numbers the mean.

    Args:
        missing: ``"refuse"``, or ``"mean"`` to fill in the mean of a column of numbers. Of a column
            of words, what is missing is a category of its own; a category that ``fit`` has not
            seen is none of them.
    """

    def __init__(self, missing: Missing = "refuse") -> None:
        if missing not in ("refuse", "mean"):
            raise UserError(f"expected missing to be 'refuse' or 'mean', got {missing!r}.")
        self.missing = missing
        self.words: ColumnTransformer | None = None
        self.filler: SimpleImputer | None = None

    def fit_words(self, table: Any) -> "TableColumns":
        """Learn the categories of a frame's columns of words; other tables have none."""
        words = word_columns(table)
        if words:
            of_pandas = hasattr(table, "select_dtypes")  # where a name may be a number
            chosen = make_column_selector(dtype_exclude="number") if of_pandas else words
            self.words = ColumnTransformer(
                [("words", _one_hot(), chosen)],
                remainder="passthrough",
                sparse_threshold=0,
            ).fit(table)
        return self

    def fit_means(self, rows: NDArray[Any]) -> None:
        """Learn the means of the rows that are trained on."""
        if self.missing == "mean":
            self.filler = SimpleImputer(strategy="mean", keep_empty_features=True).fit(rows)

    def numbers(self, table: Any) -> Any:
        """Return a frame with words as numbers; other tables as they are."""
        return table if self.words is None else self.words.transform(table)

    def filled(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows without missing numbers."""
        return rows if self.filler is None else numpy.asarray(self.filler.transform(rows))


def _one_hot() -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


def word_columns(table: Any) -> list[str]:
    """Return the columns of a frame that hold no numbers; none of other tables.

    Raises:
        UserError: A column holds dates or times, each of which would be a category of its own.
    """
    if hasattr(table, "select_dtypes"):
        words = table.select_dtypes(exclude="number")
        dates = list(words.select_dtypes(include=DATES).columns)
        words = list(words.columns)
    else:
        types = column_types(table)
        words = [name for name, kind in types.items() if not kind.is_numeric()]
        dates = [name for name in words if types[name].is_temporal()]
    if dates:
        raise UserError(
            f"expected columns of numbers or words, got dates in {dates[0]!r}: make numbers of "
            "them, such as the days since the first."
        )
    return words


@contextmanager
def advice_on_gaps(missing: Missing) -> Iterator[None]:
    """Add to scikit-learn's refusal of missing values what the estimator can do about them."""
    try:
        yield
    except ValueError as error:
        if missing == "refuse" and "NaN" in str(error):
            error.add_note('FalconClassifier(missing="mean") fills in the mean of the column.')
        raise


def dense(rows: Any) -> Any:
    """Return a sparse matrix as an array, others as they are."""
    thin = sparse.issparse(rows)
    return rows.toarray() if thin else rows


def class_factors(given: Any, classes: NDArray[Any], codes: NDArray[Any]) -> list[float] | None:
    """Return scikit-learn's ``class_weight`` as one factor per class, in their order.

    Args:
        given: None, ``"balanced"``, or a mapping from class to factor; classes that it leaves out
            have 1.
        classes: The classes.
        codes: The index of each example's class, which ``"balanced"`` counts.

    Returns:
        The factors; None where all are alike.

    Raises:
        UserError: The mapping names a class that there is not.
    """
    if given is None:
        return None
    if isinstance(given, str):
        if given != "balanced":
            raise UserError(f"expected class_weight None, 'balanced' or a mapping, got {given!r}.")
        counts = numpy.bincount(codes, minlength=len(classes))
        return [len(codes) / (len(classes) * max(int(count), 1)) for count in counts]
    names = classes.tolist()
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UserError(f"class_weight names {unknown[0]!r}, which is no class in the labels.")
    return [float(given.get(name, 1.0)) for name in names]
