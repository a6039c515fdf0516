"""The notebooks of the docs, run by a real Jupyter kernel.

``python -m tests.helpers.notebooks`` runs them and stores what they show.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 900


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


def main() -> None:
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
