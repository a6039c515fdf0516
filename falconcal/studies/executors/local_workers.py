"""Who does the runs of a study: this process, or several of them on this machine."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

import torch
from torch import distributed

from falconcal.core import child_processes
from falconcal.core.method import innermost_method
from falconcal.errors import UsageError
from falconcal.io.output_folder import RunKey
from falconcal.studies.events import ENDS, Event, EventHandler
from falconcal.studies.run import StudyContext, run_and_report
from falconcal.studies.store import Store
from falconcal.studies.study import Study


class Executor(Protocol):
    """Does runs, and tells what happens to them: of each run in the end how it ended."""

    def has_room(self) -> bool: ...
    def start(self, run: RunKey) -> None: ...
    def wait(self) -> None:
        """Wait until something has happened to the runs that were started, and tell of it."""


ExecutorFactory = Callable[[StudyContext, EventHandler], AbstractContextManager[Executor]]


def local_executor(workers: int = 1, threads: int | None = None) -> ExecutorFactory:
    """Return who does runs on this machine: this process, or so many of its own."""
    if workers < 1:
        raise UsageError(f"expected at least 1 worker, got {workers}.")
    if workers == 1:
        return in_this_process(threads)
    if distributed.is_torchelastic_launched():
        raise UsageError("torchrun's processes do each run together: leave --workers out.")
    return in_processes(workers, threads)


def in_this_process(threads: int | None = None) -> ExecutorFactory:
    """Do one run after the other here, with so many threads; torch's own number unless given."""

    @contextmanager
    def make(place: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        with child_processes.limited_threads(threads or torch.get_num_threads()):
            yield InProcess(place, on_event)

    return make


def in_processes(workers: int, threads: int | None = None) -> ExecutorFactory:
    """Do runs in so many processes of this machine; its threads are shared out unless given."""

    @contextmanager
    def make(place: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        crew = Workers(place, on_event, workers, threads or child_processes.threads_each(workers))
        with child_processes.terminating(crew.processes):
            yield crew

    return make


class InProcess:
    """This process, one run after the other."""

    def __init__(self, place: StudyContext, on_event: EventHandler) -> None:
        self.place, self.on_event = place, on_event
        self.run: RunKey | None = None

    def has_room(self) -> bool:
        return self.run is None

    def start(self, run: RunKey) -> None:
        self.run = run

    def wait(self) -> None:
        assert self.run is not None
        run, self.run = self.run, None
        run_and_report(self.place, run, self.on_event)


class Workers:
    """Processes of this machine, each with a line to this one, started when there is work."""

    def __init__(
        self, place: StudyContext, on_event: EventHandler, number: int, threads: int
    ) -> None:
        self.study, self.directory = place.study, place.store.directory
        self.on_event, self.threads = on_event, threads
        self.desks = [WorkerSlot(device) for device in _devices(place.study, number)]
        self.processes: list[BaseProcess] = []

    def has_room(self) -> bool:
        return any(desk.run is None for desk in self.desks)

    def start(self, run: RunKey) -> None:
        # one that has worked before has its data in memory
        free = [desk for desk in self.desks if desk.run is None]
        desk = next((desk for desk in free if desk.worker is not None), free[0])
        if desk.worker is None:
            self._staff(desk)
        desk.begin(run)

    def wait(self) -> None:
        busy = {desk.line: desk for desk in self.desks if desk.run is not None}
        for line in wait(list(busy)):
            self._listen(busy[line])  # type: ignore[index]

    def _listen(self, desk: "WorkerSlot") -> None:
        assert desk.run is not None
        run = desk.run
        try:
            event = Event.from_bytes(desk.line.recv_bytes())
        except (EOFError, OSError):
            event = Event(run, "lost", self._leave(desk))
        if event.kind in ENDS:
            desk.run = None
        self.on_event(event)

    def _staff(self, desk: "WorkerSlot") -> None:
        desk.line, there = Pipe()
        arguments = (there, self.study, self.directory, desk.device)
        desk.worker = child_processes.start_process(_serve, *arguments, threads=self.threads)
        self.processes.append(desk.worker)
        there.close()  # so that the end of the other side is heard here

    def _leave(self, desk: "WorkerSlot") -> str:
        """Take leave of a worker that has ended, and return why it did."""
        assert desk.worker is not None
        reason = child_processes.exit_reason(desk.worker)
        self.processes.remove(desk.worker)
        desk.worker = None
        desk.line.close()
        return reason


class WorkerSlot:
    """The place of a worker: its process, the line to it, and the run that it is at."""

    line: Connection

    def __init__(self, device: str | None) -> None:
        self.device = device
        self.worker: BaseProcess | None = None
        self.run: RunKey | None = None

    def begin(self, run: RunKey) -> None:
        self.run = run
        with suppress(OSError):  # it may have ended meanwhile, as will be heard
            self.line.send_bytes(json.dumps(asdict(run)).encode())


def _devices(study: Study, number: int) -> list[str | None]:
    """Return which GPU each worker sees: one after the other, or all where a run takes several."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
    if len(names) < 2 or devices_of(study) > 1:
        return [None] * number
    return [names[worker % len(names)] for worker in range(number)]


def devices_of(study: Study) -> int:
    """Return how many devices a run of the study takes at most."""
    methods = (innermost_method(study.method(name)) for name in study.methods)
    return max(int(getattr(method, "devices", 1)) for method in methods)


def _serve(line: Connection, study: Study, directory: Path, device: str | None) -> None:
    """Do the runs that the line asks for until it is closed; what is to be said goes through it."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    place = StudyContext(study, Store(directory))
    while True:
        try:
            run = RunKey(**json.loads(line.recv_bytes()))
        except EOFError:
            return
        with telling_warnings(run, lambda event: line.send_bytes(event.to_bytes())) as on_event:
            run_and_report(place, run, on_event)


@contextmanager
def telling_warnings(run: RunKey, on_event: EventHandler) -> Iterator[EventHandler]:
    """Pass warnings on as notes of the run: nobody reads what this process prints."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        on_event(Event(run, "note", f"warning: {message}"))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield on_event
