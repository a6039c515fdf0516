"""The executor on a Ray cluster: one task per run. It needs the extra ``ray``.

A task that sees the output folder, on this machine or through a shared file system, works in it
and resumes from its checkpoints. Any other task gets the files that it needs and returns the run.
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
from falconcal.studies.base_runs import runs_of_base
from falconcal.studies.events import ENDS, Event, EventHandler
from falconcal.studies.executors.local_workers import (
    Executor,
    ExecutorFactory,
    devices_of,
    warnings_as_notes,
)
from falconcal.studies.reference import REFERENCE_RUN, find_reference
from falconcal.studies.run import StudyContext, run_and_report
from falconcal.studies.store import Store
from falconcal.studies.study import Study

LOCAL = "local"
CONNECT_TIMEOUT = 5.0  # seconds
RAY_POLL_SECONDS = 0.5  # between looks for new events
Files = dict[str, bytes]  # by their path within the output folder


def need_ray(workers: int = 1) -> None:
    """Refuse ``--ray`` beside ``--workers``, and where Ray is not installed."""
    if workers != 1:
        raise UsageError("--ray and --workers both say where runs are done: remove one of them.")
    if find_spec("ray") is None:
        raise UserError("--ray needs Ray, which is an extra: pip install 'falconcal[ray]'.")


def on_ray(address: str, threads: int | None = None) -> ExecutorFactory:
    """Do runs on a cluster; each takes as many CPUs as it has threads, 1 unless given."""

    @contextmanager
    def make(context: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        with _connected(address), _marked(context.store.directory) as mark:
            yield Cluster(context, on_event, threads or 1, mark)

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
            f"or use --ray {LOCAL} to start one for this command."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Open a connection to see whether the address answers, where it names a port."""
    host, colon, port = address.rpartition("://")[2].partition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


@contextmanager
def _marked(directory: Path) -> Iterator[Path]:
    """Put a file into the folder, by which a task finds out whether it sees the same folder."""
    mark = directory.resolve() / f".ray-{uuid4().hex}"
    write_text(mark, "")
    try:
        yield mark
    finally:
        mark.unlink()


@dataclass(frozen=True)
class RunRequest:
    """What a task needs to do a run."""

    study: Study
    run: RunKey
    mark: Path  # a file in the output folder
    threads: int
    path: list[str]  # where to import package.module:Name from
    files: Files = field(default_factory=dict)
    measure_later: bool = False


class Cluster:
    """Tasks on a cluster: all runs that can start are submitted, and Ray schedules them."""

    def __init__(
        self, context: StudyContext, on_event: EventHandler, threads: int, mark: Path
    ) -> None:
        import ray

        self.ray, self.context, self.on_event = ray, context, on_event
        self.threads, self.mark = threads, mark
        self.queue = ray.remote(EventQueue).options(num_cpus=0, max_restarts=-1).remote()
        self.tasks: dict[Any, RunKey] = {}
        devices = devices_of(context.study)
        gpus = devices if ray.cluster_resources().get("GPU", 0) else 0
        resources = {"num_cpus": threads * devices, "num_gpus": gpus}
        # the schedule repeats lost runs itself, and reports them
        self.task = ray.remote(run_on_cluster).options(**resources, max_retries=0)

    def has_room(self) -> bool:
        return True

    def start(self, run: RunKey) -> None:
        files = files_for(self.context, run)
        request = RunRequest(
            self.context.study, run, self.mark, self.threads, sys.path, files,
            self.context.measure_later,
        )  # fmt: skip
        self.tasks[self.task.remote(request, self.queue)] = run

    def wait(self) -> None:
        ended, _ = self.ray.wait(list(self.tasks), timeout=RAY_POLL_SECONDS)
        with suppress(self.ray.exceptions.RayActorError):  # lost with its machine, restarted by Ray
            for message in self.ray.get(self.queue.take.remote()):
                self.on_event(Event.from_bytes(message))
        for task in ended:
            self.on_event(self._outcome(task, self.tasks.pop(task)))

    def _outcome(self, task: Any, run: RunKey) -> Event:
        """Store the files that a task returned, and return its last event."""
        errors = self.ray.exceptions
        try:
            last, files = self.ray.get(task)
        except errors.RayTaskError as error:  # our own function reports its failures as events
            return Event(
                run, "failed", f"the task could not start: {error.cause}", trace=str(error)
            )
        except errors.RayError as error:
            return Event(run, "lost", f"its worker was lost ({type(error).__name__})")
        put_files(self.context.store, run, files)
        return Event.from_bytes(last)


class EventQueue:
    """A Ray actor that holds the events of tasks until they are fetched."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def put(self, message: bytes) -> None:
        self.messages.append(message)

    def take(self) -> list[bytes]:
        messages, self.messages = self.messages, []
        return messages


class EventSender:
    """Sends events to the queue, except the last one, which the task returns."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.sent: list[Any] = []
        self.end = b""

    def __call__(self, event: Event) -> None:
        if event.kind in ENDS:
            self.end = event.to_bytes()
        else:
            self.sent = [self.queue.put.remote(event.to_bytes())]

    def last(self) -> bytes:
        """Return the last event once all events before it have arrived."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.get(self.sent)
        return self.end


def run_on_cluster(request: RunRequest, queue: Any) -> tuple[bytes, Files]:
    """Do a run on the cluster; return the last event, and the run's files if not in the folder."""
    sys.path.extend(folder for folder in request.path if folder not in sys.path)
    seen, on_event = request.mark.exists(), EventSender(queue)
    shared = nullcontext(request.mark.parent) if seen else TemporaryDirectory()
    with shared as folder, child_processes.limited_threads(request.threads):
        context = StudyContext(request.study, Store(Path(folder)), request.measure_later)
        for name, content in request.files.items() if not seen else ():
            write_bytes(context.store.directory / name, content)
        with warnings_as_notes(request.run, on_event):
            run_and_report(context, request.run, on_event)
        return on_event.last(), {} if seen else files_of(context, request.run)


def files_for(context: StudyContext, run: RunKey) -> Files:
    """Return the files that a run reads: the reference, and the runs that it builds on."""
    study, directory = context.study, context.store.directory
    reference = find_reference(study, context.store)
    paths = [] if reference is None else [reference]
    if run != REFERENCE_RUN:
        for base in filter(
            context.store.complete, runs_of_base(context.study, run, context.method(run))
        ):
            paths += [base.folder(directory) / name for name in RUN_FILES]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def files_of(context: StudyContext, run: RunKey) -> Files:
    """Return the files that a run has written, none if it failed."""
    directory = context.store.directory
    own = find_reference(context.study, context.store) if run == REFERENCE_RUN else None
    paths = [own] if own is not None else sorted(run.folder(directory).glob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def put_files(store: Store, run: RunKey, files: Files) -> None:
    """Write the files that a task returned into the folder, all of them or none."""
    if run == REFERENCE_RUN:
        for name, content in files.items():
            write_bytes(store.directory / name, content)
    elif files:
        with store.writing(run) as folder:
            for name, content in files.items():
                write_bytes(folder / Path(name).name, content)
