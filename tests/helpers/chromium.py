"""Chromium for the tests: the system's program, driven by Playwright."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright import sync_api

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
INSTALL_SECONDS = 90.0  # for all of it; the package and what it needs are about 100 MB
UNPACK_SECONDS = 25.0  # what must be left of them when unpacking starts: it is not broken off
ANSWER_SECONDS = 60.0
NOTE = "no Chromium"  # begins the reason of every test that is skipped because it is missing


def find_chromium() -> str:
    """Return the path of Chromium, installed if need be; skip the test, loudly, without it."""
    found = _program()
    if found is None:
        reason = _install()
        found = _program()
        if found is None:
            pytest.skip(f"{NOTE}: {reason}. What the pages do in a browser was NOT tested.")
    return found


def _program() -> str | None:
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def _install() -> str:
    """Install Debian's package within the time allowed; return why it may not be there."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "it is not installed, and only root with apt-get could install it"
    deadline = time.monotonic() + INSTALL_SECONDS
    take = ["install", "--yes", "--no-install-recommends", "chromium"]
    for arguments in (["update"], ["--download-only", *take], take):
        left = deadline - time.monotonic()
        if arguments == take and left < UNPACK_SECONDS:
            return f"apt-get took too long, more than {INSTALL_SECONDS - UNPACK_SECONDS:.0f} s"
        try:
            _apt(arguments, None if arguments == take else left)
        except subprocess.TimeoutExpired:
            return f"apt-get took longer than {INSTALL_SECONDS:.0f} s"
        except subprocess.CalledProcessError as error:
            return f"apt-get {arguments[0]} failed: {error.stderr.strip()[-200:]}"
    return "apt-get installed it, but it is not on the path"


def _apt(arguments: list[str], seconds: float | None) -> None:
    quick = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"]
    subprocess.run(
        ["apt-get", "--quiet", *quick, "-o", "DPkg::Lock::Timeout=10", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=True,
    )


class Page:
    """A page in the browser: what it logged, what it asked for, and how a person uses it."""

    def __init__(self, browser: "sync_api.Browser", *, scripts: bool = True) -> None:
        self.page = browser.new_page(java_script_enabled=scripts)
        self.page.set_default_timeout(1000 * ANSWER_SECONDS)
        self.complaints: list[str] = []  # errors of scripts, of the console and of the browser
        self.requests: list[str] = []  # all but the page itself
        self._own = ""
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)

    def open(self, file: Path, fragment: str = "") -> None:
        """Load a file and wait until its figures are drawn."""
        self.load(file, fragment)
        self.settle()

    def load(self, file: Path, fragment: str = "") -> None:
        self._own = file.as_uri()
        self.page.goto(self._own + fragment)

    def resize(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Give the window this size, in light or dark."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_viewport_size({"width": width, "height": height})

    def settle(self) -> None:
        """Wait until the figures are drawn, as wide as their containers are."""
        fits = "!chart.checkVisibility() || chart.drawnWidth === chart.clientWidth"
        charts = f"{every('.chart')}.every((chart) => {fits})"
        self.wait(f"document.documentElement.dataset.drawn === 'all' && {charts}")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, of a promise once it is fulfilled."""
        return self.page.evaluate(expression)

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.page.wait_for_function(
            f"document.readyState === 'complete' && ({condition})", polling=20
        )

    def click(self, selector: str) -> None:
        """Click with the mouse in the middle of the first such element."""
        self.page.locator(selector).first.click()

    def download(self, selector: str, name: str) -> str:
        """Click, wait for the download of that name, and return its text as it is."""
        with self.page.expect_download() as download:
            self.click(selector)
        assert download.value.suggested_filename == name
        return download.value.path().read_bytes().decode()

    def close(self) -> None:
        self.page.close()

    def _on_console(self, message: "sync_api.ConsoleMessage") -> None:
        if message.type in ("error", "assert"):
            self.complaints.append(message.text)

    def _on_request(self, request: "sync_api.Request") -> None:
        if request.url.partition("#")[0] != self._own and not request.url.startswith("data:"):
            self.requests.append(request.url)


def every(selector: str) -> str:
    """Return the JavaScript expression of a list of all such elements."""
    return f"[...document.querySelectorAll({json.dumps(selector)})]"


@contextmanager
def chromium() -> Iterator["sync_api.Browser"]:
    """Run a browser; the tests may run as root, and open only pages of their own."""
    program = find_chromium()
    from playwright.sync_api import sync_playwright  # not above: all tests import this module

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
