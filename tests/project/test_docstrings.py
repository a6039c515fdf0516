"""Every public name says what it takes and returns, in sections that tools read, and shows it.

Public are the names of the stub and what each of its rooms exports in ``__all__``. Functions and
ordinary classes name their parameters under ``Args:`` (records may do so under ``Attributes:``),
settings classes by a string under each field, tables by a string under the table.
"""

import ast
import dataclasses
import doctest
import importlib
import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import falconcal
from falconcal import errors
from falconcal.core.settings import described_settings
from tests.helpers.paths import ROOT

PACKAGE = Path(falconcal.__file__).parent
SECTION = re.compile(
    r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples|Note|Warning):$", re.MULTILINE
)
ENTRY = re.compile(r"^ {4}\*{0,2}(\w+)(?: \(.*?\))?:", re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_names() -> dict[str, Any]:
    """Return the public names by where a user finds them, each thing once."""
    rooms = {name for name in vars(falconcal)["__all__"] if inspect.ismodule(found(name))}
    root = [name for name in vars(falconcal)["__all__"] if name not in rooms]
    named = [(name, found(name)) for name in root]
    for room in sorted(rooms):
        exported = vars(found(room))["__all__"]
        named += [(f"{room}.{name}", getattr(found(room), name)) for name in exported]
    by_last_name = {name.rpartition(".")[2]: (name, thing) for name, thing in reversed(named)}
    return dict(sorted(by_last_name.values(), key=lambda pair: pair[0].lower()))


def found(name: str) -> Any:
    return getattr(falconcal, name)


@cache
def source_of(module: str) -> str:
    path = PACKAGE.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text()


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(source_of(module))


def sections_of(docstring: str) -> dict[str, str]:
    """Return the text of a docstring by section, what comes before them under ``summary``."""
    parts = SECTION.split(inspect.cleandoc(docstring))
    return {"summary": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(sections: dict[str, str], *names: str) -> list[str]:
    return [entry for name in names for entry in ENTRY.findall(sections.get(name, ""))]


def problems(name: str, thing: Any) -> list[str]:
    """Return what the documentation of a public name lacks."""
    if not inspect.isclass(thing) and not inspect.isroutine(thing):
        return [] if documented_value(name) else ["no string under it says what it is"]
    sections = sections_of(own_docstring(thing))
    lacking = [] if sections["summary"].strip() else ["no docstring"]
    if ">>>" not in sections.get("Example", ""):
        lacking.append("no Example: with lines that run")
    if inspect.isclass(thing):
        return lacking + problems_of_class(thing, sections)
    return lacking + problems_of_function(thing, sections)


def own_docstring(thing: Any) -> str:
    """Return the docstring that was written for a thing, neither inherited nor generated."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    generated = inspect.isclass(thing) and str(text).startswith(f"{thing.__name__}(")
    return "" if generated else text or ""


def problems_of_function(function: Any, sections: dict[str, str]) -> list[str]:
    lacking = differences(documented_parameters(function), parameters(function))
    returned = inspect.signature(function).return_annotation
    if returned not in (None, "None") and not {"Returns", "Yields"} & sections.keys():
        lacking.append("no Returns:")
    return lacking


def documented_parameters(function: Any) -> list[str]:
    return entries(sections_of(function.__doc__ or ""), "Args")


def problems_of_class(cls: type, sections: dict[str, str]) -> list[str]:
    methods = {name: own for name, own in vars(cls).items() if inspect.isfunction(own)}
    lacking = [
        f"{name}: {problem}"
        for name, method in methods.items()
        if documented_parameters(method)
        for problem in differences(documented_parameters(method), parameters(method))
    ]
    if hasattr(cls, "__pydantic_fields__"):
        described = described_settings(cls).items()
        return lacking + [f"{name} is not described" for name, text in described if not text]
    documented = {*entries(sections, "Args", "Attributes"), *described_attributes(cls)}
    if not takes_parameters(cls):
        return lacking
    wanted = parameters(cls)
    lacking += [f"Args: lacks {name}" for name in wanted if name not in documented]
    return lacking + [f"Args: {name}?" for name in entries(sections, "Args") if name not in wanted]


def takes_parameters(cls: type) -> bool:
    """Return whether people make one: not of errors, protocols and what is inherited from."""
    protocol = getattr(cls, "_is_protocol", False)
    return not (issubclass(cls, BaseException) or inspect.isabstract(cls) or protocol)


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def differences(documented: list[str], wanted: list[str]) -> list[str]:
    if documented == wanted:
        return []
    return [f"Args: expected {', '.join(wanted)}, got {', '.join(documented) or 'none'}"]


def described_attributes(cls: type) -> set[str]:
    """Return the fields of a class under which a string stands, of the classes above it too."""
    return {
        name
        for base in cls.__mro__
        if base.__module__.startswith("falconcal.")
        for node in tree_of(base.__module__).body
        if isinstance(node, ast.ClassDef) and node.name == base.__name__
        for name in described_in(node.body)
    }


def described_in(body: list[ast.stmt]) -> Iterator[str]:
    for node, below in itertools.pairwise(body):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id


def documented_value(name: str) -> bool:
    """Return whether a table has a string under it in the module that defines it."""
    last = name.rpartition(".")[2]
    named = [module for module in package_modules() if f"\n{last}" in source_of(module)]
    return any(last in described_in(tree_of(module).body) for module in named)


@cache
def package_modules() -> list[str]:
    files = [file.relative_to(PACKAGE.parent).with_suffix("") for file in PACKAGE.rglob("*.py")]
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


PUBLIC = public_names()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name: str) -> None:
    assert not problems(name, PUBLIC[name])


def examples() -> list[doctest.DocTest]:
    """Return the examples of all public names, and of the methods of public classes."""
    finder = doctest.DocTestFinder(recurse=True)
    things = [(name, thing) for name, thing in PUBLIC.items() if hasattr(thing, "__module__")]
    return [
        test
        for name, thing in things
        if inspect.isclass(thing) or inspect.isroutine(thing)
        for test in finder.find(thing, name, module_of(thing), extraglobs={"falconcal": falconcal})
        if test.examples
    ]


def module_of(thing: Any) -> ModuleType:
    return importlib.import_module(thing.__module__)


@pytest.mark.end_to_end
@pytest.mark.parametrize("example", examples(), ids=lambda test: test.name)
def test_an_example_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=shown.append)
    assert not result.failed, "".join(shown)


def test_the_tree_of_errors_is_drawn_whole() -> None:
    bases = ("UserError", "UsageError", "ValueError", "UserWarning")
    defined = {
        node.name
        for module in package_modules()
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z]\w*(Error|Warning)", node.name)
        if any(isinstance(base, ast.Name) and base.id in bases for base in node.bases)
    }
    drawn = set(re.findall(r"[└├]── (\w+)", errors.__doc__ or ""))
    assert drawn == defined


def test_the_first_page_of_the_reference_has_the_names_at_the_root() -> None:
    page = (ROOT / "docs" / "reference" / "index.md").read_text()
    linked = set(re.findall(r"\[`(\w+)`\]", page)) - {"UsageError"}
    assert linked == set(vars(falconcal)["__all__"])


def test_what_is_wrong_with_a_docstring_is_found() -> None:
    def whole(first: int, *, second: int = 2) -> int:
        """Return the sum.

        Args:
            first: A number.
            second: Another one.

        Returns:
            The sum.

        Example:
            >>> 1 + 2
            3
        """
        return first + second

    def other_names(first: int) -> int:
        """Return it.

        Args:
            frist: A number.
        """
        return first

    @dataclasses.dataclass
    class Generated:
        number: int

    assert problems("whole", whole) == []
    assert problems("other_names", other_names) == [
        "no Example: with lines that run",
        "Args: expected first, got frist",
        "no Returns:",
    ]
    assert "no docstring" in problems("Generated", Generated)
