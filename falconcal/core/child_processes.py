"""Child processes on this machine, none of which outlives its parent.

A child is ended by its parent, not by Ctrl-C, and ends when its parent is gone, however that
happened and at any moment: also while the child still imports torch, which takes seconds. So this
module imports torch only where it is used.
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
ORPHANED = 3  # the exit code of a child whose parent is gone
PR_SET_PDEATHSIG = 1  # of Linux: sets the signal that a process gets when its parent ends


def start_process(work: Callable[..., None], *arguments: Any, threads: int = 1) -> BaseProcess:
    """Start ``work`` in a new process with a number of threads."""
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(_Bond(), work, threads, arguments)
    )
    with _interrupts_later():
        process.start()
    return process


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C inside, for processes started there too, until they can handle it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Bond:
    """Binds a new process to its parent, before the arguments after it are read."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return _bind, (os.getpid(),)


def _bind(parent: int) -> None:
    """Make the system end this process with its parent; where it cannot, a thread does later.

    Linux watches the thread that started this process: the one that waits for it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.name == "posix" and os.getppid() != parent:
        os._exit(ORPHANED)  # the parent ended before that


def _work(_: None, work: Callable[..., None], threads: int, arguments: tuple[Any, ...]) -> None:
    # a handler, not SIG_IGN: processes that this one starts must end by the signal
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
    os._exit(ORPHANED)  # at any moment: files are written whole or not at all


@contextmanager
def terminating(processes: Iterable[BaseProcess]) -> Iterator[None]:
    """End the processes when the block ends, also those that were added inside."""
    try:
        yield
    finally:
        left = list(processes)
        for process in left:
            process.terminate()
        for process in left:
            terminate(process)


def terminate(process: BaseProcess) -> None:
    """Ask a process to end; kill it if it does not."""
    process.terminate()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()


def exit_reason(process: BaseProcess) -> str:
    """Return how a process ended that was not asked to end."""
    process.join(PATIENCE)
    code = process.exitcode
    if code is None or code >= 0:
        return f"its process ended with code {code}"
    return f"its process was {ended_by(-code)}"


def ended_by(number: int) -> str:
    """Return which signal ended a process."""
    memory = ", as the system does where memory is short" if number == signal.SIGKILL else ""
    return f"ended by {signal.Signals(number).name}{memory}"


def threads_each(workers: int) -> int:
    """Return how many of this process's threads each of several workers gets."""
    import torch

    return max(1, torch.get_num_threads() // workers)


@contextmanager
def limited_threads(number: int) -> Iterator[None]:
    """Compute with a number of threads inside; it changes how sums are rounded."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
