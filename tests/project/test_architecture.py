"""The tree is as documented: imports point one way, public names are there, docs hold."""

import ast
import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import falconcal
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network
from tests.helpers.stripes import load_stripes
from tests.helpers.torchvision_operators import timm_or_skip

PACKAGE = ROOT / "falconcal"
# imports point back along this line
ROOMS = [
    "errors", "core", "io", "drawing", "data", "shifts", "metrics", "models", "evidence",
    "training", "recalibration", "methods", "inference", "evaluation", "studies", "report",
    "integrations", "cli",
]  # fmt: skip
# file names that may occur twice: a dataset and its stored shift, two kinds of predictions
SAME_NAMES = {"objectnet", "predictions"}
# what `import falconcal` gives; all else comes from its room
PUBLIC_NAMES = [
    "Adversarial", "AugMix", "Bounds", "DATASETS", "Dataset", "DensityAware", "Ensemble",
    "EnsembleTemperature", "EntropySmoothing", "Evidential", "Examples", "Falcon",
    "FalconClassifier", "FalconStep", "Focal", "HistogramBinning", "Isotonic", "JointGAN",
    "L2Dropout", "LabelSmoothing", "LastLayerSVI", "Loader", "MCDropout", "METHODS", "METRICS",
    "MNF", "MODELS", "Mixup", "OneCurveIsotonic", "ParameterisedTemperature", "Predictions",
    "RegMixup", "SHIFTS", "SNGP", "STUDIES", "SVI", "ScalingBinning", "Shift", "ShiftTemperature",
    "Temperature", "UserError", "VectorScaling", "accuracy", "assess", "brier_score",
    "checkpointing", "data", "errors", "evaluate", "evaluation", "evidence",
    "expected_calibration_error", "inference", "integrations", "interval", "load", "load_dataset",
    "make_model", "methods", "metrics", "models", "negative_log_likelihood", "paired_difference",
    "plot_rows", "predict", "read_predictions", "recalibration", "report", "run_study", "save",
    "shifts", "studies", "training", "tune_study", "write_report",
]  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def imports_of(path: Path) -> set[str]:
    return imports_in(path, path.read_text())


def imports_in(path: Path, text: str) -> set[str]:
    """Return the rooms that a module imports from, whatever form the import takes."""
    nodes = list(ast.walk(ast.parse(text)))
    found = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            found += [f"{module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in found if name.startswith("falconcal.")} & set(ROOMS)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the module of an import in full, where it is relative too."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


@pytest.mark.end_to_end
@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_back_along_the_way_of_the_data(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    later = ROOMS[ROOMS.index(own) + 1 :]
    assert not imports_of(path) & set(later)


@pytest.mark.parametrize(
    ("line", "rooms"),
    [
        ("import falconcal.cli.app", {"cli"}),
        ("import falconcal.cli as command, os", {"cli"}),
        ("from falconcal import cli, data", {"cli", "data"}),
        ("from falconcal.cli import app", {"cli"}),
        ("from falconcal.cli.app import app", {"cli"}),
        ("from .. import cli", {"cli"}),
        ("from ..cli import app", {"cli"}),
        ("from falconcal import Falcon", set()),
        ("def late():\n    from falconcal.cli import app", {"cli"}),
    ],
)
def test_every_form_of_import_is_seen(line: str, rooms: set[str]) -> None:
    path = PACKAGE / "data" / "made_up.py"
    assert imports_in(path, line) == rooms


def test_a_file_name_occurs_once() -> None:
    stems = [path.stem for path in MODULES if path.stem not in ("__init__", "__main__")]
    twice = {stem for stem in stems if stems.count(stem) > 1}
    assert twice == SAME_NAMES


def test_the_rooms_are_the_folders_there_are() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ROOMS) - {"errors"}
    loose = {path.stem for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__", "__main__", "errors"}


def test_the_page_on_architecture_names_the_rooms_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    line = page.partition("\n\n    ")[2].partition("\n\n")[0]
    assert re.split(r"\s*->\s*", line) == ROOMS
    assert re.findall(r"^\| `(\w+)(?:/|\.py)` \|", page, flags=re.MULTILINE) == ROOMS


def test_a_report_knows_no_method_and_no_study() -> None:
    for path in (PACKAGE / "report").rglob("*.py"):
        assert not imports_of(path) & {"methods", "training", "models", "studies"}


def test_public_names_are_those_that_users_type() -> None:
    names: list[str] = vars(falconcal)["__all__"]
    assert names == PUBLIC_NAMES
    for name in names:
        assert getattr(falconcal, name) is not None
        assert name in dir(falconcal)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(falconcal, "nothing")  # noqa: B009 - type checkers know that it is not there


def test_a_public_name_is_written_once() -> None:
    for stub in PACKAGE.rglob("*.pyi"):
        nodes = ast.walk(ast.parse(stub.read_text()))
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        names = [alias.asname for node in froms for alias in node.names]
        assert len(names) == len(set(names))


@pytest.mark.end_to_end
def test_importing_falconcal_does_not_wait_for_torch() -> None:
    code = "import sys, falconcal, falconcal.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_slow_to_import_comes_when_it_is_used() -> None:
    """Every process that trains would wait for it: scikit-learn, and SciPy's statistics."""
    slow = re.compile(r"(?:import|from) (?:sklearn|scipy\.(?:stats|optimize)|scipy import stats)")
    lines = {
        path: [line for line in path.read_text().splitlines() if slow.match(line)]
        for path in MODULES
        if "integrations" not in path.parts  # which are imported by those who want them
    }
    assert {path: found for path, found in lines.items() if found} == {}


def test_every_module_says_what_it_is() -> None:
    for path in MODULES:
        if path.stat().st_size:
            assert ast.get_docstring(ast.parse(path.read_text())), path


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}:{number}", code)
        for page in PAGES
        for number, code in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL), start=1
        )
    ]


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.errors.CollapseWarning")
@pytest.mark.parametrize(("place", "code"), blocks(), ids=[place for place, _ in blocks()])
def test_python_in_the_docs_runs(
    place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the files go that some of them write
    if "lightning" in code:
        pytest.importorskip("lightning")  # an extra
        warnings.simplefilter("default")  # it warns of much that is none of ours
    if "from transformers" in code:
        pytest.importorskip("transformers")
        warnings.simplefilter("default")
    if "import timm" in code:
        timm_or_skip()
        warnings.simplefilter("default")
    if "import pandas" in code:
        pytest.importorskip("pandas")
    shown: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code, place, "exec"), shown)
    data = load_stripes()
    for name in unused(code):
        if hasattr(shown[name], "fit"):
            train, validation = data.train.batches(30), data.validation.batches()
            assert not shown[name](epochs=1).fit(small_network(), train, validation).training
        elif inspect.signature(shown[name]).parameters:
            assert shown[name](data)(data.test.inputs).shape == (len(data.test), len(data.classes))
        else:
            data = shown[name]()


def unused(code: str) -> list[str]:
    """Return what some code defines and does nothing with: methods, loaders of data, networks."""
    tree = ast.parse(code)
    hints = {id(node.annotation) for node in ast.walk(tree) if isinstance(node, ast.arg)}
    named = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in hints
    }
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in defined if name not in named]


def test_what_the_docs_define_and_do_not_use_is_found() -> None:
    code = "class A: pass\ndef f(a: A): pass\nclass B: pass\ndef g(b: B): pass\ng(B())"
    assert unused(code) == ["A", "f"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_commands_in_the_docs_are_commands() -> None:
    from falconcal.cli import app

    names = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    } | {group.name for group in app.registered_groups}
    for page in PAGES:
        for name in re.findall(r"^falconcal ([a-z]+)", page.read_text(), flags=re.MULTILINE):
            assert name in names, f"{page.name}: falconcal {name}"


def test_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["lightning"], *extras["tune"]]
    wanted += [*extras["ray"], *extras["tensorboard"], *extras["transformers"]]
    pinned = set(re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(), re.M))
    normal = {name.lower().replace("_", "-") for name in pinned}
    for requirement in wanted:
        assert re.split(r"[><=\[]", requirement)[0].lower() in normal
    assert "torch==2.13.0\n" in (ROOT / "constraints.txt").read_text()


def test_version_is_said_once() -> None:
    version = falconcal.__version__
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
