"""Runs as tasks of a Ray cluster, in the extra ``ray``.

A task that sees the output folder, on this machine or through a shared file system, works in it
and goes on from its checkpoints. Another one gets the files that it needs and sends the run back.
What is sent between them is Ray's own business; of events, it is text.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from falconcal.core import child_processes
from falconcal.errors import UsageError, UserError
from falconcal.io.atomic import write_bytes, write_text
from falconcal.io.output_folder import RUN_FILES, RunKey
from falconcal.studies.events import ENDS, Event, EventHandler
from falconcal.studies.executors.local_workers import (
    Executor,
    ExecutorFactory,
    devices_of,
    telling_warnings,
)
from falconcal.studies.reference import REFERENCE_RUN, find_reference
from falconcal.studies.run import StudyContext, run_and_report, runs_of_base
from falconcal.studies.store import Store
from falconcal.studies.study import Study

LOCAL = "local"
CONNECT_TIMEOUT = 5.0  # seconds within which a cluster answers
POLL = 0.5  # seconds between looks at what was told
Files = dict[str, bytes]  # by their place in the output folder


def need_ray(workers: int = 1) -> None:
    """Say what is missing, or too much, before anything begins."""
    if workers != 1:
        raise UsageError("--ray and --workers are two ways of doing the runs: leave one out.")
    if find_spec("ray") is None:
        raise UserError("--ray needs Ray, which is in an extra: pip install 'falconcal[ray]'.")


def on_ray(address: str, threads: int | None = None) -> ExecutorFactory:
    """Do runs on a cluster, with so many threads and CPUs each; 1 unless given."""

    @contextmanager
    def make(place: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        with _connected(address), _marked(place.store.directory) as mark:
            yield Cluster(place, on_event, threads or 1, mark)

    return make


@contextmanager
def _connected(address: str) -> Iterator[None]:
    import ray

    where = {"include_dashboard": False} if address == LOCAL else {"address": address}
    try:
        _check_reachable(address)  # Ray itself would try for minutes
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).rstrip(".")
        raise UserError(
            f"expected a Ray cluster at {address}, got: {reason}. Start one with ray start --head, "
            f"or let --ray {LOCAL} start one for this command."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """See whether anybody answers, where the address is a machine's."""
    host, colon, port = address.rpartition("://")[2].partition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


@contextmanager
def _marked(directory: Path) -> Iterator[Path]:
    """Put a file into the folder by which a task knows whether the one it sees is the same."""
    mark = directory.resolve() / f".ray-{uuid4().hex}"
    write_text(mark, "")
    try:
        yield mark
    finally:
        mark.unlink()


@dataclass(frozen=True)
class RunRequest:
    """What a task needs to know."""

    study: Study
    run: RunKey
    mark: Path  # in the output folder, for those who see it
    threads: int
    path: list[str]  # where package.module:Name may lie
    files: Files = field(default_factory=dict)


class Cluster:
    """Tasks on a cluster; all that can begin are handed over, Ray finds the room for them."""

    def __init__(
        self, place: StudyContext, on_event: EventHandler, threads: int, mark: Path
    ) -> None:
        import ray

        self.ray, self.place, self.on_event = ray, place, on_event
        self.threads, self.mark = threads, mark
        self.mailbox = ray.remote(EventQueue).options(num_cpus=0, max_restarts=-1).remote()
        self.tasks: dict[Any, RunKey] = {}
        devices = devices_of(place.study)
        gpus = devices if ray.cluster_resources().get("GPU", 0) else 0
        resources = {"num_cpus": threads * devices, "num_gpus": gpus}
        # what is lost is begun again by the schedule, which tells of it
        self.task = ray.remote(run_on_cluster).options(**resources, max_retries=0)

    def has_room(self) -> bool:
        return True

    def start(self, run: RunKey) -> None:
        files = files_for(self.place, run)
        order = RunRequest(self.place.study, run, self.mark, self.threads, sys.path, files)
        self.tasks[self.task.remote(order, self.mailbox)] = run

    def wait(self) -> None:
        ended, _ = self.ray.wait(list(self.tasks), timeout=POLL)
        with suppress(self.ray.exceptions.RayActorError):  # gone with its machine, begun again
            for message in self.ray.get(self.mailbox.take.remote()):
                self.on_event(Event.from_bytes(message))
        for task in ended:
            self.on_event(self._outcome(task, self.tasks.pop(task)))

    def _outcome(self, task: Any, run: RunKey) -> Event:
        """Return how a task ended, when what it sent is in the folder."""
        errors = self.ray.exceptions
        try:
            last, files = self.ray.get(task)
        except errors.RayTaskError as error:  # ours tell of their own failures
            return Event(
                run, "failed", f"the task could not begin: {error.cause}", trace=str(error)
            )
        except errors.RayError as error:
            return Event(run, "lost", f"its worker was lost ({type(error).__name__})")
        put_files(self.place.store, run, files)
        return Event.from_bytes(last)


class EventQueue:
    """An actor that keeps what tasks tell until it is fetched."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def put(self, message: bytes) -> None:
        self.messages.append(message)

    def take(self) -> list[bytes]:
        messages, self.messages = self.messages, []
        return messages


class EventSender:
    """Sends events to the mailbox; the last one is what the task returns."""

    def __init__(self, mailbox: Any) -> None:
        self.mailbox = mailbox
        self.sent: list[Any] = []
        self.end = b""

    def __call__(self, event: Event) -> None:
        if event.kind in ENDS:
            self.end = event.to_bytes()
        else:
            self.sent = [self.mailbox.put.remote(event.to_bytes())]

    def last(self) -> bytes:
        """Return how the run ended, when all that came before it has arrived."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.get(self.sent)
        return self.end


def run_on_cluster(order: RunRequest, mailbox: Any) -> tuple[bytes, Files]:
    """Do a run on a machine of the cluster; return the last event, and the run if not seen here."""
    sys.path.extend(folder for folder in order.path if folder not in sys.path)
    seen, on_event = order.mark.exists(), EventSender(mailbox)
    shared = nullcontext(order.mark.parent) if seen else TemporaryDirectory()
    with shared as folder, child_processes.limited_threads(order.threads):
        place = StudyContext(order.study, Store(Path(folder)))
        for name, content in order.files.items() if not seen else ():
            write_bytes(place.store.directory / name, content)
        with telling_warnings(order.run, on_event):
            run_and_report(place, order.run, on_event)
        return on_event.last(), {} if seen else files_of(place, order.run)


def files_for(place: StudyContext, run: RunKey) -> Files:
    """Return what a run reads of the folder: the reference, and the run that it calibrates."""
    directory = place.store.directory
    reference = find_reference(place.study, place.store)
    paths = [] if reference is None else [reference]
    if run != REFERENCE_RUN:
        for base in filter(place.store.complete, runs_of_base(place.study, run, place.method(run))):
            paths += [base.folder(directory) / name for name in RUN_FILES]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def files_of(place: StudyContext, run: RunKey) -> Files:
    """Return the files that a run has left, none where it failed."""
    directory = place.store.directory
    own = find_reference(place.study, place.store) if run == REFERENCE_RUN else None
    paths = [own] if own is not None else sorted(run.folder(directory).glob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def put_files(store: Store, run: RunKey, files: Files) -> None:
    """Put the files of a run from elsewhere into the folder, whole or not at all."""
    if run == REFERENCE_RUN:
        for name, content in files.items():
            write_bytes(store.directory / name, content)
    elif files:
        with store.writing(run) as folder:
            for name, content in files.items():
                write_bytes(folder / Path(name).name, content)
