"""The report of many methods in a real Chromium: a few stand out, the rest can be found; axe."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from falconcal.evaluation.assessment import assess
from falconcal.evaluation.side_by_side import assess_together
from falconcal.metrics.predictions import Predictions
from falconcal.report import study_evidence, write_report, write_score_page, write_side_by_side
from tests.helpers.accessibility import grave_faults
from tests.helpers.chromium import Page, every
from tests.helpers.report_study import MICRO, make_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.end_to_end
MANY = 21
FIRST = ["m00", "m01", "m02", "dropout", "falcon"]  # the three best, the plain, the reference
NAMES = "(button) => button.textContent"


@pytest.fixture(scope="module")
def report(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of 21 methods, half of which recalibrate the model of another."""
    assert browser
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_evidence, "LEAST_RESAMPLES", 50)
        patch.setattr(study_evidence, "RESAMPLES_PER_PAIR", 0)
        for number in range(MANY - len(MICRO)):
            errors = dict.fromkeys(MICRO["falcon"], 0.001 * number)
            patch.setitem(MICRO, f"m{number:02}", errors)
        study = make_study(tmp_path_factory.mktemp("many") / "digits", seeds=(0,))
        for file in study.glob("runs/default/m1*/*/run.json"):
            file.write_text(json.dumps({"training_seconds": 1.0, "base": "dropout, seed 0"}))
        return write_report(study, formats=())


@pytest.fixture(scope="module")
def few(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert browser
    return write_report(make_study(tmp_path_factory.mktemp("few") / "digits"), formats=())


def predictions() -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    return Predictions.from_logits(logits, torch.randint(3, (300,), generator=generator))


@pytest.fixture(scope="module")
def score(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = assess(predictions(), groups=["a"] * 200 + ["b"] * 100)
    return write_score_page(found, tmp_path_factory.mktemp("score"), title="mine")


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    both = assess_together({"a.csv": predictions(), "b.csv": predictions()})
    return write_side_by_side(both, tmp_path_factory.mktemp("both"), title="both")


def pressed(page: Page) -> list[str]:
    names: list[str] = page.run(f"{every('.bar .method[aria-pressed=true]')}.map({NAMES})")
    return names


def test_a_few_stand_out_until_a_reader_chooses(page: Page, report: Path) -> None:
    page.open(report)
    assert sorted(pressed(page)) == sorted(FIRST)
    assert page.run("location.hash") == ""
    page.click(".bar .all")
    assert pressed(page) == []
    page.wait("location.hash === '#lit='")
    page.page.goto("about:blank")
    page.open(report, "#lit=")
    assert pressed(page) == []
    assert page.run("document.querySelectorAll('#explorer tbody tr').length") == MANY
    page.open(report, "#lit=m05")
    page.wait("document.querySelectorAll('#explorer tbody tr').length === 1")
    assert pressed(page) == ["m05"]
    assert page.complaints == []


def test_methods_are_ranked_and_grouped(page: Page, report: Path) -> None:
    page.open(report)
    names = page.run(f"{every('.bar .method, .bar .group')}.map({NAMES})")
    trained = [f"m{number:02}" for number in range(10)]
    assert names[0] == "Trained"
    assert names[1:11] == trained
    assert names[names.index("Recalibrated") + 1] == "m10"
    listed = page.run(
        f"{every('#verdict > .pairs > div > ul > li')}.map((li) => li.dataset.series)"
    )
    assert sorted(listed) == sorted(FIRST)
    folded = page.run(f"{every('#verdict summary')}.map({NAMES})")
    assert folded == ["Trained: 7 more", "Recalibrated, nothing trained again: 9 more"]
    # the bar is the legend, and the matrix is not drawn until somebody asks for it
    assert page.run(f"{every('#ece-by-level .role-legend')}.length") == 0
    drawn = "Boolean(document.getElementById('method-against-method').drawn)"
    assert not page.run(drawn)
    page.click("#comparison details summary")
    page.wait(drawn)


def test_a_filter_leaves_the_methods_whose_names_hold_its_words(page: Page, report: Path) -> None:
    page.open(report)
    page.page.locator(".bar input").fill("m0 3")
    shown = "(one) => one.checkVisibility()"
    assert page.run(f"{every('.bar .method')}.filter({shown}).map({NAMES})") == ["m03"]
    rows = page.run(f"{every('#summary tbody')}[0].rows.length")
    assert rows == MANY
    left = "[...document.querySelector('#summary tbody').rows].filter((row) => !row.hidden)"
    assert page.run(f"{left}.map((row) => row.cells[0].textContent)") == ["m03"]
    page.page.locator(".bar input").fill("")
    assert page.run(f"{left}.length") == MANY


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", ["report", "few", "score", "side_by_side"])
def test_no_grave_fault_of_accessibility(
    page: Page, name: str, width: int, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(name)
    page.resize(width)
    page.open(file)
    for dark in (False, True):
        page.resize(width, dark=dark)
        page.settle()
        # thousands of rows about pairs of methods are all alike
        assert grave_faults(page, unfolded=name != "report") == []
        assert page.run("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.complaints == []
