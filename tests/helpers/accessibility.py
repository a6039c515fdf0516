"""axe-core, which looks for faults of accessibility on a page; tests are skipped without it."""

import os
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.chromium import Page, every

VARIABLE = "FALCONCAL_AXE"  # the path of axe.min.js, as the npm package axe-core has it
GRAVE = ("serious", "critical")


@cache
def _script() -> str | None:
    file = Path(os.environ.get(VARIABLE, ""))
    return file.read_text(encoding="utf-8") if file.is_file() else None


def grave_faults(page: Page, *, unfolded: bool = True) -> list[str]:
    """Return the serious and critical faults of a page, with everything unfolded or as it opens."""
    script = _script()
    if script is None:
        pytest.skip(f"no axe-core: {VARIABLE} names no axe.min.js. Accessibility was NOT tested.")
    if unfolded:
        page.run(f"{every('details')}.forEach((one) => {{ one.open = true; }})")
        page.settle()
    page.run(script)
    found = page.run(
        "axe.run().then((result) => result.violations.map("
        "(one) => [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 200))]))"
    )
    return [f"{rule}: {nodes}" for impact, rule, nodes in found if impact in GRAVE]
