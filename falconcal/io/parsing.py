"""TOML and JSON of any origin as plain data; text that cannot be used is a readable ValueError.

The parsers also fail in other ways: on deep nesting, or on integers of any length, which Python can
hold but neither print nor compute with.
"""

import json
import tomllib
from collections.abc import Callable
from typing import Any

DEPTH = 40  # nested tables and lists; falconcal's own files have fewer than ten
LOWEST_INTEGER, HIGHEST_INTEGER = -(2**63), 2**64 - 1
TOO_DEEP = f"tables or lists in it are nested more than {DEPTH} deep"
TOO_LONG = "a whole number in it has more than 64 bits"


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of TOML text."""
    values: dict[str, Any] = _parsed(tomllib.loads, text)
    return values


def parse_json(text: str) -> Any:
    """Return the value of JSON text."""
    return _parsed(json.loads, text)


def check_plain(values: Any) -> None:
    """Refuse data that is nested too deeply, or integers of more than 64 bits."""
    level = [values]
    for _ in range(DEPTH):
        if any(
            isinstance(one, int) and not LOWEST_INTEGER <= one <= HIGHEST_INTEGER for one in level
        ):
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
    except ValueError:  # from int(), with advice that does not help here
        raise ValueError(TOO_LONG) from None
    check_plain(values)
    return values


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
