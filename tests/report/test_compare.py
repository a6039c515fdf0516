"""Several output folders in one report: what they share is compared, and they stay as they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.errors import UsageError, UserError
from falconcal.report import write_report
from falconcal.report.comparison import folder_labels, load_comparison
from falconcal.report.study_evidence import gather_evidence
from falconcal.report.tables.summary import make_summary
from tests.helpers.report_study import CHOSEN_ON, SEEDS, TESTED, make_study
from tests.helpers.small_studies import everything


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two folders of the same study."""
    return [make_study(tmp_path / name, seeds=(0,)) for name in ("before", "after")]


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "study.json"
    study = json.loads(file.read_text())
    change(study)
    file.write_text(json.dumps(study))


def keep_rows(folder: Path, kept: polars.Expr) -> None:
    rows = polars.read_parquet(folder / "rows.parquet")
    rows.filter(kept).write_parquet(folder / "rows.parquet")


def scale(folder: Path, factor: float) -> None:
    rows = polars.read_parquet(folder / "rows.parquet")
    pooled = polars.col("metric") == "micro_ece"
    value = polars.when(pooled).then(polars.col("value") * factor).otherwise(polars.col("value"))
    rows.with_columns(value=value).write_parquet(folder / "rows.parquet")


def test_series_that_clash_bear_the_name_of_their_folder(folders: list[Path]) -> None:
    scale(folders[1], 0.5)
    results = load_comparison(folders)
    assert results.series == (
        "dropout (before)", "falcon (before)", "dropout (after)", "falcon (after)",
    )  # fmt: skip
    summary = {row["series"]: row for row in make_summary(results).to_dicts()}
    assert summary["falcon (after)"]["method"] == "falcon"
    before, after = (summary[f"falcon ({name})"]["mean_micro_ece"] for name in ("before", "after"))
    assert after == pytest.approx(before / 2)
    assert results.title == "Comparison of before, after"
    assert results.notes == ()
    assert results.examples.keys() == {"rotation"}


@pytest.mark.end_to_end
def test_what_a_study_notes_stands_before_any_figure(folders: list[Path]) -> None:
    """In its own report, and in a comparison once for all folders that say it."""
    for folder in folders:
        edit(folder, lambda study: study.update(note="Level 1 was\ntrained on."))
    assert load_comparison(folders).notes == ("Level 1 was trained on.",)
    page, summary = write_report(folders[0]).read_text(), (folders[0] / "summary.md").read_text()
    assert page.index("Level 1 was trained on.") < page.index("falcon</t")
    assert summary.splitlines()[2] == "Level 1 was trained on."
    assert json.loads((folders[0] / "summary.json").read_text())["notes"] == [
        "Level 1 was trained on."
    ]


def test_series_of_one_folder_alone_keep_their_names(folders: list[Path]) -> None:
    keep_rows(folders[1], polars.col("method") == "falcon")
    keep_rows(folders[0], polars.col("method") == "dropout")
    results = load_comparison(folders)
    assert results.series == ("dropout", "falcon")
    assert results.study["name"] == "digits"


def test_a_variant_keeps_its_name_beside_the_folders(folders: list[Path]) -> None:
    for folder in folders:
        rows = polars.read_parquet(folder / "rows.parquet")
        named = polars.when(polars.col("method") == "falcon").then(polars.lit("small"))
        rows = rows.with_columns(variant=named.otherwise("variant"))
        rows.write_parquet(folder / "rows.parquet")
        (folder / "runs" / "small").mkdir()
        (folder / "runs" / "default" / "falcon").rename(folder / "runs" / "small" / "falcon")
    results = load_comparison(folders)
    assert results.series[1] == "falcon (before, small)"
    assert set(results.rows["series"]) == set(results.series)
    assert set(results.rows["variant"]) == {run.key.variant for run in results.runs}


def test_folders_are_told_apart_by_as_much_of_their_paths_as_it_takes(tmp_path: Path) -> None:
    places = [tmp_path / "a" / "out", tmp_path / "b" / "out", tmp_path / "c"]
    assert folder_labels(places) == ["a/out", "b/out", f"{tmp_path.name}/c"]
    assert folder_labels(places[1:]) == ["out", "c"]


def test_differences_are_of_the_same_examples(folders: list[Path]) -> None:
    """Equal folders differ by nothing, to the bit; that no draw parts them shows the pairing."""
    table = gather_evidence(load_comparison(folders)).table
    same = table.filter(kind="difference", figure="accuracy", first="falcon (before)")
    pair = same.filter(second="falcon (after)").to_dicts()[0]
    assert (pair["value"], pair["low"], pair["high"]) == (0, 0, 0)


def test_folders_with_other_examples_are_refused(folders: list[Path]) -> None:
    file = folders[1] / "runs" / "default" / "dropout" / "seed-0" / "scores.parquet"
    scores = polars.read_parquet(file)
    scores.filter(polars.col("example") != 3).write_parquet(file)
    with pytest.raises(UserError, match=r"before and .*after were not tested on the same examples"):
        load_comparison(folders)
    scores.with_columns(label=polars.col("label") + 1).write_parquet(file)
    with pytest.raises(UserError, match="not tested on the same examples"):
        load_comparison(folders)


def test_what_is_not_in_all_folders_is_left_out_and_named(folders: list[Path]) -> None:
    lost = TESTED[0]
    edit(folders[1], lambda study: study["shifts"].remove(lost))
    keep_rows(folders[1], polars.col("shift") != lost)
    results = load_comparison(folders)
    assert results.tested_shifts == TESTED[1:]
    assert results.notes == (f"Left out: {lost}, which is not in after.",)
    assert lost not in set(results.rows["shift"])
    mean = make_summary(results)["mean_micro_ece"][0]
    one = results.rows.filter(polars.col("shift").is_in(TESTED[1:]), metric="micro_ece")
    assert mean == pytest.approx(one.filter(series="dropout (before)")["value"].mean())


def test_other_levels_of_a_shift_are_another_shift(folders: list[Path]) -> None:
    keep_rows(folders[1], (polars.col("shift") != TESTED[0]) | polars.col("level").ne_missing(1))
    (note,) = load_comparison(folders).notes
    assert note.startswith(f"Left out: {TESTED[0]}, which has other levels")


def test_affine_shifts_about_another_centre_are_other_shifts(folders: list[Path]) -> None:
    for folder, centre in zip(folders, ("keras", "middle"), strict=True):

        def change(study: dict[str, Any], centre: str = centre) -> None:
            study["centre"] = centre
            study["shifts"] = ["shear" if name == TESTED[0] else name for name in TESTED]

        edit(folder, change)
        rows = polars.read_parquet(folder / "rows.parquet")
        renamed = polars.col("shift").replace(TESTED[0], "shear")
        rows.with_columns(shift=renamed).write_parquet(folder / "rows.parquet")
    (note,) = load_comparison(folders).notes
    assert note == "Left out: shear, made about another centre in each folder."


def test_what_chose_settings_in_one_folder_tests_nothing(folders: list[Path]) -> None:
    def change(study: dict[str, Any]) -> None:
        study["selection_shifts"].append(study["shifts"].pop(0))

    edit(folders[1], change)
    results = load_comparison(folders)
    assert results.tested_shifts == TESTED[1:]
    assert set(results.selection_shifts) == {TESTED[0], *CHOSEN_ON}


def test_folders_without_a_shift_in_common_are_refused(folders: list[Path]) -> None:
    edit(folders[1], lambda study: study.update(shifts=["clean"]))
    with pytest.raises(UserError, match=r"share no tested shift: before has rotation.*after has"):
        load_comparison(folders)


def test_datasets_of_other_names_with_the_same_examples_are_noted(folders: list[Path]) -> None:
    edit(folders[1], lambda study: study.update(dataset={"name": "other", "side": 14}))
    (note,) = load_comparison(folders).notes
    assert note.endswith("before: digits, after: other.")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([0], "expected two or more output folders to compare, got 1"),
        ([0, 1, 0], r"before is given 2 times"),
    ],
)
def test_too_few_folders_are_refused(folders: list[Path], chosen: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_comparison([folders[place] for place in chosen])


def test_what_is_no_output_folder_is_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected an output folder of falconcal run, got .*none"):
        load_comparison([folders[0], tmp_path / "none"])


@pytest.mark.end_to_end
def test_the_command_writes_a_report_and_leaves_the_folders_as_they_are(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    edit(folders[1], lambda study: study.update(dataset="<b>other</b>"))
    before = {folder: everything(folder) for folder in folders}
    outcome = CliRunner().invoke(app, ["compare", *map(str, folders), "--paper"])
    assert outcome.exit_code == 0, outcome.output
    assert "(after)" in outcome.output
    assert {folder: everything(folder) for folder in folders} == before
    written = tmp_path / "runs" / "compare" / "before+after"
    page = (written / "report.html").read_text()
    assert "before: digits, after: &lt;b&gt;other" in page
    assert "falcon (before)" in (written / "summary.md").read_text()
    assert json.loads((written / "summary.json").read_text())["notes"]
    assert not (written / "study.json").exists()
    assert "falcon (after)" in (written / "paper" / "tables.tex").read_text()
    for target in (folders[1], make_study(tmp_path / "third", seeds=SEEDS[:1])):
        wrong = CliRunner().invoke(app, ["compare", *map(str, folders), "--out", str(target)])
        assert isinstance(wrong.exception, UsageError)
        assert "holds the runs of a study" in str(wrong.exception)
