"""How far the mean confidence of a method lies from its accuracy, case by case."""

import polars

CASE = ("seed", "shift", "level")


def confidence_gaps(rows: polars.DataFrame) -> polars.DataFrame:
    """Return accuracy, confidence and their distance for every case of a shift at a level.

    Args:
        rows: Long rows of a study: method, seed, shift, level, metric and value. Level 0, which is
            the clean data, is left out.

    Returns:
        One row per method and case: method, seed, shift, level, accuracy, confidence, gap.

    Example:
        >>> import polars
        >>> from falconcal.evaluation.confidence_gaps import confidence_gaps
        >>> case = {"method": "dropout", "seed": 0, "shift": "shear", "level": 1}
        >>> values = {"accuracy": 0.5, "confidence": 0.75}
        >>> rows = [{**case, "metric": name, "value": value} for name, value in values.items()]
        >>> confidence_gaps(polars.DataFrame(rows))["gap"].item()
        0.25
    """
    wanted = rows.filter(
        polars.col("level") > 0, polars.col("metric").is_in(["accuracy", "confidence"])
    )
    beside = wanted.pivot(on="metric", index=["method", *CASE], values="value")
    gap = (polars.col("confidence") - polars.col("accuracy")).abs()
    return beside.select("method", *CASE, "accuracy", "confidence", gap=gap)


def nearer(rows: polars.DataFrame, method: str, plain: str) -> list[bool]:
    """Return for every case whether a method's confidence is nearer to its accuracy than plain's.

    Args:
        rows: Long rows of a study, as for ``confidence_gaps``.
        method: The name of the method.
        plain: The name of the method that it is compared with.

    Returns:
        One truth value per seed, shift and level that both have.

    Example:
        >>> import polars
        >>> from falconcal.evaluation.confidence_gaps import nearer
        >>> case = {"seed": 0, "shift": "shear", "level": 1}
        >>> sure = {"plain": 0.9, "ours": 0.6}
        >>> rows = [
        ...     {**case, "method": method, "metric": metric, "value": value}
        ...     for method, confidence in sure.items()
        ...     for metric, value in (("accuracy", 0.5), ("confidence", confidence))
        ... ]
        >>> nearer(polars.DataFrame(rows), "ours", "plain")
        [True]
    """
    gaps = beside_plain(confidence_gaps(rows), method, plain)
    return (gaps["gap"] < gaps["gap_plain"]).to_list()


def beside_plain(gaps: polars.DataFrame, method: str, plain: str) -> polars.DataFrame:
    """Return the cases of a method with those of plain beside them, ``_plain`` behind the name."""
    mine, other = (gaps.filter(polars.col("method") == name) for name in (method, plain))
    return mine.join(other, on=list(CASE), suffix="_plain")
