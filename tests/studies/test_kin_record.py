"""A run records the families that it was fitted on, and which of the study's shifts are kin."""

from pathlib import Path
from typing import Any

import pytest

from falconcal.io.output_folder import DEFAULT_VARIANT, RunKey
from falconcal.methods import Falcon, L2Dropout
from falconcal.recalibration import Temperature
from falconcal.studies.kin_record import fitted_families
from falconcal.studies.run_files import read_json
from falconcal.studies.runner import do_runs
from tests.helpers.small_data import small_network
from tests.helpers.small_studies import TEXT, Silent
from tests.helpers.stripes import read_own

METHODS = """
[methods.falcon_waves]
method = "falcon"
epochs = 12
learning_rate = 0.01
directions = ["adversarial", "wave | swirl"]
[methods.trusted]
method = "temperature"
base = "dropout"
perturbed = ["contrast", "gaussian_noise"]
fit_examples = 30
[methods.twice]
method = "temperature"
base = "trusted"
[methods.plain_temperature]
method = "temperature"
base = "falcon_waves"
"""
CHANGES = ('shifts=["shear", "corrupt_shot_noise", "contrast"]', 'selection_shifts=["wave"]')
SMALL = ("levels=1",)


def recorded(directory: Path, method: str) -> tuple[Any, Any]:
    record = read_json(RunKey(DEFAULT_VARIANT, method, 0).folder(directory) / "run.json")
    return record.get("fitted_on"), record.get("kin")


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.errors.CalibrationWarning")  # of tiny data
def test_runs_say_what_they_were_fitted_on(tmp_path: Path) -> None:
    study = read_own(TEXT + METHODS, "test", (*CHANGES, *SMALL))
    assert do_runs(study, tmp_path, Silent()) == {}
    assert recorded(tmp_path, "dropout") == (None, None)
    assert recorded(tmp_path, "falcon") == (None, None)  # adversarial is no shift
    # contrast, which the study tests, is left out of the fit
    assert recorded(tmp_path, "trusted") == (["gaussian_noise"], ["corrupt_shot_noise"])
    assert recorded(tmp_path, "falcon_waves") == (["wave | swirl"], ["wave"])
    # what a base was fitted on counts for those that build on it
    assert recorded(tmp_path, "twice") == recorded(tmp_path, "trusted")
    assert recorded(tmp_path, "plain_temperature") == recorded(tmp_path, "falcon_waves")


def test_directions_count_through_bases_and_once() -> None:
    method = Temperature(base=Falcon(directions=("erase", "contrast", "contrast", "adversarial")))
    assert fitted_families(method, small_network()) == ["contrast"]
    assert fitted_families(L2Dropout(), small_network()) == []
