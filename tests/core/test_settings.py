"""Settings classes: what describes a setting is found wherever a class has it from."""

import inspect

import pytest

from falconcal.core.settings import Count, described_settings, settings
from falconcal.data import DATASETS
from falconcal.methods import METHODS


@settings
class Parent:
    """The class that others inherit from."""

    epochs: Count = 10
    """How often the data is seen."""

    rate: float = 0.1
    """How far one step goes."""

    silent: bool = False


@settings
class Child(Parent):
    """Has a setting of its own, another default and another description."""

    rate: float = 0.2
    epochs: Count = 20
    """How often the data is seen by the child."""

    size: Count = 3
    """How many there are."""


def test_a_string_under_a_field_describes_it() -> None:
    assert described_settings(Parent) == {
        "epochs": "How often the data is seen.",
        "rate": "How far one step goes.",
        "silent": "",
    }


def test_descriptions_are_inherited_unless_the_class_has_its_own() -> None:
    assert described_settings(Child) == {
        "epochs": "How often the data is seen by the child.",
        "rate": "How far one step goes.",
        "silent": "",
        "size": "How many there are.",
    }


@pytest.mark.parametrize("name", [*METHODS, *DATASETS])
def test_every_setting_of_a_method_and_a_dataset_is_described(name: str) -> None:
    entry = {**METHODS, **DATASETS}[name]
    settings_class = getattr(entry, "func", entry)  # FALCON's ensemble fixes the base of a class
    if not isinstance(settings_class, type):
        assert not inspect.signature(settings_class).parameters  # a function without settings
        return
    missing = [setting for setting, text in described_settings(settings_class).items() if not text]
    assert not missing
