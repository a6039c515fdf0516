"""The scripts that compare two trees see what differs, and nothing else."""

import shutil
from pathlib import Path

import polars
import pytest

from benchmarks import house, same_rows
from tests.helpers.paths import FIXTURES

RUN = Path("runs/default/falcon/seed-0")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a stored output folder."""
    for name in ("before", "after"):
        shutil.copytree(FIXTURES / "stored" / "run", tmp_path / name)
    return tmp_path / "before", tmp_path / "after"


def change(path: Path, column: str) -> None:
    """Change one value of a stored table by very little."""
    table = polars.read_parquet(path)
    values = table[column].to_list()
    values[3] += 2**-40
    table.with_columns(polars.Series(column, values, table[column].dtype)).write_parquet(path)


def test_equal_folders_have_no_differences(folders: tuple[Path, Path]) -> None:
    runs, rows, scores, weights, histories, differences = same_rows.compare(*folders)
    assert differences == "none"
    assert runs == "3"
    assert all(int(count) > 0 for count in (rows, scores, weights, histories))


def test_one_changed_row_is_named_by_its_metric(folders: tuple[Path, Path]) -> None:
    rows = polars.read_parquet(folders[1] / "rows.parquet")
    change(folders[1] / "rows.parquet", "value")
    assert same_rows.compare(*folders)[-1] == f"rows: {rows['metric'][3]} (1)"


def test_changed_weights_and_missing_runs_are_named(folders: tuple[Path, Path]) -> None:
    other = folders[1] / "runs/default/dropout/seed-0/weights.safetensors"
    shutil.copy(folders[1] / RUN / "weights.safetensors", other)
    assert same_rows.compare(*folders)[-1] == "weights of default/dropout/seed-0"
    shutil.rmtree(folders[1] / RUN)
    assert "runs: 3 and 2" in same_rows.compare(*folders)[-1]


def test_names_with_two_meanings_are_counted(tmp_path: Path) -> None:
    """By hand: a type twice, a function and a field with two meanings, one body twice."""
    package = tmp_path / "falconcal"
    package.mkdir()
    body = "    a = 1\n    b = a\n    return b\n"
    (package / "__init__.py").write_text('__all__ = ["Pair", "one"]\n')
    (package / "first.py").write_text(
        f"class Pair:\n    size: int\ndef one(x: int):\n{body}def same(x: int): ...\n"
    )
    (package / "second.py").write_text(
        f"class Pair:\n    size: str\ndef one(y: int):\n{body}def same(x: int): ...\n"
    )
    found = house.figures(package)
    assert found["types that occur twice or more"] == "1: Pair (2)"
    assert found["functions of the same name with other parameters"] == "1: one (2)"
    assert found["fields of the same name with another type"] == "1: size (2)"
    assert found["functions of 3 lines or more with the same body"] == "1: one = one"
    assert found["classes and functions with a complete docstring"] == "0 of 2"
    assert found["modules at the top level"] == "2"


def test_what_belongs_to_a_class_is_no_field_and_imports_are_no_copies(tmp_path: Path) -> None:
    package = tmp_path / "falconcal"
    package.mkdir()
    names = "".join(f"    name_{number},\n" for number in range(8))
    (package / "__init__.py").write_text('__all__ = ["Kept"]\n')
    kept = 'class Kept:\n    """A.\n\n    >>> 1\n    1\n    """\n    takes: ClassVar[str] = ""\n'
    (package / "first.py").write_text(f"from elsewhere import (\n{names})\n{kept}")
    (package / "second.py").write_text(
        f"from elsewhere import (\n{names})\nclass Other:\n    takes: ClassVar[int] = 1\n"
        "def one(): ...\n"
    )
    found = house.figures(package)
    assert found["fields of the same name with another type"] == "0"
    assert found["classes and functions with a complete docstring"] == "1 of 1"
    assert found["blocks of 6 lines that occur again"] == "0"
