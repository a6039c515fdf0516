"""Settings that were renamed: the old name is read from files, and from Python with a warning."""

import json
from pathlib import Path

import pytest

from falconcal.core.settings import RENAMED, renamed_settings
from falconcal.errors import UsageError
from falconcal.methods import Ensemble, Falcon, make_method, plain_settings
from falconcal.studies.store import Store
from falconcal.studies.study import Study
from tests.helpers.stripes import read_own

TEXT = """
name = "renamed"
dataset = "tests.helpers.stripes:load_stripes"
model = "tests.helpers.stripes:make_small"
shifts = ["shear"]
judging_examples = 7
[methods.dropout]
[methods.falcon]
share = 0.5
"""


def falcon_of(study: Study) -> Falcon:
    method = study.method("falcon")
    assert isinstance(method, Falcon)
    return method


def test_every_new_name_is_a_setting_and_no_old_one_is() -> None:
    names = {*Falcon.__dataclass_fields__, *Study.__dataclass_fields__}
    assert names >= set(RENAMED.values())
    assert not names & set(RENAMED)


def test_python_is_warned_and_files_are_not() -> None:
    with pytest.warns(FutureWarning, match="share is now called calibration_fraction"):
        assert Falcon(share=0.5) == Falcon(calibration_fraction=0.5)  # type: ignore[call-arg]
    assert make_method({"method": "falcon", "share": 0.5}) == Falcon(calibration_fraction=0.5)
    study = read_own(TEXT, "test")
    assert (study.selection_examples, falcon_of(study).calibration_fraction) == (7, 0.5)


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="got share, its old name, too: remove share"):
        make_method({"method": "falcon", "share": 0.5, "calibration_fraction": 0.5})


def test_another_class_may_have_a_setting_of_the_old_name() -> None:
    assert renamed_settings(["share"], {"share": 1}) == {"share": 1}
    assert renamed_settings([], {"share": 1}) == {"share": 1}  # refused as unknown later


@pytest.mark.parametrize("key", ["share", "calibration_fraction"])
@pytest.mark.parametrize("written", ["share", "calibration_fraction"])
def test_a_change_by_either_name_replaces_what_the_file_says(key: str, written: str) -> None:
    text = TEXT.replace("share", written)
    assert falcon_of(read_own(text, "test", [f"falcon.{key}=0.25"])).calibration_fraction == 0.25
    swept = read_own(f'{text}\n[sweeps]\n"falcon.{key}" = [0.125]', "test")
    assert falcon_of(swept.variant(f"{key}=0.125")).calibration_fraction == 0.125
    assert read_own(text, "test", ["selection_examples=3"]).selection_examples == 3
    assert read_own(text, "test", ["judging_examples=3"]).selection_examples == 3


def test_a_folder_that_was_made_with_the_old_names_is_gone_on_with(tmp_path: Path) -> None:
    text = TEXT + '[methods.calibrated]\nmethod = "temperature"\nbase.method = "falcon_ensemble"\n'
    study = read_own(text, "test").resolved()
    stored = json.dumps(study).replace("calibration_fraction", "share")
    stored = stored.replace("selection_examples", "judging_examples")
    assert '"ensemble"' in stored
    stored = stored.replace('"ensemble"', '"falcon_ensemble"')
    (tmp_path / "study.json").write_text(stored)
    (tmp_path / "reference").mkdir()
    assert Store(tmp_path).check(study)["methods"] == study["methods"]
    (tmp_path / "study.json").write_text(stored.replace('"judging_examples": 7', '"seeds": 1'))
    with pytest.raises(Exception, match="selection_examples: not set there, 7 now"):
        Store(tmp_path).check(study)


def test_an_ensemble_of_falcons_is_stored_as_an_ensemble_with_that_base() -> None:
    method = make_method({"method": "falcon_ensemble", "size": 2})
    assert method == Ensemble(base=Falcon(), size=2)
    stored = plain_settings(method)
    assert (stored["method"], stored["base"]["method"]) == ("ensemble", "falcon")
