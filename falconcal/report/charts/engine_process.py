"""The chart engine's own process: read a request as JSON, draw it, write the answer as JSON.

Run by its path, in a process of its own: it imports nothing of falconcal, so it starts at once.
"""

import base64
import json
import sys
from typing import Any

import vl_convert


def draw_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return the figures in their formats as base64, and the scripts of a page if asked for."""
    version = request["version"]
    figures = [_figure(figure, version) for figure in request["figures"]]
    # its stub asks for a snippet that its code does not
    scripts = vl_convert.javascript_bundle(vl_version=version) if request["scripts"] else None  # type: ignore[call-arg]
    return {"figures": figures, "scripts": scripts}


def _figure(figure: dict[str, Any], version: str) -> dict[str, str]:
    """Return a figure in each of its formats, all from one drawing."""
    drawing = vl_convert.vegalite_to_svg(figure["specification"], vl_version=version)
    return {
        ending: base64.b64encode(_converted(drawing, ending)).decode()
        for ending in figure["formats"]
    }


def _converted(drawing: str, ending: str) -> bytes:
    if ending == "png":
        return vl_convert.svg_to_png(drawing, scale=2)
    return vl_convert.svg_to_pdf(drawing) if ending == "pdf" else drawing.encode()


if __name__ == "__main__":
    json.dump(draw_request(json.load(sys.stdin)), sys.stdout)
