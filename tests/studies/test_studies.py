"""Studies: read, changed, run, taken up again, refused; every file whole or absent."""

import inspect
import json
import re
import shutil
import tomllib
import warnings
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import polars
import pytest
import torch

from benchmarks.choose_methods import chosen, for_study
from falconcal.core.method import build_untrained
from falconcal.data import TensorBatches
from falconcal.data.augmentation import DEGREES, SHIFT
from falconcal.data.subsets import sample_indices
from falconcal.errors import UsageError, UserError
from falconcal.inference.model_file import load
from falconcal.io.output_folder import DEFAULT_VARIANT, RUN_FILES, RunKey
from falconcal.methods import METHODS, Evidential, Falcon, L2Dropout, make_method
from falconcal.metrics import POOLED, metrics_without
from falconcal.models import LeNet, make_model
from falconcal.models.predict import predict
from falconcal.recalibration import Temperature, VectorScaling
from falconcal.report import load_results, write_report
from falconcal.report.results import Results, open_scores
from falconcal.shifts import Shift, affine_shifts
from falconcal.shifts.affine import AFFINE_FAMILIES
from falconcal.studies import STUDIES, Study, building, find_study
from falconcal.studies import run as one_run
from falconcal.studies.building import train_method
from falconcal.studies.events import Event
from falconcal.studies.run import StudyContext
from falconcal.studies.run_files import load_weights, save_weights
from falconcal.studies.runner import do_runs
from falconcal.studies.store import Store
from falconcal.training import CollapseWarning
from falconcal.training.criterion import MATCHED_STEPS, ShiftedValidation
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network
from tests.helpers.small_studies import TEXT, Silent, everything
from tests.helpers.stripes import load_stripes, read_own


def study(*changes: str) -> Study:
    return read_own(TEXT, "test", changes)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_of_the_table_is_valid_and_named_after_its_file(name: str) -> None:
    found = find_study(name)
    assert found.name == name
    assert found.title
    assert found.resolved()["methods"]
    assert not set(found.shifts) & set(found.selection_shifts)


@pytest.mark.parametrize("name", ["cifar10", "cifar10_small"])
def test_shifts_within_the_augmentation_are_named_by_the_study(name: str) -> None:
    """What training turns and moves by reaches the first level of rotations and translations."""
    found = find_study(name)
    reached = {"rot": DEGREES, "xsh": SHIFT * 32, "ysh": SHIFT * 32, "xys": SHIFT * 32}
    strengths = {family: levels for family, levels, *_ in AFFINE_FAMILIES}
    for shift in found.shifts:
        most = reached.get(shift[:3], 0.0)
        away = [min(level, 360 - level) for level in strengths[shift]]
        within = [number for number, strength in enumerate(away) if 0 < strength <= most]
        assert within == ([1] if shift in found.note.split("lies within")[0] else [])
    assert "level 1" in found.note
    assert found.resolved()["note"] == found.note
    assert "note" not in find_study("digits").resolved()  # folders of before it stay valid


def test_digits_follows_the_protocol() -> None:
    digits = find_study("digits")
    assert len(digits.shifts) == 9
    assert (digits.dataset, digits.model, list(digits.methods)) == (
        "digits",
        "lenet",
        ["dropout", "falcon", "falcon_shift_temperature"],
    )
    assert set(digits.selection_shifts) == {"gaussian_noise", "gaussian_blur", "contrast"}


def test_digits_methods_has_the_protocol_of_digits_and_every_method_that_was_measured() -> None:
    """The first method inside is the one that is named; a new method need not be measured there."""
    digits, everything = find_study("digits"), find_study("digits_methods")
    for name in ("dataset", "model", "batch_size", "centre", "shifts"):
        assert getattr(everything, name) == getattr(digits, name)
    kinds = {type(everything.method(name)) for name in everything.methods}
    assert kinds <= {inspect.unwrap(make) for make in METHODS.values()}
    rows = polars.read_parquet(ROOT / "results" / "digits_methods" / "rows.parquet")
    assert set(rows["method"]) <= set(everything.methods)
    for name in ("falcon", "evidential"):
        base = everything.method(name)
        assert everything.method(f"{name}_temperature") == Temperature(base=base)


def test_the_settings_of_digits_methods_are_those_that_the_trials_chose() -> None:
    everything = find_study("digits_methods")
    lines = (ROOT / "results" / "digits_methods" / "trials.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines]
    for name in {row["method"] for row in trials} & set(everything.methods):
        assert for_study(chosen(trials, name)) == everything.methods[name], name


@pytest.mark.end_to_end
def test_a_run_writes_everything_and_rows_as_documented(tmp_path: Path) -> None:
    do_runs(study("seeds=2"), tmp_path, Silent())
    rows = polars.read_parquet(tmp_path / "rows.parquet")
    assert rows.columns == [
        "study", "variant", "method", "seed", "shift", "level", "metric", "value", "examples",
    ]  # fmt: skip
    assert set(rows["variant"]) == {DEFAULT_VARIANT}
    assert set(rows["seed"]) == {0, 1}
    assert set(rows["metric"]) == {*metrics_without("all_classes"), *POOLED}
    assert set(rows.filter(polars.col("level").is_null())["metric"]) == set(POOLED)
    keys = ["method", "seed", "shift", "level", "metric"]
    assert rows.select(keys).is_duplicated().sum() == 0
    run = RunKey(DEFAULT_VARIANT, "falcon", 1).folder(tmp_path)
    assert sorted(path.name for path in run.iterdir()) == [
        "history.parquet", "run.json", "scores.parquet", "settings.json", "weights.safetensors",
    ]  # fmt: skip
    settings = json.loads((run / "settings.json").read_text())
    assert settings["settings"]["epochs"] == 12
    assert settings["settings"]["entropy_weight"] == 0.1
    origin = json.loads((run / "run.json").read_text())
    assert origin["training_seconds"] > 0
    assert origin["threads"] == torch.get_num_threads()
    assert (tmp_path / "examples" / "shear.png").exists()


@pytest.mark.end_to_end
def test_a_study_without_the_reference_runs_where_no_epoch_is_chosen(tmp_path: Path) -> None:
    head, _, rest = TEXT.partition("[methods.dropout]")
    text = head + rest[rest.index("[methods.falcon]") :]
    alone = read_own(text, "test", ["falcon.epochs=1", "falcon.keep=last"])
    assert do_runs(alone, tmp_path, Silent()) == {}
    assert Store(tmp_path).runs() == [RunKey(DEFAULT_VARIANT, "falcon", 0)]


@pytest.mark.end_to_end
def test_stored_weights_give_the_stored_scores(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    folder = RunKey(DEFAULT_VARIANT, "dropout", 0).folder(tmp_path)
    model = load_weights(folder / "weights.safetensors", small_network())
    scores = predict(model, load_stripes().test).scores()
    stored = polars.read_parquet(folder / "scores.parquet").filter(level=0)
    assert scores.confidence.tolist() == pytest.approx(stored["confidence"].to_list())


@pytest.mark.end_to_end
def test_running_again_skips_what_is_complete_and_adds_what_is_not(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    before = everything(tmp_path / "runs")
    again = Silent()
    do_runs(study("seeds=2"), tmp_path, again)
    assert again.skipped == [RunKey(DEFAULT_VARIANT, "dropout", 0)]
    assert len(again.begun) == 3
    after = everything(tmp_path / "runs")
    assert {path: after[path] for path in before} == before
    assert len(polars.read_parquet(tmp_path / "rows.parquet").unique(["method", "seed"])) == 4


@pytest.mark.end_to_end
def test_interrupted_and_taken_up_again_gives_the_rows_of_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    do_runs(study(), tmp_path / "whole", Silent())
    with pytest.raises(KeyboardInterrupt):
        do_runs(study(), tmp_path / "broken", Silent(stop_at=2))
    assert Store(tmp_path / "broken").runs() == [RunKey(DEFAULT_VARIANT, "dropout", 0)]
    assert not list((tmp_path / "broken" / "runs").rglob(".seed-*"))
    do_runs(study(), tmp_path / "broken", Silent())
    whole, repaired = (
        polars.read_parquet(tmp_path / name / "rows.parquet") for name in ("whole", "broken")
    )
    assert repaired.equals(whole)


@pytest.mark.end_to_end
def test_the_reference_is_the_same_trained_alone_or_taken_from_its_run(tmp_path: Path) -> None:
    do_runs(study(), tmp_path / "both", Silent())
    do_runs(study(), tmp_path / "alone", Silent(), ["falcon"])
    both, alone = (
        polars.read_parquet(tmp_path / name / "rows.parquet").filter(method="falcon")
        for name in ("both", "alone")
    )
    assert alone.equals(both)
    assert (tmp_path / "alone" / "reference" / "weights.safetensors").exists()


def test_seeds_give_other_weights_and_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    dataset = load_stripes()

    class Spy:
        def fit(self, model: torch.nn.Module, train: TensorBatches, validation: object) -> object:  # noqa: ARG002
            seen.append((hash(tuple(model[2].weight.flatten().tolist())), train.seed))  # type: ignore[index]
            return model

    monkeypatch.setattr(
        "falconcal.studies.building.make_named",
        lambda _, __, ___, seed, ____: small_network(seed=seed),
    )
    for seed in (0, 1):
        train_method(study(), dataset, seed, Spy(), dataset.validation.batches())  # type: ignore[arg-type]
    (first, _), (second, _) = seen
    assert first != second
    assert [order for _, order in seen] == [0, 1]


def test_the_epoch_is_chosen_on_selection_shifts_alone(tmp_path: Path) -> None:
    """Nothing that is tested may choose."""
    made, dataset = study(), load_stripes()
    place = StudyContext(made, Store(tmp_path))
    validation = place.validation(made.method("falcon"))
    assert isinstance(validation, ShiftedValidation)
    assert place.validation(made.method("falcon", seed=1)) is validation  # made once
    assert set(validation.families) == {"clean", "fgsm", *made.selection_shifts}
    assert torch.equal(validation.clean.inputs, dataset.validation.inputs)


def test_crafted_families_choose_where_none_is_named(tmp_path: Path) -> None:
    changes = ("criterion='matched_levels'", "selection_shifts=[]")
    made = study(*changes)
    validation = StudyContext(made, Store(tmp_path)).validation(made.method("falcon"))
    assert isinstance(validation, ShiftedValidation)
    assert set(validation.families) == {"elastic_warp", "patch_shuffle", "occlusion"}
    # what is tested never chooses
    tested = study(*changes, "shifts=['shear', 'occlusion']")
    assert [one.name for one in tested.criterion_shifts("image")] == [
        "elastic_warp",
        "patch_shuffle",
    ]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("training_examples", [1_000, 9_000, 45_000, 55_000])
def test_judging_an_epoch_costs_at_most_a_tenth_of_training_it(
    name: str, training_examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass per level against three per training example; 200 examples judge at least."""
    found = find_study(name)
    if found.criterion_name == "fixed_levels":
        return  # those judge as they did when they were measured
    given: list[tuple[int, int]] = []

    def record(_: object, __: object, shifts: list[Shift], examples: int, ___: object) -> None:
        given.append((1 + MATCHED_STEPS * len(shifts), examples))

    monkeypatch.setattr(building, "shifted_validation", record)
    kinds = {"newsgroups": "text", "sensors": "signal", "sequential": "sequence"}
    kind = kinds.get(name.split("_")[0], "image")
    dataset = SimpleNamespace(modality=kind, train=range(training_examples), validation=None)
    building.study_validation(found, dataset, small_network())  # type: ignore[arg-type]
    ((levels, examples),) = given
    assert levels > 1
    assert examples == 200 or levels * examples <= 0.1 * 3 * training_examples


def test_folders_of_before_the_new_criterion_are_of_the_old_one() -> None:
    assert "criterion" not in study().resolved()
    assert study("criterion='matched_levels'").resolved()["criterion"] == "matched_levels"


def test_so_many_examples_choose_the_epoch_and_all_of_them_calibrate(tmp_path: Path) -> None:
    made, whole = study("selection_examples=7"), load_stripes().validation
    validation = StudyContext(made, Store(tmp_path)).validation(made.method("falcon"))
    assert isinstance(validation, ShiftedValidation)
    assert torch.equal(validation.clean.labels, whole.labels[sample_indices(len(whole), 7)])
    assert all(len(level) == 7 for levels in validation.families.values() for level in levels)
    assert torch.equal(torch.cat([labels for _, labels in validation]), whole.labels)


def test_the_centre_of_the_study_reaches_its_shifts() -> None:
    images = torch.rand(2, 1, 28, 28)
    for centre in ("keras", "middle"):
        (shear, *_) = study(f"centre={centre}").all_shifts()
        assert isinstance(shear, Shift)
        expected = affine_shifts(centre)["shear"].at(images, 4)
        assert torch.equal(shear.at(images, 4), expected)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_run_that_lacks_a_file_is_done_again(tmp_path: Path, name: str) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    rows = (tmp_path / "rows.parquet").read_bytes()
    (RunKey(DEFAULT_VARIANT, "dropout", 0).folder(tmp_path) / name).unlink()
    again = Silent()
    do_runs(study(), tmp_path, again, ["dropout"])
    assert len(again.begun) == 1
    assert (tmp_path / "rows.parquet").read_bytes() == rows


@pytest.mark.parametrize("name", RUN_FILES)
@pytest.mark.parametrize("content", [b"", b"PAR1 cut off", b"[1]"])
def test_a_run_with_a_damaged_file_is_not_complete(
    tmp_path: Path, name: str, content: bytes
) -> None:
    fake_run(tmp_path, "dropout")
    store, run = Store(tmp_path), RunKey(DEFAULT_VARIANT, "dropout", 0)
    assert store.complete(run)
    assert store.runs() == [run]
    (run.folder(tmp_path) / name).write_bytes(content)
    assert not store.complete(run)
    assert store.runs() == []
    assert store.damaged(run) == run.folder(tmp_path) / name


def fake_run(directory: Path, method: str) -> None:
    """Write the files of a run as far as the store looks at them."""
    run = RunKey(DEFAULT_VARIANT, method, 0)
    folder = run.folder(directory)
    folder.mkdir(parents=True)
    save_weights(folder / "weights.safetensors", small_network())
    for name in ("history.parquet", "scores.parquet"):
        polars.DataFrame({"epoch": [1]}).write_parquet(folder / name)
    (folder / "settings.json").write_text(json.dumps(one_run.run_settings(study(), run)))
    (folder / "run.json").write_text("{}")


def read_everything(directory: Path) -> Results:
    """Read what a report reads."""
    results = load_results(directory)
    for run in results.runs:
        open_scores(run)
    return results


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b""),
        ("run.json", b"[1]"),
        ("history.parquet", b"PAR1 cut off"),
        ("settings.json", b"{"),
        ("scores.parquet", b""),
        ("study.json", b"{"),
        ("study.json", b'{"name": 3}'),
        ("rows.parquet", b""),
    ],
)
def test_what_a_report_advises_on_a_damaged_file_works(
    trained: Path, name: str, content: bytes
) -> None:
    """Followed to the letter: the folder that is named is removed, the study is run again."""
    rows = (trained / "rows.parquet").read_bytes()
    other = everything(RunKey(DEFAULT_VARIANT, "dropout", 0).folder(trained))
    file = next(trained.rglob(name)) if name in ("study.json", "rows.parquet") else None
    file = file or RunKey(DEFAULT_VARIANT, "falcon", 0).folder(trained) / name
    file.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(file))) as refused:
        read_everything(trained)
    named = re.search(r"remove the folder (\S+),", str(refused.value))
    if name in RUN_FILES:
        assert named is not None
        assert Path(named[1]) == file.parent  # one run, nothing else
        shutil.rmtree(named[1])
    else:
        assert named is None
    assert "run the study again" in str(refused.value)
    again = Silent()
    assert do_runs(study(), trained, again) == {}
    assert again.begun == ([RunKey(DEFAULT_VARIANT, "falcon", 0)] if name in RUN_FILES else [])
    assert read_everything(trained).series == ("dropout", "falcon")
    assert (trained / "rows.parquet").read_bytes() == rows
    assert everything(RunKey(DEFAULT_VARIANT, "dropout", 0).folder(trained)) == other


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["run.json", "weights.safetensors"])
def test_running_again_does_a_damaged_run_again_and_says_so(trained: Path, name: str) -> None:
    (RunKey(DEFAULT_VARIANT, "falcon", 0).folder(trained) / name).write_bytes(b"")
    events: list[Event] = []
    do_runs(study(), trained, events.append)
    assert [event.run.method for event in events if event.kind == "begun"] == ["falcon"]
    note = Event(
        RunKey(DEFAULT_VARIANT, "falcon", 0), "note", f"{name} is damaged, so the run is repeated"
    )
    assert note in events


@pytest.mark.end_to_end
def test_a_damaged_run_that_is_not_asked_for_is_not_dropped_in_silence(trained: Path) -> None:
    file = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(trained) / "run.json"
    file.write_bytes(b"")
    before = everything(trained)
    with pytest.raises(UserError, match=re.escape(f"remove the folder {file.parent},")):
        do_runs(study(), trained, Silent(), ["dropout"])
    assert everything(trained) == before


@pytest.mark.end_to_end
def test_a_damaged_reference_is_trained_again(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["falcon"])
    rows = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "reference" / "weights.safetensors").write_bytes(b"")
    shutil.rmtree(RunKey(DEFAULT_VARIANT, "falcon", 0).folder(tmp_path))
    assert do_runs(study(), tmp_path, Silent(), ["falcon"]) == {}
    assert (tmp_path / "rows.parquet").read_bytes() == rows


@pytest.mark.end_to_end
def test_without_its_study_file_a_folder_still_refuses_other_settings(trained: Path) -> None:
    (trained / "study.json").write_text("{")
    before = everything(trained)
    for change in ("falcon.epochs=3", "batch_size=10"):
        with pytest.raises(UserError, match="made with other settings"):
            do_runs(study(change), trained, Silent())
    head, _, rest = TEXT.partition("[methods.falcon]")
    with pytest.raises(UserError, match="has no falcon, seed 0: run that study"):
        do_runs(read_own(head, "test"), trained, Silent())
    assert rest
    assert everything(trained) == before


@pytest.mark.end_to_end
def test_a_copy_of_a_run_under_another_name_is_no_run(trained: Path) -> None:
    folder = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(trained)
    shutil.copytree(folder, folder.with_name("seed-1"))
    assert len(Store(trained).runs()) == 2


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    do_runs(study(), folder, Silent())
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A folder with both methods of the study, to be damaged."""
    return Path(shutil.copytree(trained_once, tmp_path / "out"))


TWINS = """
[methods."tests.helpers.stripes:Raising"]
[methods."tests.helpers.stripes.Raising"]
method = "dropout"
"""


@pytest.mark.end_to_end
def test_two_methods_cannot_share_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"and 'tests\.helpers\.stripes\.Raising' would have"):
        read_own(TEXT + TWINS, "test")
    first = TEXT.replace("[methods.dropout]", '[methods."a.b"]\nmethod = "dropout"')
    second = first.replace('"a.b"', '"a:b"').partition("[methods.falcon]")[0]
    first = first.partition("[methods.falcon]")[0]
    assert do_runs(read_own(first, "test"), tmp_path, Silent()) == {}
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=r"'a\.b' and 'a:b' would have the same files"):
        do_runs(read_own(second, "test"), tmp_path, Silent())
    assert everything(tmp_path) == before


@pytest.mark.end_to_end
def test_a_refused_run_leaves_nothing_behind(tmp_path: Path) -> None:
    for change in ("dataset=tests.helpers.stripes:load_table", 'shifts=["cifar10_c:fog"]'):
        with pytest.raises(UserError):
            do_runs(study(change), tmp_path / "new" / "out", Silent())
        with pytest.raises(UserError):
            do_runs(study(change), tmp_path, Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.end_to_end
def test_a_refused_run_leaves_a_folder_of_runs_as_it_was(trained: Path) -> None:
    (trained / ".lock").unlink()  # as in a copy that somebody was given
    before = everything(trained)
    with pytest.raises(UserError, match="made with other settings"):
        do_runs(study("batch_size=10"), trained, Silent())
    assert everything(trained) == before


@pytest.mark.end_to_end
def test_a_failed_first_attempt_binds_nobody(tmp_path: Path) -> None:
    failed = do_runs(study("dropout.learning_rate=1e38"), tmp_path, Silent(), ["dropout"])
    assert "diverged" in failed[RunKey(DEFAULT_VARIANT, "dropout", 0)]
    do_runs(study(), tmp_path, Silent(), ["dropout"])


@pytest.mark.end_to_end
def test_a_shift_from_outside_goes_by_its_import_path(tmp_path: Path) -> None:
    do_runs(study('shifts=["tests.helpers.stripes:inverted"]'), tmp_path, Silent(), ["dropout"])
    rows = polars.read_parquet(tmp_path / "rows.parquet")
    assert "tests.helpers.stripes:inverted" in set(rows["shift"])
    assert write_report(tmp_path).exists()


@pytest.mark.end_to_end
def test_the_kept_epoch_is_recorded(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent())
    kept = {
        name: json.loads(
            (RunKey(DEFAULT_VARIANT, name, 0).folder(tmp_path) / "run.json").read_text()
        )
        for name in ("dropout", "falcon")
    }
    assert kept["dropout"]["kept_epoch"] is None
    assert 1 <= kept["falcon"]["kept_epoch"] <= 12


@pytest.mark.end_to_end
def test_shifts_that_do_not_fit_the_data_are_found_before_training(tmp_path: Path) -> None:
    spy = Silent()
    with pytest.raises(UserError, match="height, width"):
        do_runs(study("dataset=tests.helpers.stripes:load_table"), tmp_path, spy)
    assert spy.begun == []


@pytest.mark.end_to_end
def test_what_a_killed_process_left_half_done_is_done_again(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    left = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(tmp_path).parent / ".seed-0"
    left.mkdir(parents=True)
    (left / "weights.safetensors").write_bytes(b"half")
    do_runs(study(), tmp_path, Silent())
    assert not left.exists()
    assert len(Store(tmp_path).runs()) == 2


@pytest.mark.end_to_end
def test_a_folder_made_with_other_settings_is_refused_and_left_alone(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    before = everything(tmp_path)
    with pytest.raises(UserError, match=r"methods\.dropout\.epochs: 12 there, 5 now"):
        do_runs(study("dropout.epochs=5"), tmp_path, Silent())
    with pytest.raises(UserError, match=r"batch_size: 30 there, 10 now"):
        do_runs(study("batch_size=10"), tmp_path, Silent())
    assert everything(tmp_path) == before


@pytest.mark.end_to_end
def test_what_was_never_made_may_have_other_settings(tmp_path: Path) -> None:
    """Whoever tunes on while first methods run goes on in the same folder."""
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    do_runs(study("falcon.epochs=3"), tmp_path, Silent(), ["falcon"])
    with pytest.raises(UserError, match=r"methods\.falcon\.epochs: 3 there, 12 now"):
        do_runs(study(), tmp_path, Silent())


@pytest.mark.end_to_end
def test_what_was_begun_binds(tmp_path: Path) -> None:
    do_runs(study(), tmp_path, Silent(), ["dropout"])
    with Store(tmp_path).checkpointing(RunKey(DEFAULT_VARIANT, "falcon", 0)):
        dataset, falcon = load_stripes(), study().method("falcon")
        train_method(
            study(), dataset, 0, falcon, dataset.validation.batches()
        )  # and then was killed
    with pytest.raises(UserError, match=r"methods\.falcon\.epochs"):
        do_runs(study("falcon.epochs=3"), tmp_path, Silent())


@pytest.mark.end_to_end
def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with (
        Store(tmp_path).opened(study().resolved()),
        pytest.raises(UserError, match="another falconcal is at work"),
    ):
        do_runs(study(), tmp_path, Silent())


@pytest.mark.end_to_end
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to the output folder"):
        do_runs(study(), tmp_path / "file" / "out", Silent())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("falcon.epoch=3", "Falcon: unknown setting 'epoch'. Did you mean 'epochs'"),
        ("methods.falcon.epochs=0", "epochs should be greater than or equal to 1, got 0"),
        ("falcon.calibration_fraction=1.5", "calibration_fraction should be less than or equal"),
        ("falcon.entropy_weight=-1", "entropy_weight should be greater than or equal to 0"),
        ("falcon.epochs=many", "epochs should be a valid integer, got 'many'"),
        ("falcon.seed=3", "use --seeds"),
        ("falcn.epochs=3", "Did you mean 'falcon'"),
        ("batchsize=3", "Did you mean 'batch_size'"),
        ("epochs=3", "METHOD.SETTING=value"),
        ("methods.falcon=3", "METHOD.SETTING=value"),
        ("shifts.a.b=1", "the study has no method 'shifts.a'"),
        ('shifts=["shear", "shear"]', "named twice"),
        ('selection_shifts=["shear"]', "named twice"),
        ('shifts=["tests.helpers.stripes:load_table"]', "to be a falconcal.Shift"),
        ("dataset=tests.none:load", "cannot import dataset"),
        ('name="../escape"', "name String should match pattern"),
        ("self=1", "unknown setting"),
        ("falcon.epochs", "expects key=value"),
        ("dataset=digts", "unknown dataset 'digts'. Did you mean 'digits'"),
        ("model=lent", "unknown model 'lent'. Did you mean 'lenet'"),
        ('shifts=["sheer"]', "unknown shift 'sheer'. Did you mean 'shear'"),
        ("seeds=0", "seeds should be greater than or equal to 1"),
        ("model.width=3", "model tests.helpers.stripes:make_small: unknown setting 'width'"),
        ("dataset.name=digts", "unknown dataset 'digts'. Did you mean 'digits'"),
        ("dataset.name=3", '[dataset]: expected name = "NAME" beside its settings, got 3'),
        ("centre=left", "centre should be 'keras' or 'middle'"),
    ],
)
def test_wrong_changes_are_refused(change: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        study(change)
    assert message in str(error.value)


@pytest.mark.end_to_end
def test_a_network_has_settings_in_the_study_and_is_rebuilt_with_them(tmp_path: Path) -> None:
    changes = ("model=lstm", "model.hidden=7", "dropout.epochs=1", 'shifts=["shear"]')
    made = study(*changes)
    assert made.model == {"name": "lstm", "hidden": 7}
    weights = tmp_path / "weights.safetensors"
    save_weights(weights, make_model("lstm", load_stripes(), 9, hidden=7))
    begun = study(*changes, f"model.weights={weights}", "dropout.learning_rate=1e-30")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        do_runs(begun, tmp_path / "out", Silent(), ["dropout"])
    saved = load(
        RunKey(DEFAULT_VARIANT, "dropout", 0).folder(tmp_path / "out") / "weights.safetensors"
    )
    assert saved.metadata.arguments == {"hidden": 7}
    first = make_model("lstm", load_stripes(), 9, hidden=7)
    assert all(map(torch.equal, saved.model.parameters(), first.parameters()))


def test_right_changes_reach_the_method() -> None:
    changed = study(
        "falcon.gradient=exact", "falcon.epsilons=[0.0, 0.1]", "methods.dropout.epochs=3"
    )
    assert changed.resolved()["methods"]["falcon"]["gradient"] == "exact"
    assert changed.resolved()["methods"]["falcon"]["epsilons"] == [0.0, 0.1]
    assert changed.resolved()["methods"]["dropout"]["epochs"] == 3


def test_a_study_file_is_read_and_a_wrong_one_named(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TEXT)
    assert find_study(str(file), trust_code=["tests"]) == study()
    file.write_text("name = ")
    with pytest.raises(UsageError, match=r"own\.toml is not valid TOML"):
        find_study(str(file))
    with pytest.raises(UsageError, match="cannot read study"):
        find_study(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace('"tests.helpers.stripes:load_stripes"', "5")
        + "[smoke]\n'dataset.path' = 'x'\n",
        TEXT + "[methods.odd]\nmethod = {name = 'falcon'}\n",
        TEXT.replace('"tests.helpers.stripes:make_small"', "{name = 'lenet', weights = 5}"),
    ],
)
def test_what_is_no_name_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected|should be"):
        read_own(text, "test", smoke=True)


def test_an_unknown_method_in_the_file_is_refused() -> None:
    values = TEXT.replace("[methods.falcon]", "[methods.falkon]")
    with pytest.raises(UsageError, match="Did you mean 'falcon'"):
        read_own(values, "test")
    assert tomllib.loads(values)["methods"]["falkon"]


CALIBRATED = """
[methods.falcon_temperature]
method = "temperature"
base = "falcon"
[methods.vector]
base.method = "evidential"
base.epochs = 12
base.learning_rate = 0.01
"""


def calibrated(*changes: str, text: str = CALIBRATED) -> Study:
    return read_own(TEXT + text, "test", changes)


def test_a_base_is_a_method_of_the_study_or_a_table_of_its_own() -> None:
    made = calibrated("falcon.entropy_weight=3.0", "vector.base.form=log", "vector.penalty=0.5")
    falcon = Falcon(epochs=12, learning_rate=0.01, keep="best", entropy_weight=3.0, seed=4)
    assert made.method("falcon_temperature", 4) == Temperature(base=falcon)
    evidential = Evidential(epochs=12, learning_rate=0.01, form="log", seed=4)
    assert made.method("vector", 4) == VectorScaling(base=evidential, penalty=0.5)


def test_bases_lie_inside_one_another() -> None:
    text = '[methods.vector]\nbase = {method = "temperature", base = "dropout"}\n'
    dropout = L2Dropout(epochs=12, learning_rate=0.01)
    assert calibrated(text=text).method("vector") == VectorScaling(base=Temperature(base=dropout))


def test_the_resolved_study_says_all_settings_of_a_base_and_no_seed() -> None:
    methods = calibrated().resolved()["methods"]
    temperature = methods["falcon_temperature"]
    assert temperature["method"] == "temperature"
    assert temperature["base"] == {"method": "falcon", **methods["falcon"]}
    assert "method" not in methods["vector"]
    assert methods["vector"]["base"]["evidence"] == "relu"
    assert "seed" not in json.dumps(methods)


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_the_epoch_of_a_base_is_chosen_as_that_of_the_method_alone(tmp_path: Path) -> None:
    do_runs(calibrated(), tmp_path, Silent(), ["falcon", "falcon_temperature"])
    alone, inside = (
        polars.read_parquet(RunKey(DEFAULT_VARIANT, name, 0).folder(tmp_path) / "history.parquet")
        for name in ("falcon", "falcon_temperature")
    )
    assert alone.filter(polars.col("term") == "validation/criterion").height > 0
    assert inside.equals(alone)


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_a_base_that_the_study_has_trained_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run is the same to the bit as one that trains it."""
    text = CALIBRATED + '[methods.twice]\nmethod = "vector"\nbase = "falcon_temperature"\n'
    names, again = ["falcon_temperature", "twice"], tmp_path / "again"
    do_runs(calibrated("seeds=2", text=text), tmp_path / "alone", Silent(), names)
    do_runs(calibrated("seeds=2", text=text), again, Silent(), ["falcon"])
    monkeypatch.setattr("falconcal.training.loop.run_steps", None)  # no step can be taken
    do_runs(calibrated("seeds=2", text=text), again, Silent(), names)
    for name, seed in product(names, (0, 1)):
        run = RunKey(DEFAULT_VARIANT, name, seed)
        trained, loaded = run.folder(tmp_path / "alone"), run.folder(again)
        for file in ("scores.parquet", "history.parquet", "weights.safetensors", "settings.json"):
            assert (trained / file).read_bytes() == (loaded / file).read_bytes(), file
        origin = json.loads((loaded / "run.json").read_text())
        base = {"falcon_temperature": "falcon", "twice": "falcon_temperature"}[name]
        assert origin["base"] == f"{base}, seed {seed}"
        assert origin["kept_epoch"] == json.loads((trained / "run.json").read_text())["kept_epoch"]
        before = RunKey(DEFAULT_VARIANT, base, seed).folder(again) / "run.json"
        assert origin["training_seconds"] > json.loads(before.read_text())["training_seconds"]


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_a_base_with_other_settings_is_trained(tmp_path: Path) -> None:
    text = '[methods.vector]\nbase = {method = "dropout", epochs = 11, learning_rate = 0.01}\n'
    do_runs(calibrated(text=text), tmp_path, Silent(), ["dropout", "vector"])
    folder = RunKey(DEFAULT_VARIANT, "vector", 0).folder(tmp_path)
    assert "base" not in json.loads((folder / "run.json").read_text())
    assert polars.read_parquet(folder / "history.parquet")["epoch"].max() == 11


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning")
def test_a_calibrated_run_is_loaded_from_its_settings_and_weights(tmp_path: Path) -> None:
    spy = Silent()
    do_runs(calibrated(), tmp_path, spy, ["falcon_temperature", "vector"])
    for name in ("falcon_temperature", "vector"):
        folder = RunKey(DEFAULT_VARIANT, name, 0).folder(tmp_path)
        stored = json.loads((folder / "settings.json").read_text())
        method = make_method({"method": stored["method"], **stored["settings"]})
        structure = build_untrained(method, small_network(seed=9))
        model = load_weights(folder / "weights.safetensors", structure)
        scores = predict(model, load_stripes().test).scores()
        table = polars.read_parquet(folder / "scores.parquet").filter(level=0)
        assert scores.confidence.tolist() == pytest.approx(table["confidence"].to_list())
        assert len(polars.read_parquet(folder / "history.parquet")) > 0
    kept = RunKey(DEFAULT_VARIANT, "falcon_temperature", 0).folder(tmp_path) / "run.json"
    assert json.loads(kept.read_text())["kept_epoch"] is not None
    assert write_report(tmp_path).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[methods.temperature]", 'methods.temperature: expected base = "METHOD"'),
        ('[methods.temperature]\nbase = "falcn"', "Did you mean 'falcon'"),
        ('[methods.temperature]\nbase = "focal"', "unknown base of methods.temperature 'focal'"),
        ('[methods.temperature]\nbase = "temperature"', "leads back to itself"),
        ("[methods.temperature]\nbase = 3", "base should be an instance of Method, got 3"),
        ("[methods.temperature]\nbase.epochs = 3", 'expected method = "NAME"'),
        ("[methods.temperature]\nbase.method = 3", 'expected method = "NAME"'),
        ('[methods.temperature]\nbase.method = "falcn"', "Did you mean 'falcon'"),
        (
            '[methods.temperature]\nbase.method = "falcon"\nbase.seed = 1',
            "methods.temperature.base: seed is set by the run",
        ),
        ('[methods.temperature]\nbase.method = "vector"', 'expected base = "METHOD"'),
        ('[methods.mine]\nmethod = "falcn"', "Did you mean 'falcon'"),
        ('[methods.focal]\nmethod = "falcon"', "is the name of another method"),
        ('[methods."../mine"]\nmethod = "falcon"', "String should match pattern"),
    ],
)
def test_a_wrong_base_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        calibrated(text=text)
    assert message in str(error.value)


def test_a_base_of_the_study_is_changed_where_it_stands() -> None:
    with pytest.raises(UsageError, match="the base is 'falcon', which is not a table"):
        calibrated("falcon_temperature.base.epochs=3")
    with pytest.raises(UsageError, match="the study has no method 'isotonic'"):
        calibrated("isotonic.base.epochs=3")


def test_keeping_the_best_epoch_inside_a_base_needs_the_reference_method() -> None:
    text = TEXT.partition("[methods.dropout]")[0]
    base = '[methods.vector]\nbase = {method = "falcon", keep = "best"}\n'
    with pytest.raises(UsageError, match=r"methods\.vector: .* needs the method dropout"):
        read_own(text + base, "test")


def test_keeping_the_best_epoch_needs_the_reference_method() -> None:
    without = TEXT.replace("[methods.dropout]", "[methods.falcon]").partition("[methods.falcon]")[0]
    with pytest.raises(UsageError, match="needs the method dropout"):
        read_own(f'{without}[methods.falcon]\nkeep = "best"\n', "test")


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"weights\.safetensors"):
        load_weights(tmp_path / "weights.safetensors", LeNet())


@pytest.mark.end_to_end
def test_a_run_that_was_stopped_after_training_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(one_run, "score_under_shift", stop)
        with pytest.raises(KeyboardInterrupt):
            do_runs(study(), tmp_path, Silent(), ["dropout"])
    assert list(tmp_path.glob("checkpoints/**/*.safetensors"))
    with monkeypatch.context() as patched:
        patched.setattr("falconcal.training.loop.run_steps", stop)
        do_runs(study("seeds=1"), tmp_path, Silent(), ["dropout"])
    assert not (tmp_path / "checkpoints").exists()


def test_the_dataset_may_be_a_table_with_settings_of_its_own() -> None:
    table = TEXT.replace('dataset = "tests.helpers.stripes:load_stripes"', "")
    table += '[dataset]\nname = "mnist"\npath = "somewhere"\n'
    assert read_own(table, "test").dataset == {"name": "mnist", "path": "somewhere"}
    changed = study("dataset=mnist", "dataset.path=elsewhere")
    assert changed.dataset == {"name": "mnist", "path": "elsewhere"}
    with pytest.raises(UsageError, match=r"Did you mean 'path'"):
        study("dataset=mnist", "dataset.paht=x")
    with pytest.raises(UsageError, match=r"name"):
        read_own(table.replace('name = "mnist"', ""), "test")
