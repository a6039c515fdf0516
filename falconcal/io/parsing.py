"""TOML and JSON of any origin as plain data; what is not fit to be read is a ValueError in words.

The parsers themselves also fail in other ways: by depth, or by whole numbers of any length, which
Python can hold but neither print nor compute with.
"""

import json
import tomllib
from collections.abc import Callable
from typing import Any

DEPTH = 40  # tables and lists inside one another; what falconcal writes has less than ten
LEAST, MOST = -(2**63), 2**64 - 1
TOO_DEEP = f"tables or lists in it are nested more than {DEPTH} deep"
TOO_LONG = "a whole number in it has more than 64 bits"


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML text says."""
    values: dict[str, Any] = _parsed(tomllib.loads, text)
    return values


def parse_json(text: str) -> Any:
    """Return what JSON text says."""
    return _parsed(json.loads, text)


def check_plain(values: Any) -> None:
    """Refuse data that is nested too deeply, or whole numbers that no computer word holds."""
    level = [values]
    for _ in range(DEPTH):
        if any(isinstance(one, int) and not LEAST <= one <= MOST for one in level):
            raise ValueError(TOO_LONG)
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        values = parse(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError):
        raise
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError:  # of int, which advises to lift its limit
        raise ValueError(TOO_LONG) from None
    check_plain(values)
    return values


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
