"""Changes by ``--set``: one setting of all methods that have it."""

import pytest

from falconcal.core.method import innermost_method
from falconcal.errors import UsageError
from falconcal.studies import find_study
from falconcal.studies.study import Study
from tests.helpers.small_studies import TEXT
from tests.helpers.stripes import read_own

METHODS = """
[methods.by_name]
method = "temperature"
base = "falcon"
[methods.by_table]
method = "temperature"
base.method = "evidential"
base.epochs = 7
[methods."tests.helpers.stripes:Dying"]
epochs = 9
"""


def study(*changes: str) -> Study:
    return read_own(TEXT + METHODS, "test", changes)


def epochs(found: Study) -> dict[str, int]:
    return {name: innermost_method(found.method(name)).epochs for name in found.methods}  # type: ignore[attr-defined]


def test_a_star_sets_a_setting_of_every_method_that_has_it() -> None:
    assert set(epochs(study()).values()) == {12, 7, 9}
    assert set(epochs(study("*.epochs=5")).values()) == {5}
    assert set(epochs(study("methods.*.epochs=5")).values()) == {5}


def test_methods_without_the_setting_stay_as_they_are() -> None:
    plain, changed = study(), study("*.entropy_weight=0.25")
    assert changed.methods["falcon"]["entropy_weight"] == 0.25
    assert changed.methods["dropout"] == plain.methods["dropout"]
    assert changed.method("by_name").base == changed.method("falcon")  # type: ignore[attr-defined]


def test_later_changes_go_before_earlier_ones() -> None:
    found = epochs(study("*.epochs=5", "falcon.epochs=3"))
    assert (found["falcon"], found["dropout"]) == (3, 5)
    assert epochs(study("falcon.epochs=3", "*.epochs=5"))["falcon"] == 5


def test_an_old_name_takes_the_place_of_the_new_one() -> None:
    found = find_study("digits", ["falcon.calibration_fraction=0.5", "*.share=0.25"])
    assert found.method("falcon").calibration_fraction == 0.25  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("*.epoch=5", "no method of the study has the setting 'epoch'"),
        ("*.epochs=many", "epochs"),
        ("*.seed=1", "use --seeds"),
    ],
)
def test_a_setting_that_no_method_takes_is_refused(change: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        study(change)
