"""Chromium for the tests, driven by its DevTools protocol over a pipe.

The pipe needs no package: messages are JSON with a zero byte after each, commands go in at
descriptor 3 of the browser and answers come out at 4.
https://chromedevtools.github.io/devtools-protocol
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
INSTALL_SECONDS = 90.0  # for all of it; the package and what it needs are about 100 MB
UNPACK_SECONDS = 25.0  # what must be left of them when unpacking starts: it is not broken off
ANSWER_SECONDS = 60.0
NOTE = "no Chromium"  # begins the reason of every test that is skipped for want of it
ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # the tests may run as root, and open pages of their own alone
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",  # as on a phone: the width is the same with and without
    "--remote-debugging-pipe",
)
KEYS = {
    "Enter": {"code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    " ": {"code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
    "Tab": {"code": "Tab", "windowsVirtualKeyCode": 9},
}
Message = dict[str, Any]


def find_chromium() -> str:
    """Return the browser's program, installed if need be; skip the test, loudly, where none is."""
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
    """Install Debian's package within the time allowed; return why it is not there, if not."""
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


class Browser:
    """A running Chromium; pages are opened in it."""

    def __init__(self, program: str, folder: Path) -> None:
        self.downloads = folder / "downloads"
        self.downloads.mkdir()
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        arguments = [program, *ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,  # Python's own are closed anyway; 3 and 4 are made below
            preexec_fn=lambda: _place(commands, answers),
        )
        os.close(commands)
        os.close(answers)
        self._pending, self._count = b"", 0
        self._hearers: dict[str, Callable[[Message], None]] = {}
        self.call(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(self.downloads),
            eventsEnabled=False,
        )

    def call(self, method: str, session: str = "", **parameters: object) -> Message:
        """Send a command and return its answer; what else comes is told to its page."""
        self._count += 1
        number = self._count
        message: Message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._tell(answer)

    def on_event(self, session: str, hearer: Callable[[Message], None]) -> None:
        self._hearers[session] = hearer

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)

    def _tell(self, event: Message) -> None:
        hearer = self._hearers.get(event.get("sessionId", ""))
        if hearer:
            hearer(event)

    def _next(self, deadline: float, method: str) -> Message:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"Chromium did not answer {method} within {ANSWER_SECONDS:.0f} s"
            piece = os.read(self._from, 1 << 20)
            assert piece, "Chromium ended"
            self._pending += piece
        first, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(first))


def _place(commands: int, answers: int) -> None:
    """Give the child the two ends where Chromium looks for them."""
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]
    os.dup2(high[0], 3)
    os.dup2(high[1], 4)


class Page:
    """A page in the browser: what it logged, what it asked for, and hands to work it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []  # errors of scripts, of the console and of the browser
        self.requests: list[str] = []  # all but the page itself
        self._own = ""
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._target, self._session = target, attached["sessionId"]
        browser.on_event(self._session, self._hear)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Message:
        return self.browser.call(method, self._session, **parameters)

    def open(self, file: Path, fragment: str = "") -> None:
        """Load a file and wait until its figures are drawn."""
        self._own = file.as_uri()
        self.call("Page.navigate", url=self._own + fragment)
        self.settle()

    def resize(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Make the window so wide, in light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def settle(self) -> None:
        """Wait until the figures are drawn, as wide as their places are."""
        fits = "!chart.clientWidth || chart.drawnWidth === chart.clientWidth"
        charts = f"{every('.chart')}.every((chart) => {fits})"
        self.wait(f"document.documentElement.dataset.drawn === 'all' && {charts}")

    def run(self, expression: str) -> Any:
        """Return what a JavaScript expression gives, a promise's value once it is there."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until a JavaScript expression holds."""
        deadline = time.monotonic() + seconds
        while not self.run(f"document.readyState === 'complete' && ({condition})"):
            assert time.monotonic() < deadline, f"never came: {condition}; {self.complaints}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click with the mouse in the middle of the first such element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(
            "((box) => [box.x + box.width / 2, box.y + box.height / 2])"
            f"({element}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **KEYS[key])
        released = {name: value for name, value in KEYS[key].items() if name != "text"}
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **released)

    def downloaded(self, name: str) -> str:
        """Wait for a downloaded file, take it away and return its text as it is."""
        file, deadline = self.browser.downloads / name, time.monotonic() + 20
        while not file.exists():
            assert time.monotonic() < deadline, f"no download {name}"
            time.sleep(0.02)
        text = file.read_bytes().decode()
        file.unlink()
        return text

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(taken["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self._target)

    def _hear(self, event: Message) -> None:
        method, told = event["method"], event["params"]
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description")))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.complaints.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if url.partition("#")[0] != self._own and not url.startswith("data:"):
                self.requests.append(url)


def every(selector: str) -> str:
    """Return the expression of a list of all such elements."""
    return f"[...document.querySelectorAll({json.dumps(selector)})]"


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Run a browser that keeps all it keeps in a folder."""
    browser = Browser(find_chromium(), folder)
    try:
        yield browser
    finally:
        browser.close()
