"""Let the reference read the section ``Example:`` of a docstring as Google's ``Examples:``."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the section, so that its lines are shown as code and not as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
