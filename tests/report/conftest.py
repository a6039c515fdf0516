"""A browser for the tests of this folder, and a page in it as wide as a desktop's window."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers.chromium import Page, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    # not for the whole session: Playwright's event loop would be in the way of other tests' own
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: "Browser") -> Iterator[Page]:
    opened = Page(browser)
    opened.resize(1440)
    yield opened
    opened.close()
