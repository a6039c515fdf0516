"""Processes of our own on this machine: threads shared out, none left behind.

A process that was started here answers to who started it, not to Ctrl-C, and ends when that one is
gone, however it went, at any moment of its life: also while it still imports torch, which takes
seconds. So this module imports torch where it is used alone.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

PATIENCE = 5.0  # seconds for a process to end when asked to
ORPHANED = 3  # the exit code of one whose starter is gone
PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when the one above it ends


def start(work: Callable[..., None], *arguments: Any, threads: int = 1) -> BaseProcess:
    """Begin ``work`` in a new process with so many threads."""
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(_Bond(), work, threads, arguments)
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


class _Bond:
    """Binds a new process to who starts it, before the arguments behind it are even read."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return _bind, (os.getpid(),)


def _bind(parent: int) -> None:
    """Let the system end this process with its parent; where it cannot, a thread does later.

    It looks at the thread that started this process: the one that waits for it here.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(ORPHANED)  # it ended before that


def _work(_: None, work: Callable[..., None], threads: int, arguments: tuple[Any, ...]) -> None:
    # a handler, not SIG_IGN: what this process starts itself is to end by the signal
    signal.signal(signal.SIGINT, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

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
    return f"its process was {ended_by(-code)}"


def ended_by(number: int) -> str:
    """Return in words which signal ended a process."""
    memory = ", as the system does where memory is short" if number == signal.SIGKILL else ""
    return f"ended by {signal.Signals(number).name}{memory}"


def threads_each(workers: int) -> int:
    """Return how many of this process's threads each of several workers has."""
    import torch

    return max(1, torch.get_num_threads() // workers)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads inside: sums are rounded by how they are shared out."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
