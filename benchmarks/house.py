"""Measure how easily the code can be read: layout, names, functions, docstrings.

    python -m benchmarks.house [FOLDER]

prints one row per figure for the tree in FOLDER (this one by default), so that two trees can be
compared. Nothing is imported: the files are parsed.
"""

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SECTIONS = ("Args:", "Returns:", "Example")
Definition = ast.FunctionDef | ast.ClassDef


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for name, value in figures(root / "falconcal").items():
        print(f"| {name} | {value} |")


def figures(package: Path) -> dict[str, str]:
    """Return the figures of a package by name."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    lengths = sorted(_length(function) for tree in trees.values() for function in _functions(tree))
    public, complete = _public(package, trees)
    return {
        "modules": str(len(trees)),
        "modules at the top level": str(len(_top_level(package))),
        "file names that occur twice or more": ", ".join(_twice(trees)) or "none",
        "functions": str(len(lengths)),
        "lines of a function: median": f"{statistics.median(lengths):g}",
        "lines of a function: 90th percentile": str(lengths[len(lengths) * 9 // 10]),
        "lines of a function: longest": str(lengths[-1]),
        "names of types and constants that occur twice or more": _shown(_repeated(trees)),
        "public names": str(public),
        "public names with a complete docstring": f"{complete} of {public}",
        "lines of code without docstrings and comments": str(sum(map(_code_lines, trees))),
        "words of docstrings": str(sum(map(_docstring_words, trees.values()))),
    }


def _top_level(package: Path) -> list[Path]:
    return [path for path in package.glob("*.py") if not path.stem.startswith("__")]


def _twice(trees: dict[Path, ast.Module]) -> list[str]:
    counts = Counter(path.stem for path in trees if path.stem != "__init__")
    return sorted(name for name, count in counts.items() if count > 1)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _length(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    whole = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        whole -= (first.end_lineno or 0) - first.lineno + 1
    return whole


def _repeated(trees: dict[Path, ast.Module]) -> list[str]:
    """Return types, constants and public functions that more than one module defines."""
    homes = defaultdict(set)
    for path, tree in trees.items():
        for name in _defined(tree):
            homes[name].add(path)
    return sorted(f"{name} ({len(paths)})" for name, paths in homes.items() if len(paths) > 1)


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                target.id
                for target in targets
                if isinstance(target, ast.Name) and not target.id.startswith("_")
            )


def _public(package: Path, trees: dict[Path, ast.Module]) -> tuple[int, int]:
    """Return how many public names there are, and how many of them are documented whole."""
    names = public_names(package)
    found: dict[str, Definition] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names:
                found.setdefault(node.name, node)
    return len(names), sum(1 for node in found.values() if is_complete(node)) + sum(
        1 for name in names - found.keys() if name.isupper()
    )


def public_names(package: Path) -> set[str]:
    """Return the names at the root: of the stub, or of ``__all__`` in trees before it."""
    stub = package / "__init__.pyi"
    if stub.exists():
        nodes = ast.walk(ast.parse(stub.read_text()))
        return {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
    for node in ast.parse((package / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def is_complete(node: Definition) -> bool:
    """Tell whether a docstring names arguments and what is returned, and shows an example."""
    text = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        return "Example" in text and ">>>" in text
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    needed = [section for section in SECTIONS if arguments or section != "Args:"]
    return all(section in text for section in needed) and ">>>" in text


def _code_lines(path: Path) -> int:
    """Return the lines that are neither blank, comment nor docstring."""
    text = path.read_text()
    hidden = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(
        1
        for number, line in lines
        if number not in hidden and line.strip(" \t")[:1] not in ("", "#")
    )


def _docstring_words(tree: ast.Module) -> int:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return sum(len((ast.get_docstring(node) or "").split()) for node in nodes)


def _shown(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


if __name__ == "__main__":
    main()
