"""The chart engine, kept in a process of its own: where it dies, nothing dies with it.

It asks for tens of gigabytes of addresses, and ends its process at once where there are fewer. So
results are written before anything is drawn, and a drawing that fails is an error in words.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair

from falconcal.errors import UserError
from falconcal.spawning import ended_by

PROCESS = Path(__file__).with_name("engine_process.py")
# the specification, the page's scripts and the files speak the same version of Vega-Lite
VEGA_LITE = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
FORMATS = ("svg", "png", "pdf")
Specification = dict[str, Any]
Drawn = dict[str, bytes]  # by format


class DrawingError(UserError):
    """The chart engine failed; what was measured is not touched by it."""


def draw(specifications: Iterable[Specification], formats: Sequence[str] = ("svg",)) -> list[Drawn]:
    """Return each figure in the formats, all drawn in one process."""
    figures = [{"specification": one, "formats": list(formats)} for one in specifications]
    if not figures or not formats:
        return [{} for _ in figures]
    drawn = _ask({"figures": figures, "scripts": False})["figures"]
    return [{ending: base64.b64decode(text) for ending, text in one.items()} for one in drawn]


@cache
def scripts() -> str:
    """Return the scripts that draw figures on a page."""
    return str(_ask({"figures": [], "scripts": True})["scripts"])


def _ask(request: dict[str, Any]) -> Any:
    # -P: beside the file lie modules of other names; -W ignore: nobody reads its warnings
    words = [sys.executable, "-P", "-W", "ignore", str(PROCESS)]
    message = json.dumps({**request, "version": VEGA_LITE}).encode()
    try:
        ended = subprocess.run(words, input=message, capture_output=True, check=False)
    except OSError as error:
        raise _failed(error.strerror or str(error)) from None
    if ended.returncode != 0:
        raise _failed(_reason(ended))
    return json.loads(ended.stdout)


def _reason(ended: "subprocess.CompletedProcess[bytes]") -> str:
    if ended.returncode < 0:
        return f"its process was {ended_by(-ended.returncode)}"
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with code {ended.returncode}"


def _failed(reason: str) -> DrawingError:
    return DrawingError(
        f"the figures could not be drawn ({reason}). The chart engine needs about 64 GB of "
        "addresses, though little memory: raise the limit (ulimit -v unlimited) and try again."
    )


def not_drawn(error: DrawingError, directory: Path, page: str, written: str) -> DrawingError:
    """Return the error with what is there all the same, and what is not."""
    return DrawingError(
        f"{error} The results are written to {directory} ({written}); {page} and figures are not: "
        "any that are there are of before."
    )
