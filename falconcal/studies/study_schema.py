"""The study file for editors and for people: its schema, and a commented file to begin with."""

import json
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from falconcal.core.settings import described_settings
from falconcal.data import DATASETS
from falconcal.methods import METHODS
from falconcal.models import MODELS
from falconcal.shifts import OUTLIERS, SHIFTS
from falconcal.studies.study import Study

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NOT_IN_FILES = {"trust", "seed"}  # given by the caller; by --seeds
REQUIRED = ["name", "dataset", "model", "shifts", "methods"]
TABLES_OF_FILES = {  # that become something else when a file is read
    "smoke": "Changes for falconcal run --smoke, with keys as for --set.",
    "sweeps": "Keys as for --set with lists of values: one variant per value.",
}
BEGIN_WITH = ("dropout", "falcon")  # methods of the commented file


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files: every setting with its type and its meaning.

    Returns:
        The schema, ready for JSON.

    Example:
        >>> from falconcal.studies import study_schema
        >>> study_schema()["properties"]["seeds"]["description"]
        'Number of runs per method and variant, with the seeds 0, 1, ...'
    """
    properties = _properties(Study)
    for name, known in (("dataset", DATASETS), ("model", MODELS)):
        properties[name] = {**_named(known), "description": properties[name]["description"]}
    names = {"shifts": list(SHIFTS), "selection_shifts": list(SHIFTS), "outliers": list(OUTLIERS)}
    for name, entries in names.items():
        properties[name]["items"] = {"anyOf": [{"enum": entries}, {"type": "string"}]}
    properties["methods"] |= {"properties": _methods(), "additionalProperties": {"type": "object"}}
    for name, meaning in TABLES_OF_FILES.items():
        properties[name] = {"type": "object", "description": meaning}
    return {
        "$schema": DRAFT,
        "title": "A study of falconcal",
        "type": "object",
        "properties": properties,
        "required": REQUIRED,
        "additionalProperties": False,
    }


def schema_text() -> str:
    """Return the schema as a file has it."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


def _methods() -> dict[str, Any]:
    """Return the schema of each method's table."""
    common = {"method": {"type": "string", "description": "The method, if the table has a name."}}
    return {
        name: {"type": "object", "properties": {**_properties(method), **common}}
        for name, method in METHODS.items()
    }


def _properties(settings: Any) -> dict[str, Any]:
    """Return the schema of every setting of a class, with its description."""
    hints = get_type_hints(settings, include_extras=True)
    return {
        name: {**_type_schema(hints[name]), "description": " ".join(text.split())}
        for name, text in described_settings(settings).items()
        if name not in NOT_IN_FILES
    }


def _type_schema(hint: Any) -> dict[str, Any]:
    """Return the schema of a type; what has none, such as another method, may be anything."""
    try:
        found = TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return {}
    written: dict[str, Any] = _as_toml(found)
    return written


def _as_toml(value: Any) -> Any:
    """Return a schema in which None is the text "none", as TOML writes it, and no default."""
    if isinstance(value, list):
        return [_as_toml(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "null":
        return {"const": "none"}
    return {name: _as_toml(one) for name, one in value.items() if name != "default"}


def _named(known: Mapping[str, object]) -> dict[str, Any]:
    name = {"anyOf": [{"enum": list(known)}, {"type": "string"}]}
    table = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    return {"anyOf": [name, table]}


def commented_study(name: str) -> str:
    """Return a study file to begin with: what must be there, and all else as comments.

    Args:
        name: The name of the study.

    Returns:
        TOML that ``falconcal run`` accepts as it is.

    Example:
        >>> from falconcal.studies import commented_study
        >>> "[methods.falcon]" in commented_study("mine")
        True
    """
    meaning = described_settings(Study)
    lines = [
        "# A study: which methods to train on which data, and under which shifts to test them.",
        f"# Run it with: falconcal run {name}.toml",
        "",
    ]
    for setting, value in {
        "name": name,
        "title": "My study",
        "dataset": "digits",
        "model": "lenet",
        "batch_size": 100,
        "seeds": 1,
        "shifts": ["rot_left", "shear", "gaussian_noise"],
    }.items():
        lines += [*_comment(meaning[setting]), f"{setting} = {json.dumps(value)}", ""]
    for setting in ("selection_shifts", "outliers", "test_examples", "levels", "note"):
        lines += [*_comment(meaning[setting]), f"# {setting} =", ""]
    return "\n".join([*lines, *_method_lines()]).rstrip() + "\n"


def _method_lines() -> list[str]:
    """Return a table per method, the settings of which are comments that show their defaults."""
    lines = ["# One table per method; falconcal list methods --settings shows all settings.", ""]
    for name in BEGIN_WITH:
        lines += [f"[methods.{name}]", "epochs = 10"]
        method: Any = METHODS[name]
        for setting, text in described_settings(method).items():
            if setting not in (*NOT_IN_FILES, "epochs"):
                lines.append(f"# {setting}: {' '.join(text.split())}")
        lines.append("")
    return lines


def _comment(text: str) -> list[str]:
    return [f"# {' '.join(text.split())}"]
