"""imagecorruptions-imaug with the parameters of either table, to compare with and to time against.

The package holds ImageNet-C's parameters in the bodies of its functions, whatever the size of the
image, and draws from NumPy's global generator. Its functions are compiled again here with the
rows of ``falconcal.shifts.corruptions.parameters`` in place of its own.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Callable

import numpy
from PIL import Image

from falconcal.shifts.corruptions.parameters import SeverityTable, parameters

Peer = Callable[[numpy.ndarray, int], numpy.ndarray]  # (H, W, 3) bytes, severity -> the same


def peer(module: types.ModuleType, name: str, size: int) -> Peer:
    """Return the package's function, with the parameters that falconcal has for the size.

    Its elastic transform has a form of its own, without the affine part, and stays as it is.
    """
    function = getattr(module, name)
    if name != "elastic_transform":
        function = _with_rows(module, name, parameters(name, size, size))

    def corrupted(image: numpy.ndarray, severity: int) -> numpy.ndarray:
        changed = function(Image.fromarray(image), severity)
        return numpy.asarray(changed).astype(numpy.uint8)  # cut off, as its corrupt() does

    return corrupted


def _with_rows(module: types.ModuleType, name: str, rows: SeverityTable) -> Callable[..., object]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(module, name))))
    values = [_as_written(name, row) for row in rows]
    replaced = _Rows(ast.parse(repr(values), mode="eval").body)
    tree = ast.fix_missing_locations(replaced.visit(tree))
    assert replaced.count == 1, f"{name}: expected one list of parameters, got {replaced.count}"
    names: dict[str, object] = {}
    exec(compile(tree, f"<{name}>", "exec"), vars(module), names)
    return names[name]  # type: ignore[return-value]


def _as_written(name: str, row: tuple[float, ...]) -> object:
    """Return a row as the package writes it: a lone number bare, factors of a zoom as a list."""
    if name == "zoom_blur":
        return list(row)
    whole = [int(value) if float(value).is_integer() else value for value in row]
    return whole[0] if len(whole) == 1 else tuple(whole)


class _Rows(ast.NodeTransformer):
    """Replaces the list in ``c = [...][severity - 1]``."""

    def __init__(self, values: ast.expr) -> None:
        self.values, self.count = values, 0

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and target.id == "c" and isinstance(value, ast.Subscript):
            value.value, self.count = self.values, self.count + 1
        return node
