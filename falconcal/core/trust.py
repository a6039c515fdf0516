"""Whose code may be called by name: one rule for all files, and for what a person writes.

A file (a model, a study, settings, a checkpoint) may name what falconcal's tables hold. Code from
outside, ``package.module:Name``, is imported only when a person has named its package, and called
only when it is of the kind that was asked for and defined in that package. The standard library and
falconcal's own functions are never called by name.
"""

import importlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from falconcal.errors import UsageError

OPTION = "--trust-code"


@dataclass(frozen=True)
class Trust:
    """Whose code may be imported; it is never read from a file nor written to one."""

    packages: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # package.module:Name, as the person typed them
    anything: bool = False  # the call comes from the person's own Python

    def allows(self, name: str) -> bool:
        """Return whether ``package.module:Name`` may be imported."""
        return self.anything or name in self.names or self.holds(name.partition(":")[0])

    def holds(self, module: str) -> bool:
        """Return whether a module is in a package that the person named."""
        return any(_inside(module, package) for package in self.packages)

    def typed(self, values: object) -> "Trust":
        """Return the trust with the names in values that the person typed, as with ``--set``."""
        return replace(self, names=self.names | set(_names_in(values)))


NOBODY = Trust()  # for a file's own names
PERSON = Trust(anything=True)


def trusting(packages: Iterable[str] | None) -> Trust:
    """Return the trust in packages by name, as ``--trust-code`` and ``trust_code`` give them."""
    named = [packages] if isinstance(packages, str) else list(packages or ())
    for package in named:
        _check_package(package)
    return Trust(frozenset(named))


@dataclass(frozen=True)
class CodeKind:
    """What a name may stand for: the word for it, what is expected, and a check of it."""

    word: str
    expected: str
    fits: Callable[[object], bool]


def find_code(kind: CodeKind, name: str, trust: Trust) -> Any:
    """Return what ``package.module:Name`` names, if the rule allows it."""
    check_allowed(kind.word, name, trust)
    found = _imported(kind.word, name)
    if not kind.fits(found):
        raise UsageError(f"expected {kind.word} {name!r} to be {kind.expected}, got {found!r}.")
    _check_home(kind.word, name, found, trust)
    return found


def check_allowed(word: str, name: str, trust: Trust) -> None:
    """Refuse a name that must not be imported, before it is."""
    module, _, attribute = name.partition(":")
    if not _dotted(module) or not attribute.isidentifier():
        raise UsageError(f"expected {word} {name!r} to be package.module:Name, or a known name.")
    _check_never(word, name, module)
    if not trust.allows(name):
        package = module.partition(".")[0]
        raise UsageError(
            f"{word} {name!r} is code from outside falconcal, and a file may not choose which code "
            f"runs here. Nothing was imported. If you know that code and trust it, add {OPTION} "
            f'{package} (in Python trust_code=["{package}"]).'
        )


def check_takes(what: str, make: Callable[..., Any], *given: object, **values: object) -> None:
    """Refuse arguments that a function cannot take, before it is called."""
    try:
        inspect.signature(make).bind(*given, **values)
    except (TypeError, ValueError) as error:  # also what has no signature
        raise UsageError(f"{what} cannot be called with these arguments: {error}.") from None


def is_function(thing: object) -> bool:
    """Return whether a thing is a function written in Python, behind any decorators."""
    return inspect.isfunction(_bare(thing))


def returns(make: object) -> object:
    """Return the annotated return type of a function, None if it has none."""
    try:
        return inspect.get_annotations(_bare(make), eval_str=True).get("return")
    except Exception:  # an annotation that cannot be evaluated
        return None


def _check_package(package: object) -> None:
    if not isinstance(package, str) or not _dotted(package):
        raise UsageError(f"{OPTION} expects the name of a package, such as mine, got {package!r}.")
    _check_never(OPTION, package, package)


def _check_never(word: str, name: str, module: str) -> None:
    package = module.partition(".")[0]
    if package == "falconcal":
        raise UsageError(
            f"{word} {name!r}: what falconcal has goes by the names of its tables, which falconcal "
            "list shows; nothing else in it is called by name."
        )
    if _standard(package):
        raise UsageError(
            f"{word} {name!r} is of Python's standard library, from which nothing is ever called "
            "by name, whatever is trusted."
        )


def _check_home(word: str, name: str, found: object, trust: Trust) -> None:
    """Refuse what a module only imports, as ``mine:system`` after ``from os import system``."""
    bare = _bare(found)
    if not inspect.isclass(bare) and not inspect.isfunction(bare):
        return  # a record of falconcal's own, such as a shift: data, which is not called
    module = str(bare.__module__)
    _check_never(word, f"{module}:{bare.__name__}", module)
    package = name.partition(":")[0].partition(".")[0]
    if not (trust.anything or trust.holds(module) or _inside(module, package)):
        raise UsageError(
            f"{word} {name!r} is really {module}:{bare.__name__}, of another package: if you know "
            f"that code and trust it, add {OPTION} {module.partition('.')[0]} too."
        )


def _imported(word: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # only now, so that no other import finds modules there
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # importing runs the module, which may raise anything
        raise UsageError(
            f"cannot import {word} {name!r}: {type(error).__name__}: {error}. Expected "
            "package.module:Name, importable from the current folder or an installed package."
        ) from None


def _standard(package: str) -> bool:
    """Return whether a package comes with Python, by its name or its location."""
    if package in sys.stdlib_module_names or package in sys.builtin_module_names:
        return True
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # as of __main__
        return False
    if spec is None or spec.origin is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    home, origin = Path(sysconfig.get_path("stdlib")), Path(spec.origin)
    installed = {"site-packages", "dist-packages"} & {*origin.parts}
    return origin.is_relative_to(home) and not installed


def _bare(thing: object) -> Any:
    """Return the function or class inside decorators."""
    try:
        return inspect.unwrap(thing)  # type: ignore[arg-type]
    except ValueError:  # it wraps itself
        return thing


def _names_in(values: object) -> Iterator[str]:
    """Give the names of code in plain data, also those of ``one | other``."""
    if isinstance(values, str):
        yield from (part.strip() for part in values.split("|") if ":" in part)
    elif isinstance(values, Mapping):
        yield from (name for value in values.values() for name in _names_in(value))
    elif isinstance(values, list | tuple):
        yield from (name for value in values for name in _names_in(value))


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
