"""Processes of our own: what they are given, how they end, and with whom."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from falconcal.core import child_processes
from tests.helpers.paths import ROOT
from tests.helpers.processes import alive, wait_for


def sleep(line: Connection | None = None) -> None:
    if line is not None:
        line.send_bytes(str(torch.get_num_threads()).encode())
    time.sleep(600)


def test_threads_are_shared_out_and_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert [child_processes.threads_each(workers) for workers in (1, 2, 3, 8)] == [7, 3, 2, 1]


@pytest.mark.end_to_end
def test_a_process_has_its_threads_and_ctrl_c_is_not_for_it() -> None:
    here, there = multiprocessing.Pipe()
    process = child_processes.start_process(sleep, there, threads=2)
    with child_processes.terminating([process]):
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)  # in the midst of its beginning
        assert here.poll(60)
        assert here.recv_bytes() == b"2"
        os.kill(process.pid, signal.SIGINT)
        process.join(0.3)
        assert process.is_alive()
    assert process.exitcode == -signal.SIGTERM
    assert "SIGTERM" in child_processes.exit_reason(process)


STARTER = """
import os, sys, time
from falconcal.core import child_processes
from tests.helpers.slow_to_import import BEGUN, work
os.environ[BEGUN] = sys.argv[1]
child_processes.start_process(work)
time.sleep(60)
"""


@pytest.mark.end_to_end
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_ends_with_its_starter_at_once_even_while_it_imports(
    number: signal.Signals, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    root = ROOT
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(begun)], cwd=root)
    try:
        wait_for(lambda: begun.exists() and begun.read_text() != "", seconds=60)
        worker = int(begun.read_text())
        assert alive(worker)
    finally:
        starter.send_signal(number)
        starter.wait()
    wait_for(lambda: not alive(worker), seconds=2)


@pytest.mark.end_to_end
def test_starting_processes_does_not_wait_for_torch() -> None:
    code = "import sys, falconcal.core.child_processes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
