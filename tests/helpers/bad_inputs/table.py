"""The table of bad inputs: products of commands, files and ways to spoil them, and lists of values.

Every entry says which exit code it must come to (1: data or files, 2: the command line, a study
file or a setting) and words that the message must hold: the name of what is wrong.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import falconcal
from falconcal.methods import METHODS, make_method
from falconcal.studies.study_reading import read_study
from tests.helpers.bad_inputs.home import (
    FACTS,
    FOLDER_FILES,
    IN_ITS_PLACE,
    SPOILED,
    STUDY,
    STUDY_JSON,
    TABLES,
    USAGE_FACTS,
    spoilings,
)
from tests.helpers.bad_inputs.trying import Case

FILE = "FILE"  # in the words of a command: where the bad file stands
MODEL = "good/model.safetensors"

# commands that take a file: the file, the words, the code where the content is wrong, and where
# something else than a file is there
READERS: dict[str, tuple[str, tuple[str, ...], int, int]] = {
    "score, CSV": ("p.csv", ("score", FILE), 2, 2),
    "score, Parquet": ("p.parquet", ("score", FILE), 2, 2),
    "score, NPZ": ("p.npz", ("score", FILE), 2, 2),
    "predict, model": ("model.safetensors", ("predict", FILE, "good/rows.csv"), 1, 1),
    "predict, CSV": ("rows.csv", ("predict", MODEL, FILE), 1, 2),
    "predict, NPY": ("x.npy", ("predict", MODEL, FILE), 1, 2),
    "predict, NPZ": ("x.npz", ("predict", MODEL, FILE), 1, 2),
    "run, study": ("study.toml", ("run", FILE), 2, 2),
    "tune, study": (
        "study.toml", ("tune", FILE, "--method", "falcon", "--trials", "1"), 2, 2,
    ),
    "run, settings": ("best.toml", ("run", "good/study.toml", "--settings", FILE), 2, 2),
    "tune, settings": (
        "best.toml",
        ("tune", "good/study.toml", "--method", "falcon", "--trials", "1", "--settings", FILE),
        2, 2,
    ),
    "run, dataset npz": (
        "own.npz", ("run", "good/study.toml", "--set", "dataset=npz", "--set",
                    f"dataset.path={FILE}"), 1, 1,
    ),
    "run, dataset csv": (
        "own.csv", ("run", "good/study.toml", "--set", "dataset=csv", "--set",
                    f"dataset.path={FILE}"), 1, 1,
    ),
    "shift, a file as dataset": ("own.npz", ("shift", FILE), 2, 2),
}  # fmt: skip


# what is read as something else: a file of zeros is a CSV file with one strange column, which is
# not the one that the command names; a folder is one of images
OTHERWISE: dict[tuple[str, str], tuple[int, str]] = {
    ("score, CSV", "zeros"): (2, "no column 'label'"),
    ("Python: p.csv", "zeros"): (2, "no column 'label'"),
    ("predict, CSV", "zeros"): (2, "no column 'a'"),
    ("predict, CSV", "folder"): (1, "a model of images"),
    ("predict, NPY", "folder"): (1, "a model of images"),
    ("predict, NPZ", "folder"): (1, "a model of images"),
}


def files() -> Iterator[Case]:
    """Every command that reads a file, with every spoiled file."""
    for reader, (name, words, content, place) in READERS.items():
        for kind in (*spoilings(name), *IN_ITS_PLACE):
            path = f"bad/{kind}/{name}"
            code = content if kind in (*SPOILED, "unreadable") else place
            arguments = tuple(word.replace(FILE, path) for word in words)
            expected = OTHERWISE.get((reader, kind), (code, path))
            yield Case(f"Files: {reader}", kind, *expected, arguments)


# command lines that are wrong by themselves: words, code, words of the message
COMMANDS: list[tuple[str, int, str]] = [
    ("rn", 2, "No such command"),
    ("--what", 2, "No such option"),
    ("run", 2, "Missing argument"),
    ("run digit", 2, "Did you mean 'digits'"),
    ("run digits extra", 2, "extra"),
    ("run digits --what", 2, "No such option"),
    ("run digits --methods falkon", 2, "Did you mean 'falcon'"),
    ("run digits --methods ,", 2, "unknown method"),
    ("run digits --variants other", 2, "unknown variant"),
    ("run digits --seeds 0", 2, "seeds"),
    ("run digits --seeds -1", 2, "seeds"),
    ("run digits --seeds two", 2, "--seeds"),
    ("run digits --seeds 1.5", 2, "--seeds"),
    ("run digits --workers 0", 2, "at least 1 worker, got 0"),
    ("run digits --workers -3", 2, "at least 1 worker, got -3"),
    ("run digits --workers many", 2, "--workers"),
    ("run digits --threads 0", 2, "--threads"),
    ("run digits --threads x", 2, "--threads"),
    ("run digits --devices 0", 2, "devices"),
    ("run digits --devices -1", 2, "devices"),
    ("run digits --num-nodes 0", 2, "num_nodes"),
    ("run digits --precision 7-true", 2, "precision"),
    ("run digits --strategy nonsense", 2, "strategy"),
    ("run digits --ray local --workers 2", 2, "--workers"),
    ("run digits --set", 2, "requires an argument"),
    ("run digits --set falcon", 2, "falcon"),
    ("run digits --set =3", 2, "=3"),
    ("run digits --set falcon.epoch=1", 2, "Did you mean 'epochs'"),
    ("run digits --set falcon.epochs=0", 2, "got 0"),
    ("run digits --set falcon.epochs=many", 2, "many"),
    ("run digits --set falcon.epochs=1e3", 2, "epochs"),
    ("run digits --set falcon.share=nan", 2, "calibration_fraction"),
    ("run digits --set falcon.seed=1", 2, "--seeds"),
    ("run digits --set batch_size=0", 2, "batch_size"),
    ("run digits --set batch_siz=5", 2, "Did you mean 'batch_size'"),
    ("run digits --set shifts=[]", 2, "shifts"),
    ("run digits --set shifts=shear", 2, "shifts"),
    ("run digits --set shifts=[\"sheer\"]", 2, "Did you mean 'shear'"),
    ("run digits --set dataset=digit", 2, "Did you mean 'digits'"),
    ("run digits --set dataset.path=x", 2, "path"),
    ("run digits --set model=lennet", 2, "Did you mean 'lenet'"),
    ("run digits --set model.width=3", 2, "width"),
    ("run digits --set model={name=\"vgg19\",width=\"wide\"}", 2, "width"),
    ("run digits --set model={name=\"vgg19\",width=0}", 2, "width"),
    (f"run digits --set falcon.epochs={'9' * 5000}", 2, "epochs"),
    (f"run digits --set falcon.epochs={'[' * 20000}", 2, "epochs"),
    ("run digits --set centre=top", 2, "centre"),
    ("run digits --set name=../up", 2, "name"),
    ("run digits --set examples=0", 2, "examples"),
    ("run digits --set levels=-1", 2, "levels"),
    ("run digits --set stored=x --set shifts=[\"cifar10_c:fog\"]", 1, "data at x"),
    ("run digits --set outliers=[\"mnits\"]", 2, "mnist"),
    ("run digits --set dataset={name=\"sensors\",windows=2}", 1, "expected images"),
    ("run digits --set shifts=[\"sensor_offset\"]", 1, "sensor shifts"),
    ("run mnist --offline", 1, "switched off"),
    ("run digits --out a_file", 1, "a_file"),
    ("run digits --out a_file/below", 1, "a_file"),
    ("run digits --out /proc/nowhere", 1, "cannot write to the output folder"),
    ("run good/out", 2, "good/out"),
    ("run a_file", 2, "a_file"),
    ("tune digits", 2, "Missing option"),
    ("tune digits --method falcon", 2, "Missing option"),
    ("tune digits --method falkon --trials 1", 2, "Did you mean 'falcon'"),
    ("tune digits --method falcon --trials 0", 2, "at least 1 trial"),
    ("tune digits --method falcon --trials x", 2, "--trials"),
    ("tune digits --method falcon --trials 1 --workers 0", 2, "1 worker"),
    ("tune digits --method falcon --trials 1 --seed -1", 2, "seed"),
    ("tune digits --method falcon --trials 1 --storage nowhere", 2, "nowhere"),
    ("tune digits --method falcon --trials 1 --storage x://y", 2, "x://y"),
    ("tune digits --method falcon --trials 1 --out a_file", 1, "a_file"),
    ("tune digits --method falcon --trials 1 --set search.falcon.epoch=[1]", 2, "epoch"),
    ("tune digits --method falcon --trials 1 --set tuning.epoch=1", 2, "epochs"),
    ("tune mnist --method falcon --trials 1 --offline", 1, "switched off"),
    ("run digits --set *.epoch=1", 2, "no method of the study has the setting 'epoch'"),
    ("run digits --set *.epochs=none", 2, "epochs"),
    ("run digits --measure never", 2, "--measure"),
    ("measure", 2, "Missing argument"),
    ("measure nowhere --shifts shear", 2, "finished runs, got nowhere"),
    ("measure a_file --shifts shear", 2, "finished runs, got a_file"),
    ("measure good --shifts shear", 2, "finished runs, got good"),
    ("measure good/out --shifts shear", 1, "does not say which run it is"),
    ("measure good/out --shifts shear --seeds 0", 2, "--seeds"),
    ("report", 2, "Missing argument"),
    ("report nowhere", 1, "nowhere"),
    ("report a_file", 1, "a_file"),
    ("report good", 1, "study.json"),
    ("report good/out --figures gif", 2, "gif"),
    ("report good/out extra", 2, "extra"),
    ("compare good/out", 2, "two or more"),
    ("compare good/out good/out", 2, "given 2 times"),
    ("compare good/out nowhere", 1, "nowhere"),
    ("compare good/out a_file", 1, "a_file"),
    ("compare good/out bad/out/no-name", 1, "bad/out/no-name"),
    ("compare good/out bad/out/no-name --out good/out", 2, "choose another folder"),
    ("compare good/out bad/out/no-name --out a_file", 2, "a_file"),
    ("compare good/out bad/out/no-name --figures bmp", 2, "bmp"),
    ("score", 2, "Missing argument"),
    ("score good/p.csv --labels lable", 2, "Did you mean 'label'"),
    ("score good/p.csv --probabilities q_", 2, "q_"),
    ("score good/p.csv --logits", 2, "logit_"),
    ("score good/p.csv --groups site", 2, "site"),
    ("score good/p.csv --metric eec", 2, "Did you mean 'ece'"),
    ("score good/p.csv --bins 0", 2, "got 0"),
    ("score good/p.csv --bins -4", 2, "got -4"),
    ("score good/p.csv --bins ten", 2, "--bins"),
    ("score good/p.csv --out a_file", 1, "a_file"),
    ("score good/p.csv --out a_file/below", 1, "a_file"),
    ("score good/study.toml", 2, "study.toml"),
    ("score good", 2, "good"),
    ("predict", 2, "Missing argument"),
    (f"predict {MODEL}", 2, "Missing argument"),
    (f"predict {MODEL} good/study.toml", 2, "study.toml"),
    (f"predict {MODEL} good/rows.csv --out o.txt", 2, "o.txt"),
    (f"predict {MODEL} good/rows.csv --out good/rows.csv", 2, "another file than the input"),
    (f"predict {MODEL} good/rows.csv --out a_file/o.csv", 2, "a_file"),
    (f"predict {MODEL} good/rows.csv --out good", 2, "good"),
    (f"predict {MODEL} good/rows.csv --reject-below 8", 2, "got 8"),
    (f"predict {MODEL} good/rows.csv --reject-below -0.1", 2, "got -0.1"),
    (f"predict {MODEL} good/rows.csv --reject-below nan", 2, "nan"),
    (f"predict {MODEL} good/rows.csv --reject-below x", 2, "--reject-below"),
    (f"predict {MODEL} good/rows.csv --risk 0", 2, "got 0"),
    (f"predict {MODEL} good/rows.csv --risk 1", 2, "got 1"),
    ("predict good/plain.safetensors good/rows.csv --risk 0.1", 1, "without validation data"),
    (f"predict {MODEL} good/rows.csv --risk 0.1 --reject-below 0.5", 2, "got both"),
    (f"predict {MODEL} bad/pictures/none", 1, "images"),
    (f"predict {MODEL} good/p.csv", 2, "p.csv"),
    ("predict good/weights_alone.safetensors good/rows.csv", 1, "weights_alone.safetensors"),
    ("predict good/out good/rows.csv", 1, "weights.safetensors"),
    ("shift", 2, "Missing argument"),
    ("shift digit", 2, "Did you mean 'digits'"),
    ("shift digits --shifts sheer", 2, "Did you mean 'shear'"),
    ("shift digits --shifts sensor_offset", 1, "sensor shifts"),
    ("shift digits --examples 0", 2, "--examples"),
    ("shift digits --examples x", 2, "--examples"),
    ("shift digits --out picture.jpg", 2, "PNG"),
    ("shift digits --out a_file/o.png", 2, "a_file"),
    ("shift mnist --offline", 1, "switched off"),
    ("shift npz", 2, "path"),
    ("list metods", 2, "Did you mean 'methods'"),
    ("list os:path", 2, "unknown list"),
    ("data what", 2, "No such command"),
    ("data fetch", 2, "Missing argument"),
    ("data fetch minst", 2, "Did you mean 'mnist'"),
    ("data fetch mnist --offline", 1, "switched off"),
    ("data verify minst", 2, "Did you mean 'mnist'"),
]  # fmt: skip


def commands() -> Iterator[Case]:
    for line, code, words in COMMANDS:
        arguments = tuple(line.split())
        known = arguments[0] in ("run", "tune", "measure", "report", "compare", "score", "predict",
                                 "shift", "list", "data")  # fmt: skip
        surface = f"Command lines: {arguments[0] if known else 'no command'}"
        yield Case(surface, line, code, words, arguments)


# study files that are TOML and say what cannot be: what is replaced, by what, words
STUDIES: list[tuple[str, str, str]] = [
    ('name = "small"', "", "name"),
    ('name = "small"', 'name = ""', "name"),
    ('name = "small"', 'name = "../up"', "name"),
    ('name = "small"', 'name = "a/b"', "name"),
    ('name = "small"', "name = 3", "name"),
    ('dataset = "digits"', "", "dataset"),
    ('dataset = "digits"', "dataset = 3", "dataset"),
    ('dataset = "digits"', "dataset = {}", "name"),
    ('dataset = "digits"', 'dataset = {name = "digits", what = 1}', "what"),
    ('dataset = "digits"', 'dataset = {name = "mnist", path = 3}', "path"),
    ('dataset = "digits"', 'dataset = "os:system"', "os:system"),
    ('model = "lenet"', "", "model"),
    ('model = "lenet"', "model = []", "model"),
    ('model = "lenet"', 'model = "builtins:eval"', "builtins:eval"),
    ('model = "lenet"', 'model = "math:pi"', "math:pi"),
    ('shifts = ["shear", "xshift"]', "", "shifts"),
    ('shifts = ["shear", "xshift"]', "shifts = []", "shifts"),
    ('shifts = ["shear", "xshift"]', "shifts = [1]", "shifts"),
    ('shifts = ["shear", "xshift"]', 'shifts = ["sheer"]', "Did you mean 'shear'"),
    ('shifts = ["shear", "xshift"]', 'shifts = ["shear", "shear"]', "named twice"),
    ('shifts = ["shear", "xshift"]', 'shifts = ["shear", "contrast"]', "named twice"),
    ('shifts = ["shear", "xshift"]', 'shifts = ["shear |"]', "unknown shift ''"),
    ('selection_shifts = ["contrast"]', 'selection_shifts = "contrast"', "selection_shifts"),
    ('model = "lenet"', 'model = "lenet"\nbatch_size = 0', "batch_size"),
    ('model = "lenet"', 'model = "lenet"\nbatch_size = 1.5', "batch_size"),
    ('model = "lenet"', 'model = "lenet"\nbatch_size = true', "batch_size"),
    ('model = "lenet"', 'model = "lenet"\nseeds = -1', "seeds"),
    ('model = "lenet"', 'model = "lenet"\nwhat = 1', "what"),
    ('model = "lenet"', 'model = "lenet"\noutliers = ["nobody"]', "nobody"),
    ('model = "lenet"', 'model = "lenet"\nsmoke = 3', "smoke"),
    ('model = "lenet"', 'model = "lenet"\nvariants = 3', "variants"),
    ('model = "lenet"', 'model = "lenet"\nsweeps = {"falcon.share" = 3}', "sweeps"),
    ('model = "lenet"', 'model = "lenet"\nmodel = "lenet"', "TOML"),
    ("[methods.falcon]", "[methods.falkon]", "Did you mean 'falcon'"),
    ("[methods.falcon]", '[methods."../up"]', "methods"),
    ("[methods.falcon]", '[methods."os:system"]', "os:system"),
    ("[methods.falcon]", '[methods."a.b"]\nmethod = "dropout"\n[methods."a:b"]\nmethod = "falcon"',
     "the same files"),
    ("[methods.falcon]", '[methods.mine]\nmethod = "dropot"', "Did you mean 'dropout'"),
    ("[methods.falcon]", '[methods.svi]\nmethod = "falcon"', "svi"),
    ("[methods.falcon]", "[methods.temperature]", "base"),
    ("[methods.falcon]", '[methods.temperature]\nbase = "nobody"', "nobody"),
    ("[methods.falcon]", '[methods.temperature]\nbase = "temperature"', "itself"),
    ("[methods.falcon]", "[methods.falcon]\nseed = 1", "--seeds"),
    ("[methods.falcon]", "[methods.falcon]\ncalibration_fraction = 2.0", "calibration_fraction"),
    ("[methods.falcon]", "[methods.falcon]\nshare = nan", "calibration_fraction"),
    ("[methods.falcon]", "[methods.falcon]\nentropy_weight = inf", "entropy_weight"),
    ("[methods.dropout]", "[methods.other]\nmethod = \"dropout\"", "needs the method dropout"),
    ("[methods.falcon]", "[variants.default]\n[methods.falcon]", "variants.default"),
    ("[methods.falcon]", '[variants."a/b"]\n"falcon.share" = 0.1\n[methods.falcon]', "variants"),
    ("[methods.falcon]", "[variants.v]\nshifts = [\"shear\"]\n[methods.falcon]", "shifts"),
    ("[methods.falcon]", "[variants.v]\n\"falcon.epsilon\" = 1\n[methods.falcon]", "epsilons"),
    ("[methods.falcon]", "[methods", "TOML"),
    ("epochs = 1\nkeep", f"epochs = {'9' * 5000}\nkeep", "TOML"),
    ("epochs = 1\nkeep", f"epochs = {'[' * 20000}\nkeep", "TOML"),
    ("epochs = 1\nkeep", "epochs = 1979-05-27\nkeep", "epochs"),
]  # fmt: skip


def studies() -> Iterator[Case]:
    for number, (old, new, words) in enumerate(STUDIES):
        assert old in STUDY
        text = STUDY.replace(old, new)
        title = f"{number}: {new[:40]!r} for {old!r}"
        call = partial(read_study, text, "study.toml")
        yield Case("Study files: what they say", title, 2, words, call=call)


def folders() -> Iterator[Case]:
    """Output folders with a damaged file, as the report reads them."""
    for number, name in enumerate(FOLDER_FILES):
        for kind in ("missing", "empty", "noise", "list"):
            if kind == "missing" and name == "study.json":
                words = "there is no study.json"
            else:
                words = f"bad/out/{number}-{kind}/{name}"
            arguments = ("report", f"bad/out/{number}-{kind}")
            yield Case("Output folders: report", f"{name}, {kind}", 1, words, arguments)
    for name in STUDY_JSON:
        words = "of_nobody" if name == "a-shift-without-rows" else f"bad/out/{name}/study.json"
        yield Case("Output folders: report", name, 1, words, ("report", f"bad/out/{name}"))
        compared = ("compare", "good/out", f"bad/out/{name}")
        yield Case("Output folders: compare", name, 1, words, compared)


# values that no method takes, by setting
SETTINGS: dict[str, list[Any]] = {
    "epochs": [0, -1, 1.5, "many", None, True],
    "learning_rate": [0, -1.0, float("nan"), float("inf"), "high"],
    "keep": ["worst", 3],
    "devices": [0, -1, "two"],
    "seed": [-1, 2**40, "x"],
    "what": [1],
}


def methods() -> Iterator[Case]:
    """Every method with every wrong value of the settings that it has."""
    for method, kind in METHODS.items():
        known = kind.__dataclass_fields__  # type: ignore[attr-defined]
        for setting, values in SETTINGS.items():
            for value in values if setting in known or setting == "what" else ():
                call = partial(make_method, {"method": method, setting: value})
                title = f"{method}, {setting}={value!r}"
                yield Case("Python: settings of methods", title, 2, setting, call=call)


GOOD = [[0.8, 0.2], [0.3, 0.7]]
NAN = float("nan")
# probabilities and labels that are no predictions
PREDICTIONS: list[tuple[Any, Any, str]] = [
    ([[0.8, 0.3]], [0], "sum to 1"),
    ([[1.2, -0.2]], [0], "probabilities"),
    ([[NAN, 0.5]], [0], "probabilities"),
    ([0.8, 0.2], [0], "shape"),
    ([[0.8, 0.2]], [2], "label"),
    ([[0.8, 0.2]], [-2], "label"),
    ([[0.8, 0.2]], [0, 1], "label"),
    ([[0.8, 0.2]], [[0]], "label"),
    ([[0.8, 0.2]], [0.5], "label"),
    ([[1.0]], [0], "class"),
]


def python() -> Iterator[Case]:
    """Calls of the Python interface."""
    surface = "Python: predictions"
    for number, (probabilities, labels, words) in enumerate(PREDICTIONS):
        call = partial(falconcal.Predictions.from_probabilities, probabilities, labels)
        yield Case(surface, f"{number}: {probabilities!r}, {labels!r}", 1, words, call=call)
    good = falconcal.Predictions.from_probabilities(GOOD, [0, 1])
    for title, arguments, words in (
        ("bins 0", {"bins": 0}, "got 0"),
        ("bins -1", {"bins": -1}, "got -1"),
        ("an unknown metric", {"metric": "eec", "groups": ["a", "b"]}, "ece"),
        ("groups of another length", {"groups": ["a"]}, "one group per example"),
    ):
        code = 1 if "length" in title else 2
        assess = partial(falconcal.assess, good, **arguments)
        yield Case(surface, f"assess, {title}", code, words, call=assess)
    yield from _names()
    yield from _own_files()


def _names() -> Iterator[Case]:
    """Names that are in no table."""
    finders: dict[str, Any] = {
        "load_dataset": falconcal.load_dataset,
        "load_test": falconcal.data.load_test,
        "find_study": falconcal.studies.find_study,
        "find_ladder": falconcal.shifts.find_shift,
        "find_outliers": falconcal.shifts.find_outliers,
        "find_stored": falconcal.shifts.find_stored,
    }
    for finder, find in finders.items():
        for name in ("", "nobody", "no.where:nobody", "..", "a b"):
            words = name.partition(":")[0].strip(".")
            yield Case("Python: names", f"{finder}({name!r})", 2, words, call=partial(find, name))


def _own_files() -> Iterator[Case]:
    """The readers of files, called from Python."""
    readers: dict[str, Any] = {
        "p.csv": falconcal.read_predictions,
        "model.safetensors": falconcal.load,
        "own.npz": lambda path: falconcal.load_dataset("npz", path=path),
        "own.csv": lambda path: falconcal.load_dataset("csv", path=path),
        "study.toml": falconcal.studies.find_study,
    }
    codes = {"p.csv": (1, 2), "study.toml": (2, 2)}
    for name, read in readers.items():
        content, place = codes.get(name, (1, 1))
        for kind in (*spoilings(name), *IN_ITS_PLACE):
            path, surface = f"bad/{kind}/{name}", f"Python: {name}"
            code = content if kind in (*SPOILED, "unreadable") else place
            expected = OTHERWISE.get((surface, kind), (code, path))
            yield Case(surface, kind, *expected, call=partial(read, path))


def contents() -> Iterator[Case]:
    """Files that are whole and say what cannot be: predictions in three formats, model files."""
    for name, (_, words) in TABLES.items():
        for ending in ("csv", "parquet", "npz"):
            path = f"bad/tables/{name}.{ending}"
            one_array = ending == "npz"  # which is there, with too few columns
            expected = path if one_array else words
            yield Case("Predictions: what they say", path, 2, expected, ("score", path))
    for name, (_, words) in FACTS.items():
        path = f"bad/metadata/{name}.safetensors"
        arguments = ("predict", path, "good/rows.csv")
        code = 2 if name in USAGE_FACTS else 1
        yield Case("Model files: what they say", name, code, words, arguments)


def cases() -> list[Case]:
    """Return the whole table."""
    made = [*files(), *commands(), *studies(), *folders(), *methods(), *python(), *contents()]
    assert len({str(case) for case in made}) == len(made), "two have the same title"
    return made
