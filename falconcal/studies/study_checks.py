"""What is refused of a study before anything is trained: wrong names, settings and tests."""

from typing import TYPE_CHECKING, Any

from falconcal.core.method import Method, chooses_epoch, innermost_method
from falconcal.core.registry import name_and_settings
from falconcal.errors import UsageError
from falconcal.io.output_folder import check_names
from falconcal.methods import METHODS, Ensemble
from falconcal.models import check_model
from falconcal.shifts import StoredShift, named_shifts
from falconcal.studies.variants import check_variant

if TYPE_CHECKING:
    from falconcal.studies.study import Study

REFERENCE_METHOD = "dropout"  # its model of seed 0 perturbs the validation data


def check_seedless(values: dict[str, Any], where: str) -> None:
    """Refuse settings of a method, or of its base, that set a seed."""
    if "seed" in values:
        raise UsageError(f"{where}: seed is set by the run; use --seeds.")
    if isinstance(values.get("base"), dict):
        check_seedless(values["base"], f"{where}.base")


def check_study_model(study: "Study") -> None:
    check_model(*name_and_settings("model", study.model), study.trust)


def check_study_variants(study: "Study") -> None:
    """Make every method of every variant once."""
    for name, changes in study.variants.items():
        check_variant(name, changes, study.methods)
        try:
            variant = study.variant(name)
            check_study_model(variant)
            check_study_methods(variant)
        except UsageError as error:
            text = str(error)
            raise UsageError(
                text if text.startswith("variants.") else f"variants.{name}: {text}"
            ) from None


def check_study_shifts(study: "Study") -> None:
    names = study.tested
    check_names("shift", names)
    study.all_outliers()  # finds each of them
    for shift in study.all_shifts():
        if isinstance(shift, StoredShift) and shift.name in study.selection_shifts:
            raise UsageError(
                f"shift {shift.name!r} is made of test images, so no settings can be chosen by it."
            )
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"shift {name!r} is named twice: a shift is either tested or used to choose "
                "settings, name it once."
            )


def _check_members(study: "Study", name: str) -> None:
    """Refuse an ensemble of finished runs of a method that the study does not have."""
    method = study.method(name)
    if not isinstance(method, Ensemble) or method.members == "trained":
        return
    if all(study.method(other) != method.base for other in study.methods):
        raise UsageError(
            f'methods.{name}: members = "finished" expects base = "METHOD", a method of the study '
            "whose runs are joined, got a base that is not one of them."
        )


def _check_untested(study: "Study", name: str, trained: Method) -> None:
    """Refuse a method that is trained on what the study tests."""
    tested = named_shifts(study.shifts)
    both = tested & named_shifts(getattr(trained, "directions", ()))
    if both:
        raise UsageError(
            f"methods.{name}: directions holds {', '.join(sorted(both))}, which the study tests: a "
            "study never calibrates on what it tests. Take it out of directions or of shifts."
        )
    seen = tested & set(getattr(trained, "trained_shifts", ()))
    if seen:
        raise UsageError(
            f"methods.{name}: its geometric operations are kin of {', '.join(sorted(seen))}, which "
            "the study tests: set geometric = false."
        )


def check_study_methods(study: "Study") -> None:
    """Make every method once, so that a wrong setting is found before a run."""
    check_names("method", study.methods)
    for name in study.methods:
        if name in METHODS and study.methods[name].get("method", name) != name:
            raise UsageError(
                f"methods.{name}: {name} is the name of another method: choose another name."
            )
        trained = innermost_method(study.method(name))
        _check_base(name, trained)
        _check_members(study, name)
        _check_untested(study, name, trained)
        _check_needed_tables(study, name, trained)


def _check_base(name: str, trained: Method) -> None:
    """Refuse a calibrator without a base: it would calibrate an untrained network."""
    if hasattr(trained, "base"):
        raise UsageError(
            f'methods.{name}: expected base = "METHOD", a method of the study whose model is '
            "calibrated, or a table base of its own; without it an untrained network "
            "would be calibrated."
        )


def _check_needed_tables(study: "Study", name: str, trained: Method) -> None:
    """Refuse a method that needs a drift, or a reference, which the study does not have."""
    if study.drifted is None and getattr(study.method(name), "drifted_examples", None):
        raise UsageError(
            f"methods.{name}: drifted_examples needs the study's table drifted: say which "
            "level of which drift they come from."
        )
    if chooses_epoch(trained) and REFERENCE_METHOD not in study.methods:
        raise UsageError(
            f'methods.{name}: keep = "best" or patience needs the method {REFERENCE_METHOD} '
            "in the study: its model perturbs the validation data."
        )
