"""The notebooks of the docs run under real Jupyter, and show tables and charts."""

import base64
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers.notebooks import (
    NOTEBOOKS,
    THUMBNAIL,
    outputs_of,
    run_notebook,
    thumbnail_file,
)
from tests.helpers.paths import ROOT

PNG = b"\x89PNG"


def test_there_are_three_and_the_docs_list_them() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        assert f"notebooks/{path.name}" in page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_stored_outputs_are_whole(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [one["output_type"] for cell in cells for one in cell["outputs"]]
    assert "error" not in kinds
    assert "site-packages" not in path.read_text()  # nor any other folder of one machine
    data = [one.get("data", {}) for cell in cells for one in cell["outputs"]]
    assert any("<table>" in "".join(one.get("text/html", "")) for one in data)
    assert any("image/png" in one for one in data)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_gallery_shows_its_thumbnail(path: Path) -> None:
    file = thumbnail_file(path)
    with Image.open(file) as picture:
        assert any(side == most for side, most in zip(picture.size, THUMBNAIL, strict=True))
    assert f"figures/{file.name}" in (ROOT / "docs" / "gallery.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_tables_and_charts(path: Path, tmp_path: Path) -> None:
    notebook = run_notebook(path, tmp_path)
    assert any("<table>" in text for text in outputs_of(notebook, "text/html"))
    pictures = outputs_of(notebook, "image/png")
    assert pictures
    for picture in pictures:
        assert base64.b64decode(picture).startswith(PNG)
