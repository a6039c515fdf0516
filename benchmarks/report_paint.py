"""How soon the report of 21 methods shows something in Chromium, and how soon a click is seen.

    python -m benchmarks.report_paint results/report/paint.json

A made study, nine shifts of nine levels. First paint is what Chromium reports; a click on a method
in the bar, once all figures are drawn, counts until the next frame is painted. Medians of several
rounds.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

import torch

from benchmarks.pages import write_between
from benchmarks.report_size import Shape, make_study
from falconcal.report import study_evidence, write_report
from tests.helpers.chromium import Page, chromium

METHODS = 21
SHAPE = Shape("nine shifts of nine levels", 9, 9, 300, tuple(f"method_{n}" for n in range(METHODS)))
CLICK = """
(async () => {
  const button = document.querySelectorAll('.bar .method')[NUMBER];
  const begun = performance.now();
  button.click();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begun;
})()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_study(Path(folder), SHAPE)
        # how many resamples there are changes no mark of the page
        study_evidence.RESAMPLES_PER_PAIR = 0
        found = measure(write_report(Path(folder), ()), arguments.rounds)
    print(json.dumps(found, indent=1))
    if arguments.file is not None:
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
        write_page(found)


class MainThread:
    """How long the page's main thread has worked, whatever else the machine does."""

    def __init__(self, page: Page) -> None:
        self.session = page.page.context.new_cdp_session(page.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def milliseconds(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def measure(report: Path, rounds: int) -> dict[str, float]:
    """Return medians in milliseconds, the size of the page, and the load of the machine."""
    paints, drawn, clicks, spent = [], [], [], []
    with chromium() as browser:
        for _ in range(rounds):
            page = Page(browser)
            page.resize(1440)
            page.load(report)
            page.wait("performance.getEntriesByName('first-contentful-paint').length")
            entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(page.run(entry))
            page.settle()
            drawn.append(page.run("performance.now()"))
            main_thread = MainThread(page)
            for number in range(5):
                before = main_thread.milliseconds()
                clicks.append(page.run(CLICK.replace("NUMBER", str(number))))
                spent.append(main_thread.milliseconds() - before)
                page.wait("document.documentElement.dataset.painted === 'all'")
            page.close()
    return {
        "methods": METHODS,
        "first_paint_ms": round(statistics.median(paints)),
        "all_drawn_ms": round(statistics.median(drawn)),
        "click_ms": round(statistics.median(clicks)),
        "slowest_click_ms": round(max(clicks)),
        "click_processor_ms": round(statistics.median(spent)),
        "slowest_click_processor_ms": round(max(spent)),
        "page_megabytes": round(report.stat().st_size / 1e6, 2),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[1], 1),
    }


def write_page(found: dict[str, float]) -> None:
    """Put the sentence into the page on studies."""
    text = (
        f"The report of {found['methods']} methods, {found['page_megabytes']} MB, shows its first "
        f"words in Chromium after {found['first_paint_ms']} ms. A click on a method\ntakes "
        f"{found['click_processor_ms']} ms of the page's processor time until the next frame, at "
        f"most {found['slowest_click_processor_ms']}, and was seen after {found['click_ms']} ms\n"
        f"by the clock (medians; {found['cores']} cores under a load of {found['load']}, where "
        "others were at work too)."
    )
    write_between("docs/studies.md", "paint", "report_paint", text)


if __name__ == "__main__":
    main()
