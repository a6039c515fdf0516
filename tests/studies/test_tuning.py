"""Tuning: what is searched, what is kept, what is chosen, and by how many workers."""

import json
import math
import os
import re
import subprocess
import time
import tomllib
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from falconcal.cli.terminal import show_family_agreement, show_trial, show_trials
from falconcal.data import Examples
from falconcal.data.texts import Texts
from falconcal.errors import UsageError, UserError
from falconcal.io.trial_rows import best_of, is_eligible
from falconcal.methods import METHODS, Adversarial, Falcon, L2Dropout, MCDropout
from falconcal.report.charts.figure import drawn
from falconcal.report.charts.trial_charts import (
    best_cells,
    family_agreement,
    history_figure,
    rank_correlations,
    read_trials,
)
from falconcal.studies import STUDIES, Study, find_study
from falconcal.studies.tuning import need_optuna
from falconcal.studies.tuning.budget import read_tuning, sample_for_trial
from falconcal.studies.tuning.choice import check_chosen, write_best
from falconcal.studies.tuning.spaces import (
    Range,
    Space,
    check_search,
    find_space,
    points,
    study_point,
)
from falconcal.studies.tuning.target import find_target
from falconcal.training import EpochRecord
from tests.helpers.small_data import stripes
from tests.helpers.stripes import MEETING, TRUST, read_own

optuna = pytest.importorskip("optuna")
from optuna.trial import TrialState  # noqa: E402

from falconcal.recalibration import ShiftTemperature  # noqa: E402
from falconcal.studies.building import load_study_dataset, make_study_model  # noqa: E402
from falconcal.studies.run_files import load_weights  # noqa: E402
from falconcal.studies.tuning.budget import budgeted  # noqa: E402
from falconcal.studies.tuning.search import Search, make_trial_context, tune  # noqa: E402
from falconcal.studies.tuning.trial import PruningCallback, penalised_criterion, trial_method  # noqa: E402
from falconcal.studies.tuning.trial_store import TrialStore  # noqa: E402
from falconcal.training.criterion import Requirements, validation_criterion  # noqa: E402
from tests.helpers.command import COMMAND  # noqa: E402
from tests.helpers.paths import STRIPES  # noqa: E402

TEXT = STRIPES.read_text()
SHORT = ("tuning.epochs=2", "search.dropout.learning_rate=[1e-6, 0.003, 0.03]")


def study(*changes: str) -> Study:
    return read_own(TEXT, "test", changes)


def search(
    folder: Path, *changes: str, method: str = "dropout", trials: int = 3, **rest: Any
) -> Search:
    return Search(study(*SHORT, *changes), method, trials, folder, **rest)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows
    ]


# what is searched


def test_the_default_values_are_the_papers() -> None:
    space = find_space(study(), find_target(study(), "falcon"))
    assert {name: values.plain() for name, values in space.items()} == {
        "learning_rate": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3],
        "dropout": [0, 0.5],
        "l2_weight": [0, 0.001, 0.005, 0.01, 0.05],
        "entropy_weight": [0.5, 1, 5, 10, 15, 30, 50, 100],
        "calibration_weight": [0.25, 0.1, 0.01, 0.001, 0.0001, 0.000001],
    }


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_searched(name: str) -> None:
    kind = METHODS[name]
    base = "\nbase = 'dropout'" if "base" in kind.__dataclass_fields__ else ""  # type: ignore[attr-defined]
    given = read_own(TEXT + f"\n[methods.tuned]\nmethod = '{name}'{base}", "test")
    space = find_space(given, find_target(given, "tuned"))
    assert {"learning_rate", "l2_weight"} <= set(space)


def test_mc_dropout_is_never_without_dropout() -> None:
    given = read_own(TEXT + "[methods.mc_dropout]", "test")
    assert find_space(given, find_target(given, "mc_dropout"))["dropout"].plain() == [0.2, 0.5]


def test_an_ensemble_is_tuned_through_the_member_it_has_by_itself() -> None:
    given = read_own(TEXT + "[methods.ensemble]\nsize = 3", "test")
    target = find_target(given, "ensemble")
    assert isinstance(target.method, Adversarial)
    stated = {"base": {"method": "adversarial", "l2_weight": 0.1, "keep": "best"}}
    assert target.table({"l2_weight": 0.1}) == stated


def test_the_reference_keeps_its_last_epoch_whatever_the_study_says() -> None:
    given = L2Dropout(epochs=9, keep="best", patience=2, seed=3)
    trained = trial_method(given, read_tuning({"epochs": 4}), 0, {}, kept="last")
    assert trained == L2Dropout(epochs=4, keep="last", seed=0)


def test_a_trial_draws_as_many_samples_as_its_budget_says() -> None:
    few = read_tuning({"samples": 3})
    assert trial_method(MCDropout(samples=50), few, 0, {}) == MCDropout(samples=3, keep="best")
    assert trial_method(L2Dropout(), few, 0, {}) == L2Dropout(keep="best")


@pytest.mark.parametrize("name", STUDIES)
def test_the_tables_of_every_study_are_valid(name: str) -> None:
    found = find_study(name)
    check_search(found)
    read_tuning(found.tuning)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["search.falkon.share=[1]"], r"no method 'falkon'. Did you mean 'falcon'"),
        (["search.falcon.entropy_wait=[1]"], r"no setting 'entropy_wait'. Did you mean 'entropy_w"),
        (
            ["search.falcon.share=[0.5, 2.0]"],
            r"search.falcon.share: .*less than or equal to 1.*2.0",
        ),
        (["search.falcon.share=[]"], r"expected a list of values, or a range such as"),
        (["search.falcon.share=0.5"], r"search.falcon.share: expected a list of values.*got 0.5"),
        (["search.falcon.share={low=0.1}"], r"expected numbers, low below high"),
        (["search.falcon.share={low=0.5, high=0.1}"], r"expected numbers, low below high"),
        (["search.falcon.share={low=0.1, hihg=0.5}"], r"unknown key 'hihg'.*Did you mean 'high'"),
        (["search.falcon.share={low=0.0, high=0.5, log=true}"], r"begins above 0"),
        (["search.falcon.share={low=0.5, high=1.5}"], r"less than or equal to 1"),
        (["search.falcon.epochs=[5]"], r"not searched.*epochs in \[tuning\]"),
        (["search.falcon.seed=[5]"], r"not searched.*--seed"),
        (["search={falcon={}}"], r"unknown setting"),
        (["tuning.epoch=3"], r"\[tuning\] Tuning: unknown setting 'epoch'. Did you mean 'epochs'"),
        (["tuning.examples=0"], r"greater than or equal to 1"),
        (["tuning.sampler='grid'"], r"'random' or 'tpe'"),
    ],
)
def test_a_wrong_search_is_refused_before_anything_is_made(
    changes: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(Search(study(*changes), "dropout", 2, tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_a_wrong_method_or_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'falcon'"):
        tune(search(tmp_path, method="falkon"))
    with pytest.raises(UsageError, match="at least 1 trial"):
        tune(search(tmp_path, trials=0))
    with pytest.raises(UsageError, match="cannot open the storage bogus"):
        tune(search(tmp_path, storage="bogus"))
    assert not list(tmp_path.iterdir())
    alone = TEXT.replace("methods.dropout", "methods.mixup").replace('keep = "best"', "")
    with pytest.raises(UsageError, match="needs the method dropout"):
        tune(Search(read_own(alone, "test"), "mixup", 2, tmp_path))


def test_points_begin_with_the_studys_own_and_none_comes_twice() -> None:
    given = study("search.dropout.learning_rate=[1e-3, 1e-2]", "search.dropout.dropout=[0, 0.5, 1]")
    target = find_target(given, "dropout")
    space = find_space(given, target)
    own = study_point(target, space)
    assert own == {"learning_rate": 0.01, "dropout": None}
    drawn = list(points(space, own, seed=0))
    assert drawn[0] == own
    assert len(drawn) == 7  # all of the grid, and the own one beside it
    assert len({tuple(point.values()) for point in drawn}) == 7
    assert list(islice(points(space, own, seed=0), 4)) == drawn[:4]
    assert list(points(space, own, seed=1)) != drawn
    inside = {"learning_rate": 0.01, "dropout": 0.0}  # 0 in the list is the same
    assert len(list(points(space, inside, seed=0))) == 6


def test_ranges_are_drawn_inside_and_evenly_in_the_logarithm() -> None:
    given = study(
        "search.dropout.learning_rate={low=1e-4, high=1e-2, log=true}",
        "search.dropout.accumulate={low=2, high=4}",
    )
    target = find_target(given, "dropout")
    space = find_space(given, target)
    drawn = list(islice(points(space, study_point(target, space), seed=0), 400))
    assert drawn[0]["accumulate"] != 1  # the own value is outside, so it is not tried first
    assert {point["accumulate"] for point in drawn} == {2, 3, 4}
    rates = sorted(point["learning_rate"] for point in drawn)
    assert 1e-4 <= rates[0] < rates[-1] <= 1e-2
    assert rates[200] == pytest.approx(1e-3, rel=0.3)  # the middle of the logarithm
    assert Range(1, 3, log=True).whole


def test_whole_ranges_have_an_end() -> None:
    space: Space = {"accumulate": Range(1, 3), "bins": Range(5, 6)}
    assert len(list(points(space, {"accumulate": 1, "bins": 5}, seed=0))) == 6


@pytest.mark.end_to_end
def test_a_method_that_left_the_study_leaves_its_trials_and_no_best(tmp_path: Path) -> None:
    tune(search(tmp_path, method="falcon", trials=1))
    fewer = read_own(without_falcon(TEXT), "test", SHORT)
    rows = tune(Search(fewer, "dropout", 1, tmp_path))
    assert {row["method"] for row in rows} == {"falcon", "dropout"}
    assert set(tomllib.loads((tmp_path / "best.toml").read_text())["methods"]) == {"dropout"}


def without_falcon(text: str) -> str:
    """Return a study without the table of FALCON and what rests on it."""
    tables = re.split(r"\n(?=\[)", text)
    return "\n".join(table for table in tables if "falcon" not in table)


def test_a_budget_keeps_the_texts() -> None:
    raw = [f"text {number}" for number in range(30)]
    texts = Texts(raw, lambda lines: torch.tensor([[int(line.split()[1])] for line in lines]))
    part = Examples(torch.arange(30)[:, None], torch.arange(30) % 3, tokens=30, texts=texts)
    few = sample_for_trial(part, 9)
    assert few.texts is not None
    assert [f"text {int(number)}" for number in few.inputs[:, 0]] == list(few.texts.raw)


def test_a_method_with_a_base_is_tuned_through_it() -> None:
    given = read_own(
        TEXT + "[methods.by_name]\nmethod = 'temperature'\nbase = 'falcon'\n"
        "[methods.by_table]\nmethod = 'temperature'\nbase.method = 'falcon'\nbase.share = 0.5",
        "test",
        ["search.by_table.share=[0.25, 1.0]"],
    )
    assert find_target(given, "by_name").name == "falcon"
    target = find_target(given, "by_table")
    assert (target.name, target.depth) == ("by_table", 1)
    assert isinstance(target.method, Falcon)
    assert study_point(target, find_space(given, target)) == {"share": 0.5}


def test_values_stand_where_the_settings_do() -> None:
    text = TEXT + "[methods.t]\nmethod = 'temperature'\nbase = 'falcon'"
    with pytest.raises(UsageError, match=r"t is tuned through falcon, write \[search.falcon\]"):
        check_search(read_own(text, "test", ["search.t.share=[1]"]))


def test_a_budget_takes_the_same_examples_every_time() -> None:
    examples = stripes(30)
    few = sample_for_trial(examples, 9)
    assert len(few) == 9
    assert few.inputs.equal(sample_for_trial(examples, 9).inputs)
    assert not few.labels.equal(examples.labels[:9])
    assert sample_for_trial(examples, None) is examples
    assert sample_for_trial(examples, 99) is examples


# what is chosen


def test_whatever_is_accurate_enough_comes_before_whatever_is_not() -> None:
    required = Requirements(0.97, clean_ece=0.03)
    knows, worse, least = (
        penalised_criterion({"accuracy": 0.98, "criterion": 0.4}, required),
        penalised_criterion({"accuracy": 0.9, "criterion": 0.0}, required),
        penalised_criterion({"accuracy": 0.1, "criterion": 0.0}, required),
    )
    assert knows == 0.4
    assert knows < worse < least
    assert worse == pytest.approx(1.07)
    timid = {"accuracy": 0.98, "criterion": 0.0, "clean_ece": 0.05}
    assert penalised_criterion(timid, required) == pytest.approx(1.02)


def row(trial: int, criterion: float, accuracy: float, **rest: Any) -> dict[str, Any]:
    fixed = {"study": "s", "method": "falcon", "state": "complete", "required_accuracy": 0.9}
    return {
        **fixed,
        "trial": trial,
        "criterion": criterion,
        "accuracy": accuracy,
        "settings": {},
        **rest,
    }


def test_the_best_is_the_lowest_criterion_of_the_accurate_ones() -> None:
    rows = [
        row(0, 0.3, 0.95),
        row(1, 0.01, 0.5),  # knows nothing
        row(2, 0.2, 0.9),
        row(3, 0.1, 0.99, state="pruned"),
        {"method": "falcon", "trial": 4, "state": "failed", "reason": "diverged"},
        row(5, 0.5, 0.95, method="dropout"),
    ]
    assert {name: best["trial"] for name, best in best_of(rows).items()} == {
        "falcon": 2,
        "dropout": 5,
    }
    assert best_cells(rows)[0] == ["falcon", "5", "2", "1", "1", "0.2000", "0.9000", "0.9000"]
    check_chosen(rows, "falcon")
    with pytest.raises(
        UserError, match=r"trial 1, has validation accuracy 0.500 \(at least 0.900\)\."
    ):
        check_chosen(rows[1:2], "falcon")
    timid = row(6, 0.1, 0.95, clean_ece=0.3, allowed_clean_ece=0.05)
    with pytest.raises(UserError, match=r"trial 6, has clean ECE 0.300 \(at most 0.050\)\."):
        check_chosen([rows[1], timid], "falcon")
    with pytest.raises(UserError, match=r"no trial was completed \(diverged\)"):
        check_chosen(rows[4:5], "falcon")


def test_a_family_that_ranks_trials_against_the_others_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = [(0.1, 0.2, 0.9), (0.2, 0.1, 0.8), (0.3, 0.4, 0.7), (0.4, 0.3, 0.6)]
    assert family_agreement(
        [row(n, 0.2, 0.95, families={"a": 0.5, "b": 0.5}) for n in range(4)]
    ) == {
        "a": 0.0,
        "b": 0.0,
    }
    families = [dict(zip(("warp", "shuffle", "lines"), one, strict=True)) for one in values]
    rows = [row(n, 0.2, 0.95, families=one) for n, one in enumerate(families)]
    rows.append(row(4, 0.2, 0.1, families={"warp": 0.9, "shuffle": 0.0, "lines": 0.0}))
    found = family_agreement(rows)
    # lines has ranks 4 3 2 1, warp + shuffle 0.3, 0.3, 0.7, 0.7: -4 / (sqrt(5) * 2)
    assert found["lines"] == pytest.approx(-0.8944, abs=1e-4)
    assert family_agreement(rows[:3]) == {}
    show_family_agreement(found)
    said = capsys.readouterr().out
    assert "lines ranks the trials against the other families" in said


def test_the_rank_correlation_by_hand() -> None:
    tested = [0.1, 0.4, 0.2, 0.3]  # ranks 1 4 2 3 against 1 2 3 4: 1 - 6 * 6 / (4 * 15)
    rows = [
        row(n, 0.1 + 0.1 * n, 0.95, test={"micro_ece": value}) for n, value in enumerate(tested)
    ]
    rows.append(row(4, 0.0, 0.1, test={"micro_ece": 0.9}))
    # with the one that is not accurate: ranks 2 3 4 5 1 against 1 4 2 3 5
    found = rank_correlations(rows)
    assert [count for _, count in found.values()] == [5, 4]
    assert found["falcon, accurate enough"][0] == pytest.approx(0.4)
    assert found["falcon"][0] == pytest.approx(1 - 6 * (1 + 1 + 4 + 4 + 16) / (5 * 24))
    assert rank_correlations([row(0, 0.1, 0.9)]) == {}


def test_the_best_settings_are_a_file_that_a_run_takes(tmp_path: Path) -> None:
    deep = "[methods.calibrated]\nmethod = 'temperature'\nbase.method = 'falcon'\nbase.epochs = 7\n"
    given = read_own(TEXT + deep, "test")
    chosen = {"directions": ["adversarial", "gaussian"], "share": 0.5, "dropout": None}
    rows = [
        row(0, 0.1, 0.95, settings=chosen),
        row(0, 0.1, 0.95, settings=chosen, method="calibrated"),
    ]
    write_best(
        tmp_path, "s", rows, {name: find_target(given, name) for name in ("falcon", "calibrated")}
    )
    taken = read_own(TEXT + deep, "test", ["falcon.share=0.25"], tmp_path / "best.toml")
    falcon, inside = taken.method("falcon"), taken.method("calibrated").base  # type: ignore[attr-defined]
    assert isinstance(falcon, Falcon)
    assert (falcon.directions, falcon.keep) == (("adversarial", "gaussian"), "best")
    assert falcon.calibration_fraction == 0.25  # what the command says goes before
    assert (falcon.epochs, falcon.learning_rate) == (12, 0.01)  # as the study has them
    assert (inside.calibration_fraction, inside.epochs, inside.keep) == (0.5, 7, "best")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[methods.falkon]\nshare = 1", "Did you mean 'falcon'"),
        ("[methods.falcon]\nepsilon = 1", "Did you mean 'epsilons'"),
        ("[methods.falcon.base]\nmethod = 'dropout'", "unknown setting 'base'"),
        ("name = 'x'", r"expected tables \[methods.NAME\] and nothing else"),
        ("[methods]\nfalcon = 3", "expected a table of settings, got 3"),
        ("[methods", "not valid TOML"),
    ],
)
def test_a_wrong_file_of_settings_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_own(TEXT, "test", (), tmp_path / "best.toml")
    with pytest.raises(UsageError, match="cannot read settings"):
        read_own(TEXT, "test", (), tmp_path / "none.toml")


def test_tables_for_tuning_change_no_run() -> None:
    assert study(*SHORT).resolved() == study().resolved()
    assert study(*SHORT).tuning == {"epochs": 2}


# trials


@pytest.mark.end_to_end
def test_trials_from_the_first_to_the_best(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    rows = tune(search(tmp_path, trials=4), on_trial=reported.append)
    assert rows == reported == read_trials(tmp_path)
    assert [one["trial"] for one in rows] == [0, 1, 2, 3]
    assert rows[0]["settings"] == {"learning_rate": 0.01}  # the study's own
    assert {one["settings"]["learning_rate"] for one in rows} == {0.01, 1e-6, 0.003, 0.03}
    for one in rows:
        families = one["families"]
        assert list(families) == ["clean", "fgsm", "contrast"]
        assert one["criterion"] == pytest.approx(sum(families.values()) / 3)
        assert one["epoch"] in (1, 2)
        assert "test" not in one
    # no more than one in three is right without training: never chosen, whatever its criterion
    hopeless = next(one for one in rows if one["settings"]["learning_rate"] == 1e-6)
    assert not is_eligible(hopeless)
    best = best_of(rows)["dropout"]
    chosen = tomllib.loads((tmp_path / "best.toml").read_text())
    assert chosen == {"methods": {"dropout": {**best["settings"], "keep": "best"}}}
    assert b"accurate enough" in drawn([history_figure(rows)])["history.svg"]


@pytest.mark.end_to_end
def test_trials_keep_their_weights_unless_told_otherwise(tmp_path: Path) -> None:
    (row,) = tune(search(tmp_path / "kept", trials=1))
    context = make_trial_context(search(tmp_path / "kept", trials=1), load_study_dataset(study()))
    file = tmp_path / "kept/trials/dropout/trial-0.safetensors"
    model = load_weights(file, make_study_model(study(), load_study_dataset(study())))
    judged = validation_criterion(model, context.validation)
    assert judged.criterion == pytest.approx(row["criterion"])
    tune(search(tmp_path / "none", "tuning.keep_weights=false", trials=1))
    assert not (tmp_path / "none/trials").exists()


CALIBRATED = """
[methods.warm]
method = "shift_temperature"
base = "dropout"
perturbed = ["contrast", "gaussian_noise", "wave"]
stored = 60
[search.warm]
clean_share = [0.5, 0.9]
"""


@pytest.mark.end_to_end
def test_a_calibrator_with_a_search_of_its_own_is_judged_by_what_it_has_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = (*SHORT, "criterion=matched_levels", 'selection_shifts=["contrast", "wave"]')
    given = read_own(TEXT + CALIBRATED, "test", changes)
    fits: list[tuple[tuple[str, ...], int]] = []
    fit = ShiftTemperature.fit

    def noting(self: ShiftTemperature, model: Any, train: Any, validation: Any) -> Any:
        fits.append((self.leave_out, sum(len(labels) for _, labels in validation)))
        return fit(self, model, train, validation)

    monkeypatch.setattr(ShiftTemperature, "fit", noting)
    rows = tune(Search(given, "warm", 2, tmp_path))
    assert [set(row["families"]) for row in rows] == [{"contrast", "wave"}] * 2
    count = len(load_study_dataset(study()).validation)
    halves = [(count + 1) // 2, count // 2]  # those that are fitted on, one half and the other
    assert fits[:4] == [(("contrast",), n) for n in halves[::-1]] + [
        (("wave",), n) for n in halves[::-1]
    ]
    assert fits[4] == ((), count)
    assert len({row["accuracy"] for row in rows}) == 1  # one base for both trials
    base = (tmp_path / "trials/warm/base.safetensors").stat().st_mtime_ns
    tune(Search(given, "warm", 3, tmp_path))
    assert (tmp_path / "trials/warm/base.safetensors").stat().st_mtime_ns == base


@pytest.mark.end_to_end
def test_the_same_seed_gives_the_same_trials_also_in_two_sittings(tmp_path: Path) -> None:
    whole = tune(search(tmp_path / "whole"))
    tune(search(tmp_path / "parts", trials=1))
    assert len(read_trials(tmp_path / "parts")) == 1
    reported: list[dict[str, Any]] = []
    parts = tune(search(tmp_path / "parts"), on_trial=reported.append)
    assert timeless(parts) == timeless(whole)
    assert [one["trial"] for one in reported] == [1, 2]
    assert tune(search(tmp_path / "parts"), on_trial=reported.append) == parts
    assert len(reported) == 2  # all was done


def test_the_reference_of_trials_is_the_same_trained_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, and laid out in memory as training does: another order rounds differently."""
    references: list[torch.nn.Module] = []
    monkeypatch.setattr(
        "falconcal.studies.tuning.search.study_validation",
        lambda _, __, reference, ___: references.append(reference),
    )
    given = search(tmp_path, "model=lenet")
    make_trial_context(given, budgeted(load_study_dataset(given.study), given.tuning))
    make_trial_context(given, budgeted(load_study_dataset(given.study), given.tuning))
    trained, read = (dict(model.named_parameters()) for model in references)
    for name, weight in trained.items():
        assert torch.equal(read[name], weight), name
        assert read[name].stride() == weight.stride(), name
    kernels = [weight for weight in read.values() if weight.ndim == 4]
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.end_to_end
def test_another_method_shares_the_reference_and_other_settings_are_refused(tmp_path: Path) -> None:
    falcon = "search.falcon.entropy_weight=[1.0, 5.0]"
    tune(search(tmp_path, falcon, trials=1))
    reference = tmp_path / "reference" / "weights.safetensors"
    made = reference.stat().st_mtime_ns
    rows = tune(search(tmp_path, falcon, method="falcon", trials=1, also_score_test=True))
    assert reference.stat().st_mtime_ns == made
    assert [one["method"] for one in rows] == ["dropout", "falcon"]
    assert rows[0]["required_accuracy"] == rows[1]["required_accuracy"]
    assert set(rows[1]["test"]) == {"accuracy", "ece", "micro_ece", "macro_ece"}
    with pytest.raises(UserError, match=r"tuning.epochs: 2 there, 3 now"):
        tune(search(tmp_path, falcon, "tuning.epochs=3"))
    with pytest.raises(UserError, match=r"search.falcon"):
        tune(search(tmp_path))
    other = search(tmp_path, falcon, method="again", trials=1)
    again = {**other.study.methods["dropout"], "method": "dropout"}
    methods = {**other.study.methods, "again": again}
    searched = {**other.study.search, "again": {"learning_rate": [0.01]}}
    study = replace(other.study, methods=methods, search=searched)
    assert {one["method"] for one in tune(replace(other, study=study))} >= {"falcon", "again"}


@pytest.mark.end_to_end
def test_scoring_on_test_data_changes_nothing_that_is_judged(tmp_path: Path) -> None:
    plain = tune(search(tmp_path / "plain", trials=1))
    scored = tune(search(tmp_path / "scored", trials=1, also_score_test=True))
    for one, other in zip(timeless(plain), timeless(scored), strict=True):
        assert other.pop("test")["micro_ece"] > 0
        assert one == other


@pytest.mark.end_to_end
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_values_that_are_lists_are_tried_too(tmp_path: Path, sampler: str) -> None:
    """Optuna knows numbers and text alone: the study's own list and those that are drawn."""
    lists = 'search.falcon.directions=[["gaussian"], ["adversarial", "mixup"]]'
    rows = tune(search(tmp_path, lists, f"tuning.sampler={sampler}", method="falcon", trials=3))
    assert {row["state"] for row in rows} == {"complete"}
    tried = [row["settings"]["directions"] for row in rows]
    assert tried[0] == ["adversarial"]
    assert all(one in (["adversarial"], ["gaussian"], ["adversarial", "mixup"]) for one in tried)
    best = tomllib.loads((tmp_path / "best.toml").read_text())
    assert best["methods"]["falcon"]["directions"] in tried


@pytest.mark.end_to_end
def test_a_trial_that_fails_is_kept_with_its_reason_and_others_go_on(tmp_path: Path) -> None:
    rows = tune(search(tmp_path, "search.dropout.learning_rate=[1e30]", trials=2))
    assert [one["state"] for one in rows] == ["complete", "failed"]
    assert "training diverged" in rows[1]["reason"]
    assert rows[1]["settings"] == {"learning_rate": 1e30}


@pytest.mark.end_to_end
def test_hopeless_trials_are_pruned(tmp_path: Path) -> None:
    rates = ", ".join(str(rate) for rate in (0.008, 0.009, 0.011, 1e-6, 2e-6, 3e-6))
    changes = (f"search.dropout.learning_rate=[{rates}]", "tuning.epochs=4")
    rows = tune(search(tmp_path, *changes, trials=7))
    ended = [one for one in rows if one["state"] == "pruned"]
    assert ended
    assert all(one["settings"]["learning_rate"] < 1e-5 for one in ended)
    assert all(one["epoch"] < 4 and "behind the median" in one["reason"] for one in ended)
    assert best_of(rows)["dropout"]["settings"]["learning_rate"] > 1e-5


def test_a_model_that_knows_nothing_does_not_set_the_median() -> None:
    reported: list[float] = []

    class Trial:
        def report(self, value: float, step: int) -> None:  # noqa: ARG002
            reported.append(value)

        def should_prune(self) -> bool:
            return False

    pruning = PruningCallback(Trial(), Requirements(0.9))  # type: ignore[arg-type]
    pruning(EpochRecord(1, 3, {}, {"accuracy": 0.3, "criterion": 0.01}))
    pruning(EpochRecord(2, 3, {}))  # not judged
    pruning(EpochRecord(3, 3, {}, {"accuracy": 0.95, "criterion": 0.2}, kept=3))
    assert reported == [pytest.approx(1.6), 0.2]
    assert pruning.kept() == 3


@pytest.mark.end_to_end
def test_optunas_sampler_is_seeded_too(tmp_path: Path) -> None:
    changes = (
        "search.dropout.learning_rate={low=1e-3, high=1e-1, log=true}",
        "tuning.sampler='tpe'",
    )
    one, other = (tune(search(tmp_path / name, *changes, trials=2)) for name in ("one", "other"))
    assert timeless(one) == timeless(other)
    rates = [row["settings"]["learning_rate"] for row in one]
    assert rates[0] == 0.01
    assert len(set(rates)) == 2
    assert all(1e-3 <= rate <= 1e-1 for rate in rates)


# workers


MEETS = TEXT.replace(
    "[methods.falcon]", "[methods.meeting]\nmethod = 'tests.helpers.stripes:Meeting'"
)
OTHERS = ("search.meeting.l2_weight=[0.1, 0.2, 0.3, 0.4, 0.5]", "tuning.epochs=1")


@pytest.mark.end_to_end
def test_two_workers_on_one_storage_lose_no_trial_and_do_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = read_own(MEETS, "test", OTHERS)
    alone = tune(Search(given, "meeting", 6, tmp_path / "alone", prune=False))
    (tmp_path / "met").mkdir()
    monkeypatch.setenv(MEETING, str(tmp_path / "met"))
    reported: list[dict[str, Any]] = []
    both = tune(Search(given, "meeting", 6, tmp_path / "both", prune=False), 2, reported.append)
    assert timeless(both) == timeless(alone)
    assert sorted(one["trial"] for one in reported) == list(range(6))
    trial_store = TrialStore(tmp_path / "both", None, "stripes")
    trials = trial_store.trials_of("meeting").get_trials()
    assert len(trials) == 6
    assert len({trial.user_attrs["worker"] for trial in trials}) == 2
    assert not list((tmp_path / "both" / ".workers").iterdir())
    trial_store.close()


@pytest.mark.end_to_end
def test_a_killed_trial_is_put_down_and_done_again(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(MEETS)
    met = tmp_path / "met"
    met.mkdir()
    words = [str(tmp_path / "study.toml"), "--method", "meeting", "--trials", "2", "--out"]
    words += [str(tmp_path / "out"), *(part for change in OTHERS for part in ("--set", change))]
    environment = {**os.environ, MEETING: str(met), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*COMMAND, "tune", *words, *TRUST], env=environment)
    deadline = time.monotonic() + 120
    while not any(met.iterdir()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert any(met.iterdir())
    rows = tune(Search(read_own(MEETS, "test", OTHERS), "meeting", 2, tmp_path / "out"))
    assert [(one["trial"], one["state"]) for one in rows] == [
        (0, "killed"), (0, "complete"), (1, "complete"),
    ]  # fmt: skip
    assert rows[1]["settings"] == {"l2_weight": 0.0}


@pytest.mark.end_to_end
def test_a_trial_of_a_living_worker_is_left_to_it(tmp_path: Path) -> None:
    trial_store, other = (TrialStore(tmp_path, None, "s") for _ in range(2))
    trials = trial_store.trials_of("falcon")
    trial_store.plan(trials, [{"share": 0.5}, {"share": 1.0}])
    trial_store.plan(
        trials, [{"share": 0.5}, {"share": 1.0}, {"share": 0.1}]
    )  # one more, not three
    with trial_store.working():
        mine = trial_store.claim(trials, 0)
        assert other.requeue_lost(other.trials_of("falcon")) == 0
        assert other.waiting(trials) == 2
        assert other.claim(trials, 0).user_attrs["number"] == 1  # type: ignore[union-attr]
    assert mine is not None
    assert mine.user_attrs["number"] == 0
    assert other.requeue_lost(trials) == 2  # neither has a worker now
    states = [trial.state for trial in trials.get_trials()]
    assert states.count(TrialState.FAIL) == 2
    assert states.count(TrialState.WAITING) == 3
    for one in (trial_store, other):
        one.close()


@pytest.mark.end_to_end
def test_a_storage_belongs_to_one_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    tune(search(tmp_path / "one", trials=1, storage=url))
    assert not (tmp_path / "one" / "trials.db").exists()
    with pytest.raises(UserError, match="made in another output folder"):
        tune(search(tmp_path / "other", trials=1, storage=url))
    with pytest.raises(UsageError, match="cannot open the storage"):
        tune(search(tmp_path / "none", trials=1, storage="nonsense"))


# the command


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falconcal.studies.tuning.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"falconcal\[tune\]"):
        need_optuna()


@pytest.mark.end_to_end
def test_what_the_command_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(n, 0.1 + 0.01 * n, 0.95, test={"micro_ece": 0.1 * n}, seconds=1.0) for n in range(3)
    ]
    rows.append({"method": "falcon", "trial": 3, "state": "failed", "reason": "it [broke]"})
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    for one in rows:
        show_trial(one)
    show_trials(tmp_path, rows)
    shown = capsys.readouterr().out
    assert "falcon, trial 3: failed, it [broke]" in shown
    assert "criterion 0.1000, accuracy 0.9500, 1 s" in shown
    assert "falcon: 1.00 over 3 trials; nothing was chosen by it" in shown
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    assert math.isclose(rank_correlations(rows)["falcon"][0], 1.0)
