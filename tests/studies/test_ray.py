"""A real Ray cluster on this machine: the rows of the sequential runner, whatever dies."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from falconcal.errors import UsageError, UserError
from falconcal.io.output_folder import RUN_FILES
from falconcal.studies.events import Event
from falconcal.studies.executors import ray_cluster
from falconcal.studies.reference import REFERENCE_RUN
from falconcal.studies.run import StudyContext
from falconcal.studies.runner import collect_rows, do_runs
from falconcal.studies.store import Store
from tests.helpers.failing_runs import DEADLY, TROUBLE, RecordedEvents, key, same_rows
from tests.helpers.run_for_killing import CALIBRATED
from tests.helpers.small_studies import Silent
from tests.helpers.stripes import DEATHS, read_own

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # Ray warns of much that is none of ours
    pytest.mark.filterwarnings("ignore::falconcal.recalibration.temperature.CalibrationWarning"),
]


@pytest.mark.end_to_end
def test_a_cluster_gives_the_rows_of_one_process_and_a_killed_worker_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deaths").mkdir()
    monkeypatch.setenv(DEATHS, str(tmp_path / "deaths"))
    study, events = read_own(CALIBRATED + TROUBLE + DEADLY, "test"), RecordedEvents()
    only = ["scaled", "dropout", "falcon", "dying"]
    executor = ray_cluster.on_ray("local")
    failed = do_runs(study, tmp_path / "ray", events, [*only, "raising"], make_executor=executor)
    assert failed == {key("raising"): "KeyError: 'of no use'"}
    assert events.order("lost") == ["dying"]
    assert Event(key("scaled"), "note", "calibrating the model of falcon, seed 0") in events
    assert not list((tmp_path / "ray").glob(".ray-*"))
    assert not do_runs(study, tmp_path / "one", Silent(), only)
    assert same_rows(tmp_path / "one", tmp_path / "ray")


class Mail(list[bytes]):
    """A queue of events in this process."""

    def __init__(self) -> None:
        self.put = SimpleNamespace(remote=self.append)


@pytest.mark.end_to_end
def test_a_machine_that_does_not_see_the_folder_sends_the_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get", lambda sent: sent)
    study = read_own(CALIBRATED, "test", ["dropout.keep=best"])
    here = StudyContext(study, Store(tmp_path / "here"))
    for run in (REFERENCE_RUN, key("falcon"), key("scaled")):
        files, mail = ray_cluster.files_for(here, run), Mail()
        unseen = tmp_path / "elsewhere" / "mark"
        order = ray_cluster.RunRequest(study, run, unseen, threads=1, path=[], files=files)
        last, sent = ray_cluster.run_on_cluster(order, mail)
        assert Event.from_bytes(last).kind == "done"
        kinds = {Event.from_bytes(message).kind for message in mail}
        assert "begun" in kinds
        ray_cluster.put_files(here.store, run, sent)
    assert here.store.runs() == [key("falcon"), key("scaled")]
    assert {path.name for path in key("scaled").folder(tmp_path / "here").iterdir()} == {*RUN_FILES}
    assert "epoch" not in kinds  # the last one calibrated what was sent along
    do_runs(study, tmp_path / "whole", Silent(), ["falcon", "scaled"])
    collect_rows(study, here.store)
    assert same_rows(tmp_path / "whole", tmp_path / "here")


def test_a_run_that_fails_elsewhere_sends_nothing_but_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get", lambda sent: sent)
    study = read_own(CALIBRATED + TROUBLE, "test")
    order = ray_cluster.RunRequest(study, key("raising"), tmp_path / "mark" / "no", 1, [])
    last, sent = ray_cluster.run_on_cluster(order, Mail())
    assert Event.from_bytes(last).text == "KeyError: 'of no use'"
    assert not sent


@pytest.mark.end_to_end
def test_what_stands_in_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="remove one of them"):
        ray_cluster.need_ray(workers=2)
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"falconcal\[ray\]"):
        ray_cluster.need_ray()
    study = read_own(CALIBRATED, "test")
    with pytest.raises(UserError, match="expected a Ray cluster at"):
        do_runs(study, tmp_path, Silent(), make_executor=ray_cluster.on_ray("127.0.0.1:1"))
