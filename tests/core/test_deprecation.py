"""Old names still work, and say what to use."""

import types
import warnings

import pytest

from falconcal.core.deprecation import moved_names, renamed_function, renamed_setting
from falconcal.errors import UsageError


def double(number: int, *, plus: int = 0) -> int:
    return 2 * number + plus


def test_a_renamed_function_does_the_same_and_names_the_caller() -> None:
    twice = renamed_function("twice", double, since="0.2")
    with pytest.warns(
        FutureWarning, match=r"^twice .* since falconcal 0\.2: use double\.$"
    ) as seen:
        assert twice(3, plus=1) == 7
    assert [warning.filename for warning in seen] == [__file__]


def test_a_renamed_setting_is_read_under_its_new_name() -> None:
    with pytest.warns(FutureWarning, match="^rate is deprecated .* use learning_rate") as seen:
        found = renamed_setting({"rate": 0.1, "epochs": 3}, "rate", "learning_rate", since="0.2")
    assert found == {"learning_rate": 0.1, "epochs": 3}
    assert list(found) == ["learning_rate", "epochs"]
    assert len(seen) == 1


def test_settings_that_use_the_new_name_pass_without_a_warning() -> None:
    values = {"learning_rate": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert renamed_setting(values, "rate", "learning_rate", since="0.2") == values


def test_both_names_of_a_setting_are_refused() -> None:
    with pytest.raises(UsageError, match="expected learning_rate alone, got rate"):
        renamed_setting({"rate": 1, "learning_rate": 1}, "rate", "learning_rate", since="0.2")


def test_a_moved_name_is_found_in_its_new_home() -> None:
    module = types.ModuleType("old_home")
    home = {"UsageMistake": "falconcal.errors:UsageError"}
    module.__dict__["__getattr__"] = moved_names("old_home", home, since="0.2")
    with pytest.warns(FutureWarning, match=r"use falconcal\.errors\.UsageError") as seen:
        assert module.UsageMistake is UsageError
    assert [warning.filename for warning in seen] == [__file__]
    with pytest.raises(AttributeError, match="'old_home' has no attribute 'other'"):
        module.other  # noqa: B018 - asking for it is the test
