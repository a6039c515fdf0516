"""Executors on this machine: this process, or several worker processes."""

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
    """Does runs and sends their events; the last event of a run says how it ended."""

    def has_room(self) -> bool: ...
    def start(self, run: RunKey) -> None: ...
    def wait(self) -> None:
        """Wait until something has happened to the runs that were started, and send its events."""


ExecutorFactory = Callable[[StudyContext, EventHandler], AbstractContextManager[Executor]]


def local_executor(workers: int = 1, threads: int | None = None) -> ExecutorFactory:
    """Return an executor of this machine: this process, or as many workers as given."""
    if workers < 1:
        raise UsageError(f"expected at least 1 worker, got {workers}.")
    if workers == 1:
        return in_this_process(threads)
    if distributed.is_torchelastic_launched():
        raise UsageError("under torchrun all processes train each run together: remove --workers.")
    return in_processes(workers, threads)


def in_this_process(threads: int | None = None) -> ExecutorFactory:
    """Do one run after the other in this process, with torch's number of threads unless given."""

    @contextmanager
    def make(context: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        with child_processes.limited_threads(threads or torch.get_num_threads()):
            yield InProcess(context, on_event)

    return make


def in_processes(workers: int, threads: int | None = None) -> ExecutorFactory:
    """Do runs in worker processes; they share the threads of the machine unless given."""

    @contextmanager
    def make(context: StudyContext, on_event: EventHandler) -> Iterator[Executor]:
        executor = Workers(
            context, on_event, workers, threads or child_processes.threads_each(workers)
        )
        with child_processes.terminating(executor.processes):
            yield executor

    return make


class InProcess:
    """This process, one run after the other."""

    def __init__(self, context: StudyContext, on_event: EventHandler) -> None:
        self.context, self.on_event = context, on_event
        self.run: RunKey | None = None

    def has_room(self) -> bool:
        return self.run is None

    def start(self, run: RunKey) -> None:
        self.run = run

    def wait(self) -> None:
        assert self.run is not None
        run, self.run = self.run, None
        run_and_report(self.context, run, self.on_event)


class Workers:
    """Worker processes of this machine, each with a pipe to this one, started when needed."""

    def __init__(
        self, context: StudyContext, on_event: EventHandler, number: int, threads: int
    ) -> None:
        self.study, self.directory = context.study, context.store.directory
        self.measure_later = context.measure_later
        self.on_event, self.threads = on_event, threads
        self.slots = [WorkerSlot(device) for device in _devices(context.study, number)]
        self.processes: list[BaseProcess] = []

    def has_room(self) -> bool:
        return any(slot.run is None for slot in self.slots)

    def start(self, run: RunKey) -> None:
        # prefer a worker that has the data in memory already
        free = [slot for slot in self.slots if slot.run is None]
        slot = next((slot for slot in free if slot.worker is not None), free[0])
        if slot.worker is None:
            self._start_worker(slot)
        slot.begin(run)

    def wait(self) -> None:
        busy = {slot.pipe: slot for slot in self.slots if slot.run is not None}
        for pipe in wait(list(busy)):
            self._receive(busy[pipe])  # type: ignore[index]

    def _receive(self, slot: "WorkerSlot") -> None:
        assert slot.run is not None
        run = slot.run
        try:
            event = Event.from_bytes(slot.pipe.recv_bytes())
        except (EOFError, OSError):
            event = Event(run, "lost", self._dismiss(slot))
        if event.kind in ENDS:
            slot.run = None
        self.on_event(event)

    def _start_worker(self, slot: "WorkerSlot") -> None:
        slot.pipe, there = Pipe()
        arguments = (there, self.study, self.directory, self.measure_later, slot.device)
        slot.worker = child_processes.start_process(_serve, *arguments, threads=self.threads)
        self.processes.append(slot.worker)
        there.close()  # so that the end of the worker closes the pipe

    def _dismiss(self, slot: "WorkerSlot") -> str:
        """Remove a worker that has ended, and return why it did."""
        assert slot.worker is not None
        reason = child_processes.exit_reason(slot.worker)
        self.processes.remove(slot.worker)
        slot.worker = None
        slot.pipe.close()
        return reason


class WorkerSlot:
    """A worker process, the pipe to it, and the run that it does."""

    pipe: Connection

    def __init__(self, device: str | None) -> None:
        self.device = device
        self.worker: BaseProcess | None = None
        self.run: RunKey | None = None

    def begin(self, run: RunKey) -> None:
        self.run = run
        with suppress(OSError):  # it may have ended; wait() will notice
            self.pipe.send_bytes(json.dumps(asdict(run)).encode())


def _devices(study: Study, number: int) -> list[str | None]:
    """Return which GPU each worker uses: one each in turn, or all where a run takes several."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
    if len(names) < 2 or devices_of(study) > 1:
        return [None] * number
    return [names[worker % len(names)] for worker in range(number)]


def devices_of(study: Study) -> int:
    """Return the largest number of devices that a run of the study uses."""
    methods = (innermost_method(study.method(name)) for name in study.methods)
    return max(int(getattr(method, "devices", 1)) for method in methods)


def _serve(
    pipe: Connection, study: Study, directory: Path, measure_later: bool, device: str | None
) -> None:
    """Do the runs that come through the pipe and send their events, until it is closed."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    context = StudyContext(study, Store(directory), measure_later)
    while True:
        try:
            run = RunKey(**json.loads(pipe.recv_bytes()))
        except EOFError:
            return
        with warnings_as_notes(run, lambda event: pipe.send_bytes(event.to_bytes())) as on_event:
            run_and_report(context, run, on_event)


@contextmanager
def warnings_as_notes(run: RunKey, on_event: EventHandler) -> Iterator[EventHandler]:
    """Send warnings as notes of the run: the output of this process is not shown."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        on_event(Event(run, "note", f"warning: {message}"))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield on_event
