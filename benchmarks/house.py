"""Measure how easily the code can be read: layout, names, functions, docstrings.

    python -m benchmarks.house [FOLDER] [FOLDER]

prints one row per figure for the tree in FOLDER (this one by default), and for two folders one
column each, the earlier tree first. Nothing is imported: the files are parsed.
"""

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

Definition = ast.FunctionDef | ast.ClassDef
Trees = dict[Path, ast.Module]
SHORTEST_COPY = 6  # lines of code that count as a duplicate when they occur again
SHORTEST_BODY = 3  # lines of a function's body that count as a duplicate


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]] or [Path()]
    found = [figures(folder / "falconcal") for folder in folders]
    rows = [(name, *(one[name] for one in found)) for name in found[0]]
    for row in [("figure", *(folder.resolve().name for folder in folders)), *rows]:
        print(f"| {' | '.join(row)} |")


def figures(package: Path) -> dict[str, str]:
    """Return the figures of a package by name."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    lengths = sorted(_length(function) for tree in trees.values() for function in _functions(tree))
    return {
        "modules": str(len(trees)),
        "modules at the top level": str(len(_top_level(package))),
        "file names that occur twice or more": _shown(_repeated_files(trees)),
        "functions": str(len(lengths)),
        "lines of a function: median": f"{statistics.median(lengths):g}",
        "lines of a function: 90th percentile": str(lengths[len(lengths) * 9 // 10]),
        "lines of a function: longest": str(lengths[-1]),
        "functions longer than 20 lines": str(sum(length > 20 for length in lengths)),
        **_names(trees),
        **_documented(package, trees),
        "lines of code without docstrings and comments": str(sum(map(len, _code(trees)))),
        f"functions of {SHORTEST_BODY} lines or more with the same body": _shown(_copies(trees)),
        f"blocks of {SHORTEST_COPY} lines that occur again": str(_copied_blocks(trees)),
        "words of docstrings": str(sum(map(_docstring_words, trees.values()))),
    }


# layout and functions


def _top_level(package: Path) -> list[Path]:
    return [path for path in package.glob("*.py") if not path.stem.startswith("__")]


def _repeated_files(trees: Trees) -> list[str]:
    return _twice(path.stem for path in trees if path.stem != "__init__")


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _length(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    whole = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        whole -= (first.end_lineno or 0) - first.lineno + 1
    return whole


# names


def _names(trees: Trees) -> dict[str, str]:
    """Return the names that more than one module or class defines, by kind.

    Functions with the same parameters, and fields with the same type, are taken to mean the same.
    """
    nodes = [node for tree in trees.values() for node in tree.body]
    types = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    fields = [field for tree in trees.values() for field in _fields(tree)]
    return {
        "types that occur twice or more": _shown(_twice(types)),
        "constants that occur twice or more": _shown(_twice(_constants(nodes))),
        "functions of the same name with other parameters": _shown(
            _different((node.name, ast.unparse(node.args)) for node in functions)
        ),
        "fields of the same name with another type": _shown(_different(fields)),
    }


def _constants(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            parts = [part for target in targets for part in getattr(target, "elts", [target])]
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def _fields(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Give name and type of each annotated field of each class."""
    for node in ast.walk(tree):
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if (name := _field_name(part)) is not None:
                assert isinstance(part, ast.AnnAssign)
                yield name, ast.unparse(part.annotation).strip("'\"")


def _field_name(part: ast.stmt) -> str | None:
    """Return the name of an annotated field; what belongs to the class itself is none."""
    if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
        return None
    return None if ast.unparse(part.annotation).startswith("ClassVar") else part.target.id


def _twice(names: Iterable[str]) -> list[str]:
    counts = Counter(name for name in names if not name.startswith("_"))
    return sorted(f"{name} ({count})" for name, count in counts.items() if count > 1)


def _different(pairs: Iterable[tuple[str, str]]) -> list[str]:
    meanings = defaultdict(set)
    for name, meaning in pairs:
        meanings[name].add(meaning)
    return _twice(name for name, found in meanings.items() for _ in found)


# docstrings


def _documented(package: Path, trees: Trees) -> dict[str, str]:
    """Return the number of public names, and of those with a complete docstring and an example."""
    names = public_names(package)
    found = {
        node.name: node
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names
    }
    tables = names - found.keys()  # dicts and types: a comment or a string says what they are
    examples = sum(">>>" in (ast.get_docstring(node) or "") for node in found.values())
    return {
        "public names at the root": str(len(names)),
        "of these, tables and types": str(len(tables)),
        "classes and functions with a complete docstring": f"{_count(found)} of {len(found)}",
        "classes and functions with an example that is run": f"{examples} of {len(found)}",
    }


def _count(found: dict[str, Definition]) -> int:
    return sum(map(is_complete, found.values()))


def public_names(package: Path) -> set[str]:
    """Return the names at the root, without modules: of the stub, or of ``__all__`` before it."""
    stub = package / "__init__.pyi"
    if stub.exists():
        nodes = ast.walk(ast.parse(stub.read_text()))
        return {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
    for node in ast.parse((package / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value)) - {"__version__"}
    return set()


def is_complete(node: Definition) -> bool:
    """Return whether a docstring has all sections: arguments or fields, result, example."""
    text = ast.get_docstring(node) or ""
    if ">>>" not in text:
        return False
    if isinstance(node, ast.ClassDef):
        return _fields_documented(node, text)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    returns = node.returns is not None and ast.unparse(node.returns) != "None"
    return ("Args:" in text or not arguments) and ("Returns:" in text or not returns)


def _fields_documented(node: ast.ClassDef, text: str) -> bool:
    """Return whether each field has a string under it, or its name in the class's docstring."""
    pairs = zip(node.body, [*node.body[1:], ast.Pass()], strict=True)
    names = (_field_name(part) for part, following in pairs if not _is_string(following))
    return all(f"{name}:" in text for name in names if name and not name.startswith("_"))


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _docstring_words(tree: ast.Module) -> int:
    """Return the words of docstrings, those under the fields of classes included."""
    texts = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    return sum(len(text.split()) for text in texts if isinstance(text, str))


# duplicates


def _code(trees: Trees, imports: bool = True) -> list[list[str]]:
    return [_code_lines(path.read_text(), tree, imports) for path, tree in trees.items()]


def _code_lines(text: str, tree: ast.Module, imports: bool) -> list[str]:
    """Return the lines that are neither blank, comment nor docstring, imports if asked for."""
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if _is_string(node) or (not imports and isinstance(node, ast.Import | ast.ImportFrom)):
            assert isinstance(node, ast.stmt)
            hidden |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line.strip() for line in text.splitlines()]
    return [
        line
        for number, line in enumerate(lines, start=1)
        if number not in hidden and line[:1] not in ("", "#")
    ]


def _copies(trees: Trees) -> list[str]:
    """Return functions whose body occurs again, docstrings aside."""
    homes = defaultdict(list)
    for tree in trees.values():
        for function in _functions(tree):
            body = [part for part in function.body if not _is_string(part)]
            text = ast.unparse(ast.Module(body, []))
            if text.count("\n") + 1 >= SHORTEST_BODY:
                homes[text].append(function.name)
    return sorted(" = ".join(names) for names in homes.values() if len(names) > 1)


def _copied_blocks(trees: Trees) -> int:
    """Return how many blocks of lines, imports aside, occur in more than one module."""
    counts: Counter[tuple[str, ...]] = Counter()
    for lines in _code(trees, imports=False):
        counts.update(set(_windows(lines, SHORTEST_COPY)))
    return sum(count > 1 for count in counts.values())


def _windows(lines: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(lines[start : start + size]) for start in range(len(lines) - size + 1))


def _shown(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


if __name__ == "__main__":
    main()
