"""The notebooks of the docs, run by a real Jupyter kernel.

``python -m tests.helpers.notebooks`` runs them and stores what they show, and their last picture as
the thumbnail of the gallery; ``--thumbnails`` takes the pictures that are stored.
"""

import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
FIGURES = ROOT / "docs" / "figures"
CELL_SECONDS = 900
THUMBNAIL = (480, 320)  # pixels at most


def run_notebook(path: Path, folder: Path) -> Any:
    """Return a notebook, its code run in a folder; an error in a cell is raised."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    os.environ["PYTHONPATH"] = str(ROOT)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    return notebook


def outputs_of(notebook: Any, kind: str) -> list[str]:
    """Return all outputs of a media type, such as ``text/html``."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [one.get("data", {}).get(kind) for cell in cells for one in cell.outputs]
    return [text for text in found if text is not None]


def thumbnail(path: Path) -> bytes:
    """Return the last picture that a notebook stored, made small."""
    import nbformat
    from PIL import Image

    pictures = outputs_of(nbformat.read(path, as_version=4), "image/png")
    picture = Image.open(io.BytesIO(base64.b64decode(pictures[-1]))).convert("RGB")
    picture.thumbnail(THUMBNAIL)
    small = io.BytesIO()
    picture.save(small, "webp", quality=80)
    return small.getvalue()


def thumbnail_file(path: Path) -> Path:
    return FIGURES / f"gallery-{path.stem.replace('_', '-')}.webp"


def main() -> None:
    if "--thumbnails" not in sys.argv:
        run_all()
    for path in NOTEBOOKS:
        thumbnail_file(path).write_bytes(thumbnail(path))


def run_all() -> None:
    import nbformat

    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run_notebook(path, Path(folder))
        for cell in notebook.cells:  # warnings name folders of the machine that ran it
            kept = [one for one in cell.get("outputs", []) if one.get("name") != "stderr"]
            if "outputs" in cell:
                cell.outputs = kept
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
