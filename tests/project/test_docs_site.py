"""The documentation's site in a real Chromium: no overflow, no errors, nothing that bars people."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.helpers.accessibility import grave_faults
from tests.helpers.chromium import Page, chromium, every
from tests.helpers.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]
PAGES = ("", "which_method/", "tutorials/own_drift/", "training/", "results/mnist/", "gallery/")
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built and served from this machine."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened = Page(browser)
        yield opened
        opened.close()


@pytest.mark.parametrize("address", PAGES)
@pytest.mark.parametrize("width", [390, 1440])
def test_pages_fit_and_have_no_grave_fault(site: str, page: Page, address: str, width: int) -> None:
    # one visitor, whose system changes: the page follows it, whatever it was at the first visit
    for dark, scheme in ((True, "slate"), (False, "default")):
        page.resize(width, dark=dark)
        page.page.goto(site + address)
        page.wait("true")
        assert page.run("document.body.dataset.mdColorScheme") == scheme
        look_at(page)


def look_at(page: Page) -> None:
    assert page.run(WIDER) == 0
    assert page.complaints == []
    assert grave_faults(page, unfolded=False) == []


def test_search_finds_the_page_that_explains_first(site: str, page: Page) -> None:
    page.resize(1440)
    page.page.goto(site)
    page.page.fill(".md-search__input", "shift temperature")
    page.wait(f"{every('.md-search-result__link')}.length > 0")
    found = page.run("document.querySelector('.md-search-result__link').pathname")
    assert found == "/shift_temperature/"
