"""Variants of a study: read, expanded to runs, run, taken up again, refused, reported."""

import dataclasses
import json
import shutil
import tomllib
from pathlib import Path

import polars
import pytest
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.methods import Falcon
from falconcal.report.charts.figure import drawn
from falconcal.report.charts.variant_charts import Sweep, find_sweeps, variant_figures
from falconcal.report.results import Results, load_results
from falconcal.report.study_evidence import gather_evidence
from falconcal.report.tables.summary import make_summary
from falconcal.studies import Study, find_study
from falconcal.studies.runner import do_runs
from falconcal.studies.schedule import runs_of
from falconcal.studies.store import Store
from falconcal.studies.variants import expand_sweeps
from tests.helpers.small_studies import TEXT, Silent, everything
from tests.helpers.stripes import TRUST, read_own

SHORT = ["dropout.epochs=2", "falcon.epochs=2", "falcon.keep=last"]
ALONE = '[variants.entropy_alone]\n"falcon.calibration_weight" = 0.0\n'
SCALED = '[methods.scaled]\nmethod = "temperature"\nbase = "falcon"\n'
SWEPT = '[sweeps]\n"falcon.entropy_weight" = [0.1, 0.5, 10]\n'
pytestmark = [
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning"),
]


def study(*tables: str, changes: tuple[str, ...] = (), smoke: bool = False) -> Study:
    text = "\n".join([TEXT, *tables])
    return read_own(text, "test", [*([] if smoke else SHORT), *changes], smoke=smoke)


def expanded(found: Study, *arguments: list[str] | None) -> list[tuple[str, str]]:
    return [(run.variant, run.method) for run in runs_of(found, *arguments)]


def stored(directory: Path, run: RunKey, file: str = "settings.json") -> dict[str, object]:
    values: dict[str, object] = json.loads((run.folder(directory) / file).read_text())
    return values


def test_a_variant_has_the_methods_that_it_changes() -> None:
    """A base by name is changed too; seeds come outermost, and the plain variant first."""
    found = study(SCALED, ALONE, changes=("seeds=2",))
    assert found.variant("entropy_alone").method("falcon") == Falcon(
        epochs=2, learning_rate=0.01, calibration_weight=0.0
    )
    once = [
        (DEFAULT_VARIANT, "dropout"), (DEFAULT_VARIANT, "falcon"), (DEFAULT_VARIANT, "scaled"),
        ("entropy_alone", "falcon"), ("entropy_alone", "scaled"),
    ]  # fmt: skip
    assert expanded(found) == once * 2
    assert [run.seed for run in runs_of(found)] == [0] * 5 + [1] * 5
    assert expanded(found, ["falcon"], ["entropy_alone"])[:1] == [("entropy_alone", "falcon")]
    assert expanded(found, None, [DEFAULT_VARIANT])[:3] == once[:3]


def test_batch_size_and_model_change_all_methods() -> None:
    found = study('[variants.small]\nbatch_size = 7\n[variants.model]\nmodel = "mlp"\n')
    assert found.variant("small").batch_size == 7
    assert found.variant("model").model == "mlp"
    assert expanded(found, None, ["small", "model"]) == [
        ("small", "dropout"), ("small", "falcon"), ("model", "dropout"), ("model", "falcon"),
    ]  # fmt: skip


def test_a_sweep_is_a_variant_for_each_value_that_is_not_the_plain_one() -> None:
    found = study(ALONE, SWEPT)
    assert found.variants == {
        "entropy_alone": {"falcon.calibration_weight": 0.0},
        "entropy_weight=0.1": {"falcon.entropy_weight": 0.1},
        "entropy_weight=0.5": {"falcon.entropy_weight": 0.5},
        "entropy_weight=10": {"falcon.entropy_weight": 10},
    }
    assert Falcon().entropy_weight == 0.1
    assert [name for name, _ in expanded(found)] == [
        DEFAULT_VARIANT, DEFAULT_VARIANT, "entropy_alone", "entropy_weight=0.5",
        "entropy_weight=10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sweep", "names"),
    [
        ('"falcon.gradient" = ["exact"]', ["gradient=exact"]),
        ('"falcon.learning_rate" = [1e-5, 0.25]', ["learning_rate=1e-05", "learning_rate=0.25"]),
        ('"falcon.directions" = [["sign", "gaussian"]]', ["directions=sign-gaussian"]),
        ('"model.name" = ["some.module:Name"]', ["name=some.module-Name"]),
        ('"falcon.share" = [0.5]\n"other.share" = [1]', ["falcon.share=0.5", "other.share=1"]),
        ("falcon.share = [0.5]", ["share=0.5"]),
        ('"methods.falcon.share" = [true]', ["share=true"]),
    ],
)  # fmt: skip
def test_names_of_swept_variants_are_readable_and_fit_a_folder(
    sweep: str, names: list[str]
) -> None:
    values = tomllib.loads(f"[sweeps]\n{sweep}")
    expand_sweeps(values, "test")
    assert list(values["variants"]) == names
    assert "sweeps" not in values


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ('[variants.a]\n"falcn.share" = 0.5', r"variants\.a: falcn\.share: .* mean 'falcon'"),
        ('[variants.a]\n"falcon.epsilon" = 0.5', r"variants\.a: Falcon: .*mean 'epsilons'"),
        ('[variants.a]\n"falcon.share" = 2.0', r"variants\.a: .*fraction.* less than or equal"),
        ('[variants.a]\n"falcon.seed" = 2', r"variants\.a: methods.falcon: seed is set by the run"),
        ('[variants.a]\nshifts = ["shear"]', r"variants\.a: shifts cannot differ"),
        ('[variants.a]\n"dataset.count" = 3', r"variants\.a: dataset\.count cannot differ"),
        ('[variants.a]\n"tuning.epochs" = 3', r"variants\.a: tuning\.epochs cannot differ"),
        ('[variants.a]\nmodel = "lenett"', r"variants\.a: .*mean 'lenet'"),
        ('[variants.a]\n"scaled.base.epochs" = 3', r"variants\.a: .*is not a table"),
        ("[variants.default]\nbatch_size = 3", r"variants\.default .* choose another name"),
        ('[variants."a/b"]\nbatch_size = 3', "variants"),
        ("[variants]\na = 3", r"\[variants\.a\]: expected a table, got 3"),
        ('[sweeps]\n"falcon.share" = 0.5', r"falcon\.share: expected a list of values, got 0\.5"),
        ('[sweeps]\n"falcon.share" = []', r"expected a list of values, got \[\]"),
        ('[sweeps]\n"falcon.share" = [0.5, 0.5]', "two variants are called 'share=0.5'"),
        ('[sweeps]\n"falcon.share" = [0.5, 3]', r"variants\.share=3: .*less than or equal to 1"),
    ],
)  # fmt: skip
def test_a_wrong_variant_is_refused_before_anything_runs(tables: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        study(SCALED, tables)


def test_a_smoke_run_makes_variants_small_too() -> None:
    tables = (
        '[smoke]\n"falcon.share" = 0.5\n[sweeps]\n"falcon.epochs" = [7]\n"falcon.share" = [0.7]\n'
    )
    small = study(ALONE, tables, smoke=True)
    assert small.variants == {
        "entropy_alone": {"falcon.calibration_weight": 0.0}, "epochs=7": {}, "share=0.7": {},
    }  # fmt: skip
    alone = small.variant("entropy_alone").method("falcon")
    assert (alone.epochs, alone.calibration_fraction, alone.calibration_weight) == (1, 0.5, 0.0)  # type: ignore[attr-defined]


def test_the_ablation_leaves_out_each_term_and_both() -> None:
    ablation = find_study("mnist_ablation")
    weights = {
        name: (falcon.entropy_weight, falcon.calibration_weight)  # type: ignore[attr-defined]
        for name in (DEFAULT_VARIANT, *ablation.variants)
        for falcon in [ablation.variant(name).method("falcon")]
    }
    assert list(weights.values()) == [(50, 0.02), (0, 0.02), (50, 0), (0, 0)]
    assert len(runs_of(ablation)) == 5


def test_the_sensitivity_study_spans_the_papers_ranges_around_one_plain_run() -> None:
    ranges = {"calibration_weight": [0.0005, 0.03], "entropy_weight": [10, 100]}
    study = find_study("mnist_sensitivity")
    plain = study.method("falcon")
    for setting, ends in ranges.items():
        swept = [
            changes[f"falcon.{setting}"]
            for changes in study.variants.values()
            if f"falcon.{setting}" in changes
        ]
        assert [min(swept), max(swept)] == ends
        assert getattr(plain, setting) in swept
    assert (plain.entropy_weight, plain.calibration_weight) == (50, 0.02)  # type: ignore[attr-defined]
    assert len(runs_of(study)) == len(study.variants) - 1  # two stand for the plain run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three methods, with a variant, run with one seed."""
    directory = tmp_path_factory.mktemp("variants")
    do_runs(study(SCALED, ALONE), directory, Silent())
    return directory


@pytest.mark.end_to_end
def test_runs_of_a_variant_lie_apart_with_the_settings_of_it(folder: Path) -> None:
    alone, plain = RunKey("entropy_alone", "falcon", 0), RunKey(DEFAULT_VARIANT, "falcon", 0)
    assert Store(folder).runs() == sorted(runs_of(study(SCALED, ALONE)))
    assert stored(folder, alone)["variant"] == "entropy_alone"
    weights = [
        stored(folder, run)["settings"]["calibration_weight"]  # type: ignore[index]
        for run in (alone, plain)
    ]
    assert weights == [0.0, 0.02]
    assert "variants" not in stored(folder, plain)["study"]  # type: ignore[operator]
    expected = {"entropy_alone": {"falcon.calibration_weight": 0.0}}
    assert json.loads((folder / "study.json").read_text())["variants"] == expected
    rows = polars.read_parquet(folder / "rows.parquet")
    assert set(rows.filter(method="falcon")["variant"]) == {DEFAULT_VARIANT, "entropy_alone"}


@pytest.mark.end_to_end
def test_a_variant_gives_what_a_study_with_its_settings_gives(folder: Path, tmp_path: Path) -> None:
    do_runs(study(changes=("falcon.calibration_weight=0.0",)), tmp_path, Silent(), ["falcon"])
    alone = RunKey("entropy_alone", "falcon", 0).folder(folder)
    same = RunKey(DEFAULT_VARIANT, "falcon", 0).folder(tmp_path)
    scores = [polars.read_parquet(run / "scores.parquet") for run in (alone, same)]
    assert scores[0].equals(scores[1])
    other = polars.read_parquet(
        RunKey(DEFAULT_VARIANT, "falcon", 0).folder(folder) / "scores.parquet"
    )
    assert not scores[0].equals(other)


@pytest.mark.end_to_end
def test_a_recalibrator_takes_the_run_of_its_own_variant(folder: Path) -> None:
    taken = {
        run.variant: stored(folder, run, "run.json")["base"]
        for run in Store(folder).runs()
        if run.method == "scaled"
    }
    assert taken == {
        DEFAULT_VARIANT: "falcon, seed 0",
        "entropy_alone": "falcon (entropy_alone), seed 0",
    }


@pytest.mark.end_to_end
def test_a_recalibrator_whose_variant_leaves_the_base_alone_takes_the_plain_run(
    tmp_path: Path,
) -> None:
    tables = '[variants.binned]\n"scaled.method" = "histogram"\n'
    found = study(SCALED, tables)
    assert expanded(found, None, ["binned"]) == [("binned", "scaled")]
    do_runs(found, tmp_path, Silent(), ["falcon", "scaled"])
    run = RunKey("binned", "scaled", 0)
    assert stored(tmp_path, run, "run.json")["base"] == "falcon, seed 0"


@pytest.mark.end_to_end
def test_a_variant_may_be_added_and_not_changed(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "out")
    progress = Silent()
    do_runs(
        study(SCALED, ALONE, SWEPT),
        tmp_path / "out",
        progress,
        ["falcon"],
        [DEFAULT_VARIANT, "entropy_weight=10"],
    )
    assert progress.begun == [RunKey("entropy_weight=10", "falcon", 0)]
    kept = json.loads((tmp_path / "out" / "study.json").read_text())["variants"]
    assert list(kept)[:2] == ["entropy_alone", "entropy_weight=0.1"]
    do_runs(study(SCALED), tmp_path / "out", Silent())  # without variants: they stay
    assert json.loads((tmp_path / "out" / "study.json").read_text())["variants"] == kept
    before = everything(tmp_path / "out")
    changed = ALONE.replace("0.0", "0.01")
    with pytest.raises(UserError, match=r"entropy_alone\.falcon.*: 0\.0 there, 0\.01 now"):
        do_runs(study(SCALED, changed), tmp_path / "out", Silent())
    assert everything(tmp_path / "out") == before


@pytest.mark.end_to_end
def test_the_report_has_a_series_for_each_variant(folder: Path) -> None:
    results = load_results(folder)
    assert results.series == (
        "dropout", "falcon", "falcon (entropy_alone)", "scaled", "scaled (entropy_alone)",
    )  # fmt: skip
    summary = make_summary(results)
    assert summary["series"].to_list() == list(results.series)
    assert summary["variant"].to_list()[1:3] == [DEFAULT_VARIANT, "entropy_alone"]


@pytest.mark.end_to_end
def test_variants_are_compared_in_pairs_of_the_same_examples(folder: Path) -> None:
    results = load_results(folder)
    rows = results.rows.filter(method="falcon")
    runs = tuple(run for run in results.runs if run.key.method == "falcon")
    evidence = gather_evidence(dataclasses.replace(results, rows=rows, runs=runs))
    (pair,) = evidence.table.filter(kind="difference", figure="mean_micro_ece").to_dicts()
    assert (pair["first"], pair["second"]) == ("falcon", "falcon (entropy_alone)")
    micro = rows.filter(metric="micro_ece").filter(polars.col("shift").is_in(["shear", "xshift"]))
    means = dict(micro.group_by("series").agg(polars.col("value").mean()).rows())
    difference = means["falcon"] - means["falcon (entropy_alone)"]
    assert pair["value"] == pytest.approx(difference, abs=1e-6)
    assert pair["low"] <= pair["value"] <= pair["high"]


@pytest.mark.end_to_end
def test_named_variants_stand_side_by_side_in_a_figure(folder: Path) -> None:
    (figure,) = variant_figures(load_results(folder))
    assert figure.name == "variants"
    chart = figure.specification()
    (values,) = chart["datasets"].values()
    rows = polars.read_parquet(folder / "rows.parquet").filter(method="falcon")
    for variant, series in (
        (DEFAULT_VARIANT, "falcon"),
        ("entropy_alone", "falcon (entropy_alone)"),
    ):
        own = rows.filter(variant=variant)
        shown = {row["panel"]: row["mean"] for row in values if row["series"] == series}
        assert set(chart["facet"]["sort"]) == set(shown)
        clean = own.filter(shift="clean", metric="accuracy")["value"].item()
        pooled = own.filter(metric="micro_ece")
        shear = pooled.filter(shift="shear")["value"].item()
        xshift = pooled.filter(shift="xshift")["value"].item()
        assert shown["clean accuracy"] == pytest.approx(clean, abs=1e-6)
        assert shown["micro ECE, shear"] == pytest.approx(shear, abs=1e-6)
        assert shown["micro ECE, mean"] == pytest.approx((shear + xshift) / 2, abs=1e-6)
    assert b"<svg" in drawn([figure])[f"{figure.name}.svg"]


def swept(results: Results) -> Results:
    """Return results with three runs of FALCON along a sweep, their errors 1, 2 and 3 times one."""
    (run,) = [run for run in results.runs if run.key == RunKey(DEFAULT_VARIANT, "falcon", 0)]
    rows, runs = [], []
    for number, variant in enumerate(("share=0.1", DEFAULT_VARIANT, "share=0.5"), start=1):
        key = RunKey(variant, "falcon", 0)
        error = polars.when(polars.col("metric").is_in(["accuracy"])).then(1).otherwise(number)
        own = results.rows.filter(polars.col("series") == "falcon").with_columns(
            polars.lit(variant).alias("variant"),
            polars.col("value") * error,
            series=polars.lit(key.series),
        )
        rows.append(own)
        runs.append(dataclasses.replace(run, key=key))
    variants = {"share=0.1": {"falcon.share": 0.1}, "share=0.5": {"falcon.share": 0.5}}
    study = {**results.study, "variants": variants, "methods": {"falcon": {"share": 0.25}}}
    return Results(results.directory, study, polars.concat(rows), tuple(runs))


@pytest.mark.end_to_end
def test_a_sweep_is_a_line_over_its_range_with_the_plain_run_on_it(folder: Path) -> None:
    results = swept(load_results(folder))
    (figure,) = variant_figures(results)
    assert figure.name == "sensitivity-falcon-share"
    (values,) = figure.specification()["datasets"].values()
    line = [row for row in values if row["panel"] == "micro ECE, shear"]
    assert [(row["series"], row["value"], row["plain"]) for row in line] == [
        ("falcon", 0.1, False), ("falcon", 0.25, True), ("falcon", 0.5, False),
    ]  # fmt: skip
    one = line[0]["mean"]
    assert [row["mean"] / one for row in line] == pytest.approx([1, 2, 3], abs=1e-4)
    largest = results.rows.filter(polars.col("metric") == "micro_ece", variant="share=0.1")
    assert largest["shift"].n_unique() == 3  # contrast is among the panels too
    moved = 2 * max(largest["value"].to_list())
    assert f"moves by 0.0 points, the ECE of no shift by more than {moved:.3f}" in figure.caption
    assert b"<svg" in drawn([figure])[f"{figure.name}.svg"]


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        ("falcon.share", {DEFAULT_VARIANT: 0.25}),
        ("methods.falcon.share", {DEFAULT_VARIANT: 0.25}),
        ("scaled.base.share", {DEFAULT_VARIANT: 0.75}),
        ("batch_size", {DEFAULT_VARIANT: 30.0}), ("model.hidden", {}),
        ("falcon.gradient", {}), ("other.share", {}),
    ],
)  # fmt: skip
def test_a_sweep_knows_the_value_of_the_study_itself(key: str, plain: dict[str, float]) -> None:
    study = {
        "batch_size": 30,
        "model": "lenet",
        "methods": {
            "falcon": {"share": 0.25, "gradient": "shared"},
            "scaled": {"base": {"share": 0.75}},
        },
        "variants": {"a": {key: 1}, "b": {key: 2}, "c": {key: "exact"}, "d": {key: 3, "x": 1}},
    }
    assert find_sweeps(study) == [Sweep(key, {**plain, "a": 1.0, "b": 2.0})]


@pytest.mark.end_to_end
def test_a_study_without_variants_has_no_figure_of_them(folder: Path) -> None:
    results = load_results(folder)
    plain = {name: value for name, value in results.study.items() if name != "variants"}
    assert variant_figures(dataclasses.replace(results, study=plain)) == []


def test_the_command_runs_chosen_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("falconcal.cli.reports.report", lambda *_, **__: None)
    (tmp_path / "stripes.toml").write_text(f"{TEXT}\n{ALONE}")
    command = ["run", "stripes.toml", *TRUST, "--smoke", "--variants"]
    outcome = CliRunner().invoke(app, [*command, "entropy_alone"])
    assert outcome.exit_code == 0, outcome.output
    found = Store(tmp_path / "runs" / "smoke" / "stripes").runs()
    assert found == [RunKey("entropy_alone", "falcon", 0)]
    wrong = CliRunner().invoke(app, [*command, "entropy"])
    assert "mean 'entropy_alone'" in str(wrong.exception)
    none = CliRunner().invoke(app, [*command, "entropy_alone", "--methods", "dropout"])
    assert "nothing to run" in str(none.exception)


def test_tuning_ignores_variants() -> None:
    pytest.importorskip("optuna")
    from falconcal.studies.tuning.search import Search

    plain, with_them = (
        Search(found, "falcon", 1, Path("nowhere"), None, 0) for found in (study(), study(ALONE))
    )
    assert plain.identity() == with_them.identity()
