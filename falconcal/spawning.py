"""Processes of our own on this machine: threads shared out, none left behind.

A process that was started here answers to who started it, not to Ctrl-C, and ends when that one is
gone, however it went.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

PATIENCE = 5.0  # seconds for a process to end when asked to
ORPHANED = 3  # the exit code of one whose starter is gone


def start(work: Callable[..., None], *arguments: Any, threads: int = 1) -> BaseProcess:
    """Begin ``work`` in a new process with so many threads."""
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(work, threads, arguments)
    )
    with _interrupts_later():
        process.start()
    return process


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back, also for what is started inside, until it knows what to do about it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whose own start would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(work: Callable[..., None], threads: int, arguments: tuple[Any, ...]) -> None:
    # a handler, not SIG_IGN: what this process starts itself is to end by the signal
    signal.signal(signal.SIGINT, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    work(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(ORPHANED)  # in the midst of a step: files are whole or absent at any moment


@contextmanager
def ending(processes: Iterable[BaseProcess]) -> Iterator[None]:
    """End the processes, however what happens inside ends; ones that come meanwhile too."""
    try:
        yield
    finally:
        left = list(processes)
        for process in left:
            process.terminate()
        for process in left:
            end(process)


def end(process: BaseProcess) -> None:
    """Ask a process to end, and see to it that it does."""
    process.terminate()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


def why_it_ended(process: BaseProcess) -> str:
    """Return in words how a process ended that was not asked to."""
    process.join(PATIENCE)
    code = process.exitcode
    if code is None or code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name
    memory = ", as the system does where memory is short" if -code == signal.SIGKILL else ""
    return f"its process was ended by {name}{memory}"


def threads_each(workers: int) -> int:
    """Return how many of this process's threads each of several workers has."""
    return max(1, torch.get_num_threads() // workers)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads inside: sums are rounded by how they are shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
