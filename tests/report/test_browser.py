"""The pages in a real Chromium: they load in peace, answer clicks and keys, and fit any screen."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from falconcal.evaluation.assessment import assess
from falconcal.metrics.predictions import Predictions
from falconcal.report import study_evidence, write_report
from falconcal.report.pages.score_page import write_score_page
from tests.helpers import chromium as chromium_module
from tests.helpers.chromium import Page, every, find_chromium
from tests.helpers.report_study import MICRO, make_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.end_to_end

TITLE = "Digits <script>window.ran = true</script>"
SLY = '=<img src=x onerror="ran=true">, "b"'  # markup, a formula, and all that CSV must quote
SECONDS: dict[str, list[float | None]] = {
    "dropout": [9.5, 10.0],
    "falcon": [1200.0, 100.0],
    SLY: [10.0, None],
}
RANKED = ["falcon", "dropout", SLY]  # by the mean micro ECE
OPACITY = "(mark) => Number(getComputedStyle(mark).opacity)"
LINES = every("#ece-by-level .mark-line path")


@pytest.fixture(scope="module")
def report(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small study with a sly title and a sly method."""
    assert browser  # where there is none, nothing is written either
    with pytest.MonkeyPatch.context() as patch:
        # intervals are tested elsewhere
        patch.setattr(study_evidence, "LEAST_RESAMPLES", 50)
        patch.setattr(study_evidence, "RESAMPLES_PER_PAIR", 0)
        patch.setitem(MICRO, SLY, {"rotation": 0.5, "noise": 0.5, "zoom": 0.5, "contrast": 0.5})
        study = make_study(tmp_path_factory.mktemp("browser") / "digits", title=TITLE)
        for method, seconds in SECONDS.items():
            for seed, value in enumerate(seconds):
                record = study / "runs" / "default" / method / f"seed-{seed}" / "run.json"
                times = {} if value is None else {"training_seconds": value}
                record.write_text(json.dumps(times | {"threads": seed}))
        return write_report(study, formats=())


@pytest.fixture(scope="module")
def score(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of predictions of three groups."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1110, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (1110,), generator=generator)
    groups = ["a"] * 1000 + ["b"] * 70 + ["+c"] * 40
    found = assess(Predictions.from_logits(logits, labels), groups=groups)
    return write_score_page(found, tmp_path_factory.mktemp("score"), title=TITLE)


def lit_lines(page: Page) -> dict[str, bool]:
    """Return which methods' lines stand out in the figure of ECE by level."""
    page.wait("document.documentElement.dataset.painted === 'all'")
    pairs = page.run(
        f"{LINES}.map((line) => [line.__data__.datum.series, ({OPACITY})(line) > 0.5])"
    )
    found: dict[str, set[bool]] = {}
    for name, stands_out in pairs:
        found.setdefault(name, set()).add(stands_out)
    assert all(len(states) == 1 for states in found.values())
    return {name: states.pop() for name, states in found.items()}


def lit_rows(page: Page) -> list[str]:
    """Return the names of the rows of the headline table that are lit."""
    rows = page.run(f"{every('#summary tr.lit')}.map((row) => row.cells[0].textContent)")
    return sorted(set(rows))


def column(page: Page, table: str, place: int) -> list[str]:
    """Return the texts of a column of the first table in a section, without what is below."""
    cells = f"document.querySelectorAll('{table} tbody')[0].rows"
    texts: list[str] = page.run(
        f"[...{cells}].map((row) => row.cells[{place}].innerText.split('\\n')[0].trim())"
    )
    return texts


def rows_of(text: str) -> list[dict[str, str]]:
    assert text.count("\r\n") == text.count("\n")
    return list(csv.DictReader(io.StringIO(text, newline="")))


APT = {  # in the place of the real one
    "installs": "case $* in *download-only*|*update) ;; *) /bin/cp $0 ${0%/*}/chromium;; esac",
    "fails": "echo E: no network >&2; exit 100",
    "hangs": "/bin/sleep 5",
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("installs", ""), ("fails", "no network"), ("hangs", "longer than"), ("missing", "only root")],
)
def test_chromium_is_installed_or_loudly_missed(
    kind: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chromium_module, "INSTALL_SECONDS", 0.5 if kind == "hangs" else 60.0)
    monkeypatch.setattr(chromium_module, "UNPACK_SECONDS", 0.0)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    if kind in APT:
        (tmp_path / "apt-get").write_text(f"#!/bin/sh\n{APT[kind]}\n")
        (tmp_path / "apt-get").chmod(0o755)
    if not reason:
        assert find_chromium() == str(tmp_path / "chromium")
        return
    with pytest.raises(pytest.skip.Exception, match=f"no Chromium: .*{reason}.*NOT tested"):
        find_chromium()


def test_the_tests_would_notice(page: Page, tmp_path: Path) -> None:
    script = "console.error('one'); fetch('http://127.0.0.1:9/'); setTimeout(() => { throw 'two' })"
    file = tmp_path / "bad.html"
    file.write_text(f"<html data-drawn=all><p>bad</p><script>{script}</script>")
    page.open(file)
    page.wait("true")
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert any("one" in complaint for complaint in page.complaints)
    assert len(page.complaints) >= 2
    assert page.requests == ["http://127.0.0.1:9/"]


def test_the_report_loads_in_peace_and_runs_no_text(page: Page, report: Path) -> None:
    page.open(report)
    assert page.complaints == []
    assert page.requests == []
    assert page.run("window.ran") is None
    assert page.run("document.querySelector('h1').textContent") == TITLE
    assert column(page, "#summary", 0) == RANKED
    undrawn = page.run(f"{every('.chart')}.filter((c) => !c.drawn).length")
    assert undrawn == 0
    legend = page.run(
        f"{every('#ece-by-level .role-legend-label text')}.map((text) => text.__data__.datum.value)"
    )
    assert legend == list(SECONDS)


def test_a_method_lights_up_everywhere_and_is_released(page: Page, report: Path) -> None:
    page.open(report)
    page.run("window.kept = [...document.querySelectorAll('.chart svg')]")
    page.click("#ece-by-level .role-legend-label text")
    assert lit_lines(page) == {"dropout": True, "falcon": False, SLY: False}
    assert lit_rows(page) == ["dropout"]
    page.click("#summary tbody tr:nth-child(1) td:nth-child(3)")
    assert lit_lines(page) == {"dropout": True, "falcon": True, SLY: False}
    assert lit_rows(page) == ["dropout", "falcon"]
    pressed = f"{every('.bar [aria-pressed=true]')}.map((b) => b.textContent)"
    assert page.run(pressed) == ["falcon", "dropout"]
    page.click(".bar .method")
    page.click("#summary tbody tr:nth-child(2) .method")
    assert set(lit_lines(page).values()) == {True}
    assert lit_rows(page) == []
    assert page.run(pressed) == ["all"]
    assert page.run("kept.every((svg) => svg.isConnected)"), "a figure was drawn again"
    assert page.complaints == []


def test_every_figure_and_table_follows(page: Page, report: Path) -> None:
    page.open(report, "#lit=falcon")
    page.wait("document.documentElement.dataset.painted === 'all'")
    dim = page.run(
        f"{every('.chart')}.filter((chart) => chart.marks.some("
        "([mark, methods]) => !methods.includes('falcon') && !mark.matches('.dim')))"
        ".map((chart) => chart.id)"
    )
    assert dim == []
    figures = set(page.run(f"{every('.chart:has(.dim)')}.map((c) => c.id)"))
    assert {"method-against-method", "micro-ece-by-shift", "accuracy-by-level"} <= figures
    assert {"training-history", "reliability-by-shift", "confidence-against-accuracy"} <= figures
    # the ground of a panel and the diagonal of a diagram are nobody's
    grounds = every(".chart [aria-hidden=true] path, .chart [aria-hidden=true] line")
    assert page.run(f"{grounds}.length") > 0
    assert page.run(f"{grounds}.some((mark) => mark.matches('.dim, .lit'))") is False
    pairs = page.run(
        f"{every('#comparison tbody tr')}.map("
        "(row) => [row.cells[0].textContent, row.matches('.lit')])"
    )
    assert pairs
    assert all(lit == ("falcon" in name) for name, lit in pairs)
    columns = page.run(
        f"{every('#shifts tbody tr')}.map("
        "(row) => [...row.cells].map((cell) => cell.matches('.lit')))"
    )
    assert all(row == [False, False, True, False] for row in columns)


def test_the_keyboard_lights_up_and_sorts(page: Page, report: Path) -> None:
    page.open(report)
    page.run("document.querySelector('.bar .all').focus()")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press(" ")
    assert lit_rows(page) == ["falcon"]
    page.run("document.querySelector('#summary tbody .method').focus()")
    page.page.keyboard.press("Enter")
    assert lit_rows(page) == []
    page.run("document.querySelector('#summary th:nth-child(5) .sort').focus()")
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Enter")
    assert column(page, "#summary", 0) == RANKED[::-1]
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_link_keeps_what_was_chosen(page: Page, report: Path) -> None:
    page.open(report)
    page.click("#ece-by-level .role-legend-label text:nth-of-type(1)")
    page.run(f"{every('.bar .method')}[2].click()")
    page.run(
        "(() => { const list = document.getElementById('explorer-shift'); list.value = 'noise';"
        " list.dispatchEvent(new Event('change')); })()"
    )
    page.wait("location.hash.includes('noise')")
    fragment = page.run("location.hash")
    page.page.goto("about:blank")
    page.open(report, fragment)
    assert lit_lines(page) == {"dropout": True, "falcon": False, SLY: True}
    assert page.run("document.getElementById('explorer-shift').value") == "noise"
    page.run("location.hash = '#lit=falcon&lit=nobody&shift=nowhere&level=77'")
    page.wait("document.getElementById('explorer-shift').value === 'rotation'")
    assert lit_lines(page) == {"dropout": False, "falcon": True, SLY: False}
    page.click(".bar .all")
    page.wait("!location.hash.includes('lit')")
    assert page.complaints == []


def test_tables_sort_by_number_then_falling_then_as_they_were(page: Page, report: Path) -> None:
    page.open(report)
    given = column(page, "#runs", 2)
    assert given == ["9.5", "10.0", "1,200.0", "100.0", "10.0", "none"]
    heading = "#runs thead th:nth-child(3)"
    page.click(f"{heading} .sort")
    assert page.run(f"document.querySelector('{heading}').ariaSort") == "ascending"
    # equal values keep their order, what is empty stays last
    assert column(page, "#runs", 2) == ["9.5", "10.0", "10.0", "100.0", "1,200.0", "none"]
    assert column(page, "#runs", 0)[1:3] == ["dropout", SLY]
    page.click(f"{heading} .sort")
    assert page.run(f"document.querySelector('{heading}').ariaSort") == "descending"
    assert column(page, "#runs", 2) == ["1,200.0", "100.0", "10.0", "10.0", "9.5", "none"]
    assert column(page, "#runs", 0)[2:4] == ["dropout", SLY]
    page.click(f"{heading} .sort")
    assert page.run(f"document.querySelector('{heading}').ariaSort") is None
    assert column(page, "#runs", 2) == given
    page.click("#runs thead th:nth-child(1) .sort")
    assert column(page, "#runs", 0) == [SLY, SLY, "dropout", "dropout", "falcon", "falcon"]
    page.click("#summary thead th:nth-child(5) .sort")  # 0.040 ± 0.014, 0.210 ± 0.014, ...
    page.click("#summary thead th:nth-child(5) .sort")
    assert column(page, "#summary", 0) == [SLY, "dropout", "falcon"]


def carried(page: Page, identity: str) -> Any:
    return page.run(f"JSON.parse(document.getElementById('{identity}').textContent)")


def test_any_shift_and_level_can_be_seen(page: Page, report: Path) -> None:
    page.open(report, "#lit=falcon&shift=rotation&level=1")
    data = carried(page, "explorer-data")
    rung = data["rungs"][1][0][0]
    shown = [f"{rung[name]:.3f}" for name in ("accuracy", "confidence", "ece")]
    assert [column(page, "#explorer", place) for place in range(5)] == [
        ["falcon"], *([word] for word in shown), [str(rung["n"])],
    ]  # fmt: skip
    dots = "document.querySelectorAll('#explorer-reliability .mark-symbol path').length"
    assert page.run(dots) == sum(point is not None for point in rung["bins"])
    size = "(({width, height}) => [width, height])(document.querySelector('#explorer canvas'))"
    page.wait(
        f"String({size}) === '4,2'"
    )  # two columns of a picture of six pixels and three levels
    steps = "document.querySelector('#explorer-confidence .mark-line path').getAttribute('d')"
    before = page.run(steps)
    page.run("document.getElementById('explorer-level').focus()")
    page.page.keyboard.press("Home")
    assert page.run("document.getElementById('explorer-shown').value") == "0 of 2"
    assert column(page, "#explorer", 1) == [f"{data['clean'][1]['accuracy']:.3f}"]
    page.wait(f"{steps} !== {json.dumps(before)}")
    page.wait(f"String({size}) === '2,2'")
    page.click(".bar .all")
    assert column(page, "#explorer", 0) == RANKED
    page.wait("document.querySelectorAll('#explorer-confidence .mark-line path').length === 3")
    page.wait("location.hash.includes('level=0')")
    assert page.complaints == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_diagram_fills_its_place(page: Page, report: Path, width: int) -> None:
    """It was drawn before its rows came, 8 pixels wide, where it is below the first screen."""
    page.resize(width)
    page.open(report)
    sizes = (
        f"{every('#explorer .chart')}.map((place) => "
        "place.querySelector('svg').getBoundingClientRect().width / place.clientWidth)"
    )
    assert min(page.run(sizes)) > 0.8
    assert page.complaints == []


def test_outliers_have_confidences_and_no_diagram(page: Page, report: Path, tmp_path: Path) -> None:
    before, start, rest = report.read_text().partition('id="explorer-data">')
    shown, end, after = rest.partition("</script>")
    data = json.loads(shown)
    data["shifts"][-1] = {"name": "others", "kind": "outliers", "levels": [1], "columns": 0}
    for shifts in data["rungs"]:
        shifts[-1] = [{**shifts[-1][0], "accuracy": None, "ece": None, "bins": None}]
    words = json.dumps(data).replace("<", "\\u003c")
    file = tmp_path / "outliers.html"
    file.write_text(before + start + words + end + after)
    page.open(file, "#shift=others")
    assert not page.run("document.getElementById('explorer-diagram').checkVisibility()")
    assert page.run("document.getElementById('explorer-level').disabled")
    assert column(page, "#explorer", 1) == ["n/a"] * 3
    shares = data["rungs"][0][-1][0]["cells"]
    drawn = page.run(
        "document.getElementById('explorer-confidence').drawn.view.data('explored')"
        ".filter((row) => row.series === 'dropout').map((row) => row.share)"
    )
    assert drawn[:-1] == pytest.approx([count / sum(shares) for count in shares])
    page.run(
        "(() => { const list = document.getElementById('explorer-shift'); list.value = 'noise';"
        " list.dispatchEvent(new Event('change')); })()"
    )
    page.wait(f"{every('#explorer-reliability .mark-line path')}.length === 3")
    page.settle()
    assert page.complaints == []


def test_a_table_is_downloaded_as_csv(page: Page, report: Path) -> None:
    page.open(report)
    table = rows_of(
        page.download(
            "#summary .tools .download", "digits-script-window-ran-true-script-every-method.csv"
        )
    )
    assert [row["Method"] for row in table] == ["falcon", "dropout", f"'{SLY}"]
    falcon, dropout, _ = table
    assert float(dropout["Mean micro ECE"]) == pytest.approx(0.21)
    assert float(dropout["Mean micro ECE, deviation"]) == pytest.approx(0.014)
    low, high = (float(dropout[f"Mean micro ECE, 95 % interval, {end}"]) for end in ("from", "to"))
    assert 0 <= low < high <= 1
    assert float(falcon["Training, s"]) == 650.0
    assert table[2]["Training, deviation, s"] == ""
    page.run("document.querySelector('#comparison details').open = true")
    pair = rows_of(
        page.download(
            "#comparison .tools .download", "digits-script-window-ran-true-script-accuracy.csv"
        )
    )[0]
    assert pair["Pair"] == "dropout less falcon"
    # a sign makes no formula of a number
    assert [pair[name][0] for name in ("Difference", "Share")] == ["+", "+"]
    assert float(pair["95 % interval, from"]) <= 0 <= float(pair["95 % interval, to"])
    page.click("#runs thead th:nth-child(3) .sort")
    runs = rows_of(
        page.download(
            "#runs .tools .download", "digits-script-window-ran-true-script-runs-and-provenance.csv"
        )
    )
    # as it is sorted, thousands without their comma
    assert [row["training seconds"] for row in runs][3:] == ["100.0", "1200.0", "none"]
    assert page.complaints == []


def test_all_rows_are_downloaded_as_csv(page: Page, report: Path) -> None:
    page.open(report)
    table = rows_of(
        page.download(
            "#summary .tools .download + .download", "digits-script-window-ran-true-script-rows.csv"
        )
    )
    wanted = list(csv.DictReader(io.StringIO(carried(page, "rows-csv"))))
    assert {row["series"] for row in wanted} == set(SECONDS)
    for row in wanted:
        row["series"] = row["series"].replace(SLY, f"'{SLY}")
    assert table == wanted


FITS = """
(() => {
  const seen = [...document.querySelectorAll('main *')].filter((e) => e.checkVisibility());
  const free = seen.filter((e) => !e.closest('.bar, .scroll, svg'));
  const wide = free.filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
  const cut = [...document.querySelectorAll('td, th')].filter((e) => e.checkVisibility()
    && e.scrollWidth > e.clientWidth + 1);
  const scrolled = [...document.querySelectorAll('.scroll')].filter((e) => e.checkVisibility()
    && e.scrollWidth > e.clientWidth + 1);
  return [document.scrollingElement.scrollWidth <= innerWidth, wide.length, cut.length,
    scrolled.map((e) => e.closest('section').id)];
})()
"""
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("name", ["report", "score"])
def test_nothing_overflows(page: Page, name: str, request: pytest.FixtureRequest) -> None:
    page.open(request.getfixturevalue(name))
    for width in (1440, 390):
        for dark in (False, True):
            page.resize(width, dark=dark)
            page.run(f"{every('details')}.forEach((one) => {{ one.open = true; }})")
            page.wait(f"innerWidth === {width}")
            page.settle()
            fits, wide, cut, scrolled = page.run(FITS)
            assert fits, f"{name} is wider than {width} pixels"
            assert (wide, cut) == (0, 0), f"{name} at {width}"
            # on a phone tables with one column per method may be wider than their container
            assert set(scrolled) <= ({"shifts", "summary"} if width < 700 else set())
            assert page.run(GROUND) == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert page.complaints == []


def test_on_a_phone_a_list_sorts(page: Page, report: Path) -> None:
    page.open(report)
    page.resize(390)
    page.settle()
    page.run(
        "(() => { const list = document.querySelector('#summary .chooser select');"
        " list.value = '4 -1'; list.dispatchEvent(new Event('change')); })()"
    )
    assert column(page, "#summary", 0) == RANKED[::-1]
    assert page.run("document.querySelector('#summary .chooser').checkVisibility()")
    assert not page.run("document.querySelector('#summary .sort').checkVisibility()")


def test_on_paper_all_is_open_and_whole(page: Page, report: Path) -> None:
    page.open(report)
    opened = page.run("document.querySelectorAll('details[open]').length")
    page.run(
        "addEventListener('afterprint', () => { window.after = true; });"
        "addEventListener('beforeprint', () => {"
        " window.leftClosed = document.querySelectorAll('details:not([open])').length; })"
    )
    assert page.page.pdf(print_background=True).startswith(b"%PDF")
    assert page.run("leftClosed") == 0
    page.wait("window.after")
    assert page.run("document.querySelectorAll('details[open]').length") == opened
    page.resize(700, height=1000)
    page.page.emulate_media(media="print")
    assert page.run(f"{every('.bar, .tools, .controls')}.some((e) => e.checkVisibility())") is False
    right = page.run(f"{every('.chart svg')}.map((e) => e.getBoundingClientRect().right)")
    assert max(right) <= 700


def test_without_scripts_the_tables_are_there(browser: "Browser", report: Path) -> None:
    page = Page(browser, scripts=False)
    page.load(report)
    assert column(page, "#summary", 0) == RANKED
    assert page.run("document.querySelector('noscript p').checkVisibility()")
    assert page.run(f"{every('#explorer, .bar, .tools')}.some((e) => e.checkVisibility())") is False


def test_the_page_of_predictions(page: Page, score: Path) -> None:
    page.open(score)
    assert page.complaints == []
    assert page.requests == []
    assert page.run("window.ran") is None
    page.click("#by-group thead th:nth-child(2) .sort")
    assert column(page, "#by-group", 1) == ["40", "70", "1,000"]
    table = rows_of(
        page.download("#by-group .download", "digits-script-window-ran-true-script-by-group.csv")
    )
    assert [row["Group"] for row in table] == ["'+c", "b", "a"]
    assert [row["Examples"] for row in table] == ["40", "70", "1000"]
