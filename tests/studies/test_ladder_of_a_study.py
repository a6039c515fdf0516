"""A study fits no calibrator on what it tests, and says so."""

import pytest

from falconcal.recalibration import ShiftTemperature, Temperature
from falconcal.studies.run import without_tested
from tests.helpers.small_studies import TEXT
from tests.helpers.stripes import read_own


class Notes:
    """Keeps what a run notes."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("tested", "left"),
    [('["shear"]', []), ('["contrast", "shear | wave"]', ["contrast", "wave"])],
)
def test_tested_families_are_left_out_of_the_ladder(tested: str, left: list[str]) -> None:
    changes = [f"shifts={tested}", 'selection_shifts=["swirl"]']  # these are not tested
    study, notes = read_own(TEXT, "test", changes), Notes()
    method = without_tested(study, ShiftTemperature(), notes)  # type: ignore[arg-type]
    assert list(method.leave_out) == left
    assert set(left).isdisjoint(method.ladder.families("image"))
    assert notes.said == (
        [f"not fitted on {', '.join(left)}, which the study tests"] if left else []
    )


def test_a_calibrator_on_clean_data_stays_as_it_is() -> None:
    study = read_own(TEXT, "test", ['shifts=["contrast"]', "selection_shifts=[]"])
    method = Temperature()
    assert without_tested(study, method, Notes()) == method  # type: ignore[arg-type]
