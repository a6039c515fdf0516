"""What may be opened from strangers: each claim of docs/safety.md, tried as an attacker would."""

import dataclasses
import io
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import falconcal
from falconcal.cli import main
from falconcal.core.trust import NOBODY, Trust, trusting
from falconcal.data import load_dataset
from falconcal.errors import UsageError, UserError
from falconcal.inference.model_file import load
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.io.parsing import DEPTH, parse_json, parse_toml
from falconcal.io.tensors import read_tensors, write_tensors
from falconcal.methods import L2Dropout, make_method
from falconcal.shifts import find_computed_shift, find_outliers
from falconcal.studies import find_study
from falconcal.studies.runner import do_runs
from falconcal.studies.study import Study
from falconcal.studies.study_reading import read_study
from tests.helpers.paths import ROOT
from tests.helpers.plain_study import TEXT
from tests.helpers.small_data import CLASSES, stripes
from tests.helpers.small_studies import Silent
from tests.helpers.stripes import load_stripes, read_own
from tests.helpers.watched_process import harmless

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
PAGE = ROOT / "docs" / "safety.md"
# what a stranger might name, and the words that refuse it whoever is trusted
NEVER = {
    "os:system": "standard library",
    "posix:system": "standard library",
    "subprocess:Popen": "standard library",
    "builtins:eval": "standard library",
    "builtins:exec": "standard library",
    "math:pi": "standard library",
    "sys:exit": "standard library",
    "logging:FileHandler": "standard library",
    "test.support:import_helper": "standard library",
    "falconcal.models:make_model": "names of its tables",
    "falconcal.io.atomic:write_text": "names of its tables",
    "falconcal:load": "names of its tables",
    "os.path:": "package.module:Name",
    ":system": "package.module:Name",
    "os:system:x": "package.module:Name",
    "../lure:Net": "package.module:Name",
    "lure:Net.run": "package.module:Name",
}
OUTSIDE = "lure:Net"
LURE = """
import os, pathlib, torch, falconcal, functools
from os import system
from pathlib import Path
from torch import load as torch_load
from torch.nn import Linear
from falconcal.models import make_model
from falconcal.data.sets.digits import load_digits_dataset as load_digits
pathlib.Path(__file__).with_name("imported").touch()

class Net(torch.nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()

class NoModule:
    def __init__(self, **settings: object) -> None:
        pathlib.Path(__file__).with_name("called").touch()

def make(dataset) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(len(dataset.classes)))

def needs_much(one, two, three):
    pathlib.Path(__file__).with_name("called").touch()

number = 5
wrapped = functools.wraps(system)(lambda command: None)
"""


@pytest.fixture
def lure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that leaves a file when it is imported, and another when it is called."""
    folder = tmp_path / "lure"
    folder.mkdir()
    (folder / "__init__.py").write_text(LURE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    sys.modules.pop("lure", None)


def touched(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} & {"imported", "called"}


def forged(path: Path, **metadata: Any) -> Path:
    """Write a model file as a stranger might, its metadata changed."""
    model = falconcal.make_model("mlp", load_dataset("digits"))
    falconcal.save(model, path, "mlp", classes=[*"0123456789"], shape=[1, 28, 28])
    tensors, head = read_tensors(path)
    write_tensors(path, tensors, {**head, "facts": {**head["facts"], **metadata}})
    return path


def left(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> object:
    """Run the command in a folder and return the code that it left with."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["falconcal", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


# a model file


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [*NEVER, OUTSIDE])
def test_a_model_file_calls_nothing_by_name(name: str, lure: Path, tmp_path: Path) -> None:
    wish = {"name": "os:system", "dataset": f"touch {tmp_path / 'called'}"}
    method = {"method": name, "command": f"touch {tmp_path / 'called'}"}
    based = {"method": "temperature", "base": method}
    made = {"method": "ensemble", "size": 2, "factory": name}
    forgeries: list[dict[str, Any]] = [
        {"architecture": name},
        {"architecture": name, "arguments": wish},
        *({"method": one} for one in (method, based, made)),
    ]
    for number, metadata in enumerate(forgeries):
        file = forged(tmp_path / f"{number}", **metadata)
        with harmless(), pytest.raises(UserError, match=NEVER.get(name, "--trust-code lure ")):
            load(file)
    assert not touched(lure)
    assert not (tmp_path / "called").exists()


@pytest.mark.end_to_end
def test_a_model_file_that_asks_for_more_than_it_holds_takes_no_memory(tmp_path: Path) -> None:
    for metadata in (
        {"shape": [2**40, 2**40]},
        {"shape": [1, 8000, 8000]},
        {"shape": [1, 5000, 5000]},
        {"architecture": "vgg19", "arguments": {"width": 10**6}},
        {"architecture": "text_lstm", "shape": [8], "tokens": 2**40},
        {"method": {"method": "ensemble", "size": 10**12}},
        {"method": {"method": "ensemble", "base": {"method": "ensemble", "size": 10**9}}},
    ):
        file = forged(tmp_path / "model", **metadata)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with harmless(), pytest.raises(UserError):
            load(file)
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert taken < 400_000, metadata  # kilobytes; the largest picture that is taken has 131,000


def test_predict_refuses_a_forged_model_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lure: Path
) -> None:
    numpy.save(tmp_path / "x.npy", numpy.zeros((2, 1, 28, 28), numpy.float32))
    forged(tmp_path / "model", architecture="lure:make")
    assert left(monkeypatch, tmp_path, "predict", "model", "x.npy") == 2
    assert "add --trust-code lure (in Python" in capsys.readouterr().err
    assert not touched(lure)
    assert not (tmp_path / "runs").exists()


# a study file

PLACES: dict[str, Callable[[str], str]] = {
    "dataset": lambda name: TEXT.replace('"digits"', f'"{name}"'),
    "dataset and settings": lambda name: TEXT.replace(
        '"digits"', f'{{name = "{name}", args = "touch called", shell = true}}'
    ),
    "model": lambda name: TEXT.replace('"lenet"', f'"{name}"'),
    "model and settings": lambda name: TEXT.replace(
        '"lenet"', f'{{name = "{name}", filename = "called"}}'
    ),
    "shift": lambda name: TEXT.replace('"shear"', f'"{name}"'),
    "one shift after another": lambda name: TEXT.replace('"shear"', f'"shear | {name}"'),
    "selection shift": lambda name: TEXT.replace('"contrast"', f'"{name}"'),
    "outliers": lambda name: TEXT.replace("shifts", f'outliers = ["{name}"]\nshifts', 1),
    "method": lambda name: TEXT + f"[methods.own]\nmethod = '{name}'\n",
    "method by its own name": lambda name: TEXT + f'[methods."{name}"]\n',
    "base": lambda name: TEXT + f"[methods.temperature]\nbase = {{method = '{name}'}}\n",
    "factory": lambda name: TEXT + f"[methods.ensemble]\nfactory = '{name}'\n",
    "model of a variant": lambda name: TEXT + f"[variants.other]\nmodel = '{name}'\n",
    "sweep": lambda name: TEXT + f"[sweeps]\n'model.name' = ['{name}']\n",
    "factory of a variant": lambda name: (
        TEXT + f"[methods.ensemble]\n[variants.other]\n'ensemble.factory' = '{name}'\n"
    ),
}
NOT_A_NAME = {"os.path:", ":system", "os:system:x", "../lure:Net", "lure:Net.run"}


@pytest.mark.end_to_end
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", sorted({*NEVER, OUTSIDE} - NOT_A_NAME))
def test_a_study_file_calls_nothing_by_name(
    place: str, name: str, lure: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = NEVER.get(name, r'add --trust-code lure \(in Python trust_code=\["lure"\]\)')
    with harmless(), pytest.raises(UsageError, match=words):
        read_study(PLACES[place](name), "test")
    assert not touched(lure)


@pytest.mark.parametrize("name", sorted(NOT_A_NAME))
def test_what_is_no_name_of_code_is_refused(name: str, lure: Path) -> None:
    for place in ("dataset", "model", "shift", "outliers"):
        with harmless(), pytest.raises(UsageError, match=r"package\.module:Name|unknown"):
            read_study(PLACES[place](name), "test", trust_code=["lure"])
    assert not touched(lure)


def test_names_for_tuning_and_settings_of_before_are_no_way_around(
    tmp_path: Path, lure: Path
) -> None:
    from falconcal.studies.tuning.spaces import check_search

    searched = TEXT + f"[methods.ensemble]\n[search.ensemble]\nfactory = ['{OUTSIDE}']\n"
    with harmless(), pytest.raises(UsageError):
        check_search(read_study(searched, "test"))
    best = tmp_path / "best.toml"
    best.write_text(f"[methods.dropout]\nmethod = '{OUTSIDE}'\n")
    with harmless(), pytest.raises(UsageError, match=r"another method|--trust-code"):
        read_study(TEXT, "test", settings=best)
    small = TEXT + f"[smoke]\nmodel = '{OUTSIDE}'\n"
    with harmless(), pytest.raises(UsageError, match="--trust-code lure"):
        read_study(small, "test", smoke=True)
    assert not touched(lure)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("dataset", "os:system"), ("dataset", "sys:exit"), ("dataset", "subprocess:Popen"),
        ("dataset", "lure:make"), ("model", "builtins:eval"), ("model", "math:pi"),
    ],
)  # fmt: skip
def test_run_and_tune_refuse_a_study_with_code_2(
    entry: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lure: Path,
) -> None:
    (tmp_path / "study.toml").write_text(PLACES[entry](value))
    for words in (["run"], ["tune", "--method", "dropout", "--trials", "1"]):
        with harmless():
            assert left(monkeypatch, tmp_path, words[0], "study.toml", *words[1:]) == 2
        complaint = capsys.readouterr().err
        assert "Traceback" not in complaint
        assert complaint.startswith(f"Error: {entry} '{value}'")
    assert not touched(lure)
    assert not (tmp_path / "runs").exists()


# trust


@pytest.mark.parametrize("name", NEVER)
def test_the_standard_library_is_never_called_whatever_is_trusted(name: str) -> None:
    trust = Trust(frozenset({"os", "lure", name.partition(":")[0]}), frozenset({name}))
    for call in (
        lambda: make_method({"method": name}, trust),
        lambda: make_method({"method": name}),
        lambda: find_computed_shift(name, trust=trust),
        lambda: find_computed_shift(name),
        lambda: find_outliers(name, trust),
        lambda: load_dataset(name),
        lambda: falconcal.make_model(name, load_stripes()),
        lambda: read_study(TEXT, "test", [f"dataset={name}"]),
    ):
        with harmless(), pytest.raises(UserError, match=NEVER[name]):
            call()


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("os", "standard library"), ("builtins", "standard library"), ("test", "standard library"),
        ("os.path", "standard library"), ("falconcal", "tables"), ("falconcal.models", "tables"),
        ("lure:Net", "name of a package"), ("", "name of a package"), ("a b", "name of a package"),
        (5, "name of a package"),
    ],
)  # fmt: skip
def test_only_packages_can_be_trusted(package: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        trusting([package])
    assert trusting("lure") == trusting(["lure"])


@pytest.mark.usefixtures("lure")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lure:os", "got <module"),
        ("lure:number", "got 5"),
        ("lure:Path", "expected model 'lure:Path' to be a class of torch.nn.Module"),
        ("lure:system", "got <built-in function system>"),
        ("lure:wrapped", "to be a class of torch.nn.Module"),
        ("lure:make_model", "names of its tables"),
        ("lure:torch_load", r"is really torch\.serialization:load, of another package.*torch too"),
        ("lure:Linear", r"is really torch\.nn\.modules\.linear:Linear"),
        ("lure:NoModule", "to be a class of torch.nn.Module"),
        ("lure:needs_much", "missing a required argument"),
        ("lure:nothing", "cannot import model"),
        ("lure.none:Net", "cannot import model"),
    ],
)
def test_a_trusted_package_lends_only_its_own_code_of_the_right_kind(
    name: str, words: str, lure: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        read_study(PLACES["model"](name), "test", trust_code=["lure"])
    assert "called" not in touched(lure)


@pytest.mark.usefixtures("lure")
@pytest.mark.parametrize("name", ["lure:load_digits", "lure:number", "lure:needs_much", "lure:Net"])
def test_a_dataset_is_checked_before_it_is_called(name: str, lure: Path) -> None:
    for place in ("dataset", "outliers"):
        if (place, name) == ("outliers", "lure:needs_much"):
            continue  # it is called later, with nothing
        with pytest.raises(UsageError, match=r"tables|to be a|missing"):
            read_study(PLACES[place](name), "test", trust_code=["lure"])
    assert "called" not in touched(lure)


@pytest.mark.usefixtures("lure")
def test_a_module_that_ends_python_is_a_sentence(lure: Path) -> None:
    (lure / "__init__.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UsageError, match="cannot import model 'lure:Net': SystemExit"):
        read_study(PLACES["model"](OUTSIDE), "test", trust_code=["lure"])


def test_trust_is_never_read_from_a_file() -> None:
    for text in (
        "trust = ['lure']\n" + TEXT,
        "trust = {packages = ['lure']}\n" + TEXT,
        "trust_code = ['lure']\n" + TEXT,
        TEXT + "[smoke]\ntrust = ['lure']\n",
        TEXT + "[variants.other]\ntrust = ['lure']\n",
        TEXT.replace('"digits"', '{name = "digits", trust = "lure"}'),
        TEXT.replace('"lenet"', '{name = "lenet", trust = "lure"}'),
        TEXT + "trust = 'lure'\n",
    ):
        with pytest.raises(UsageError):
            read_study(text, "test", smoke=True)
    with pytest.raises(UsageError, match="unknown setting"):
        read_study(TEXT, "test", ["trust=lure"])
    assert read_study(TEXT, "test").trust == NOBODY


OWN = TEXT.replace('"digits"', '"tests.helpers.stripes:load_stripes"').replace(
    '"lenet"', '"tests.helpers.stripes:make_small"'
)


@pytest.mark.end_to_end
def test_trust_is_asked_for_again_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = read_own(OWN, "test")
    assert not do_runs(study, tmp_path / "out", Silent())
    kept = [file.read_text() for file in (tmp_path / "out").rglob("*.json")]
    assert not any("trust" in text for text in kept)
    (tmp_path / "study.toml").write_text(OWN)
    assert left(monkeypatch, tmp_path, "run", "study.toml", "--out", "out") == 2
    assert "add --trust-code tests" in capsys.readouterr().err
    weights = RunKey(DEFAULT_VARIANT, "dropout", 0).folder(tmp_path / "out") / "weights.safetensors"
    with pytest.raises(UsageError, match="add --trust-code tests"):
        load(weights)
    assert (
        load(weights, trust_code=["tests"]).metadata.architecture
        == "tests.helpers.stripes:make_small"
    )


def test_a_study_takes_its_trust_to_other_processes() -> None:
    study = pickle.loads(pickle.dumps(read_own(OWN, "test")))
    assert study.trust == trusting(["tests"])
    assert study.variant(DEFAULT_VARIANT).trust == study.trust
    assert "trust" not in study.resolved()


def test_what_you_type_is_yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        "dataset=tests.helpers.stripes:load_stripes",
        "model=tests.helpers.stripes:make_small",
    ]
    typed = read_study(
        TEXT, "test", [*changes, 'shifts=["shear | tests.helpers.stripes:inverted"]']
    )
    assert next(one.name for one in typed.all_shifts()) == "shear | tests.helpers.stripes:inverted"
    with pytest.raises(UsageError, match="--trust-code tests"):  # but the file's are not
        read_study(OWN, "test", changes[:1])
    picture = [
        "shift",
        "tests.helpers.stripes:load_stripes",
        "--shifts",
        "tests.helpers.stripes:inverted",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["falconcal", *picture])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert load_dataset("tests.helpers.stripes:load_stripes").name == "stripes"
    assert Study(**parse_toml(OWN)).trusting(["tests"]).method("dropout") == L2Dropout(epochs=1)


def test_trusting_a_package_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        OWN + "[methods.own]\nmethod = 'tests.helpers.stripes:Scaling'\nbase = 'dropout'\n"
    )
    study = find_study(str(file), trust_code=["tests.helpers.stripes"])
    assert type(study.method("own")).__name__ == "Scaling"
    with pytest.raises(UsageError, match="--trust-code tests"):
        find_study(str(file), trust_code=["tests.helpers.stripe"])


# folders


@pytest.mark.end_to_end
def test_report_and_compare_import_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lure: Path
) -> None:
    do_runs(read_own(OWN, "test"), tmp_path / "out", Silent())
    for file in (tmp_path / "out").rglob("*.json"):
        file.write_text(file.read_text().replace("tests.helpers.stripes:", "lure:"))
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    for words in (["report", "out"], ["compare", "out", "other", "--out", "both"]):
        monkeypatch.setattr(sys, "argv", ["falconcal", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code in (0, None)
    assert not touched(lure)
    assert "lure" not in sys.modules


@pytest.mark.end_to_end
def test_a_folder_of_strangers_lends_no_modules(tmp_path: Path) -> None:
    """Python looks where it runs for what is not installed, so that place is left out."""
    for name in ("ray", "lightning", "pandas", "torchvision", "lure", "optuna_dashboard"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n"
        )
    (tmp_path / "study.toml").write_text(PLACES["model"]("lure:Net"))
    code = "import sys; sys.path.remove(''); from falconcal.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", code, "run", "study.toml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert not (tmp_path / "imported").exists()
    trusting_it = subprocess.run(
        [sys.executable, "-c", code, "run", "study.toml", "--trust-code", "lure"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert "has no attribute 'Net'" in trusting_it.stderr
    assert (tmp_path / "imported").read_text() == "lure"


@pytest.mark.end_to_end
def test_a_trial_store_removes_no_file_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from falconcal.studies.tuning.trial_store import TrialStore

    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "out" / ".workers").mkdir(parents=True)
    store = TrialStore(tmp_path / "out", None, "study")
    trials = store.trials_of("dropout")
    store.plan(trials, [{}])
    trial = store.claim(trials, 0)
    assert trial is not None
    trial.set_user_attr("worker", "../../precious")
    assert store.requeue_lost(trials) == 1
    store.close()
    assert precious.read_text() == "kept"


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    data, method = stripes(30), L2Dropout(epochs=2)

    def fit() -> nn.Module:
        with falconcal.checkpointing(tmp_path):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Flatten(), nn.Linear(784, len(CLASSES)))
            return method.fit(model, data.batches(10), data.batches())

    fit()
    (file,) = tmp_path.iterdir()
    tensors, metadata = read_tensors(file)
    state = next(name for name in tensors if name.endswith("exp_avg"))
    place = metadata["place"]
    changes: list[dict[str, Any]] = [
        {"records": "x"}, {"place": {}}, {"optimizers": []}, {"place": {**place, "epoch": 10**9}},
        {"place": {**place, "random": {"now": {"numpy": ["MT19937", [1], 2, 0, 0.0]}}}},
        {"optimizers": [{**metadata["optimizers"][0], "groups": [{"lr": "os:system"}]}]},
    ]  # fmt: skip
    for change in changes:
        write_tensors(file, tensors, {**metadata, **change})
        with harmless(tmp_path), pytest.raises(UserError, match=r"looks damaged.*delete it"):
            fit()
    write_tensors(file, {**tensors, state: torch.zeros(3)}, metadata)
    with pytest.raises(UserError, match="looks damaged"):
        fit()
    write_tensors(file, tensors, metadata)
    fit()


# no pickle, no depth, no endless numbers


class Pickled:
    """What pickle would run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    objects = numpy.array([Pickled(mark)], dtype=object)
    numpy.savez(tmp_path / "x.npz", inputs=objects, labels=objects, probabilities=objects)
    numpy.save(tmp_path / "x.npy", objects, allow_pickle=True)
    torch.save({"weight": Pickled(mark)}, tmp_path / "x.pth")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Pickled(mark)))
    forged(tmp_path / "model")
    saved = load(tmp_path / "model")
    from falconcal.inference.inputs import open_inputs
    from falconcal.inference.prediction_files import read_predictions

    data = load_stripes()
    for call in (
        lambda: load_dataset("npz", path=str(tmp_path / "x.npz")),
        lambda: read_predictions(tmp_path / "x.npz"),
        lambda: next(iter(open_inputs(tmp_path / "x.npz", saved.metadata).batches)),
        lambda: next(iter(open_inputs(tmp_path / "x.npy", saved.metadata).batches)),
        lambda: falconcal.make_model("mlp", data, weights=tmp_path / "x.pth"),
        lambda: falconcal.make_model("mlp", data, weights=tmp_path / "raw.pth"),
    ):
        with pytest.raises(UserError):
            call()
    assert not mark.exists()


LONG = "9" * 5000
DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"x = {LONG}", "more than 64 bits"),
        (f"x = 0x{LONG}", "more than 64 bits"),
        ("x = " + "[" * DEEP, "deep"),
        ("x = " + "[" * (DEPTH + 5) + "]" * (DEPTH + 5), "deep"),
        ("x" + ".x" * 500 + " = 1", "deep"),
        ("x = " + "{x = " * DEEP, "deep"),
    ],
)
def test_toml_of_any_depth_and_length_is_a_sentence(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        parse_toml(text)
    assert "set_int_max_str_digits" not in str(refused.value)
    with pytest.raises(UsageError, match=f"is not valid TOML: .*{words}"):
        read_study(text, "test")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LONG, "more than 64 bits"),
        (f'{{"a": [-{LONG}]}}', "more than 64 bits"),
        (str(2**64), "more than 64 bits"),
        ("[" * DEEP, "deep"),
        ("[" * 50 + "]" * 50, "deep"),
        ('{"a":' * DEEP, "deep"),
    ],
)
def test_json_of_any_depth_and_length_is_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    from falconcal.report import load_results
    from falconcal.studies.run_files import read_json

    with pytest.raises(ValueError, match=words):
        parse_json(text)
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match=words):
        read_json(tmp_path / "study.json")
    with pytest.raises(UserError):
        load_results(tmp_path)
    model = nn.Linear(1, 1).state_dict()
    write_tensors(tmp_path / "model", model, {})
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(_with_metadata(content, text))
    with pytest.raises(UserError, match=words):
        load(tmp_path / "model")


def _with_metadata(content: bytes, text: str) -> bytes:
    """Return a safetensors file with other metadata in its head."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    head["__metadata__"] = {"falconcal": text}
    new = json.dumps(head).encode()
    return len(new).to_bytes(8, "little") + new + content[8 + length :]


def test_a_change_of_any_depth_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("[" * DEEP, LONG):
        changed = ["run", "digits", "--set", f"falcon.epochs={value}"]
        assert left(monkeypatch, tmp_path, *changed) == 2
        complaint = capsys.readouterr().err
        assert complaint.startswith("Error: --set")
        assert len(complaint) < 300


# the watch, and the page


@pytest.mark.end_to_end
def test_the_watch_sees_what_it_must(tmp_path: Path) -> None:
    deeds: list[Callable[[], object]] = [
        lambda: os.system("true"),
        lambda: subprocess.run(["true"], check=True),
        lambda: (tmp_path / "x").write_text("x"),
        lambda: (tmp_path / "y").mkdir(),
        lambda: pickle.loads(pickle.dumps(dataclasses.field)),
        lambda: zipfile.ZipFile(tmp_path / "z", "w").close(),
    ]
    for deed in deeds:
        with pytest.raises(AssertionError), harmless():
            deed()
    with harmless(tmp_path):
        (tmp_path / "x").write_text("y")
    with harmless():
        io.BytesIO(b"x").read()


def test_every_claim_of_the_page_has_a_test() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE.read_text())
    tests = {name for name in globals() if name.startswith("test_")}
    assert {*named} <= tests
    assert {*named} >= tests - {
        "test_the_watch_sees_what_it_must", "test_every_claim_of_the_page_has_a_test",
    }  # fmt: skip
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith("| ---") and "| tested by |" not in row]
    assert len(claims) > 20
    assert all("`test_" in row for row in claims)
