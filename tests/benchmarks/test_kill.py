"""Killed at any moment, a second start ends with the bytes of an uninterrupted run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from benchmarks.__main__ import main

ROOT = Path(__file__).parents[2]
DEADLINE = 300  # seconds; a hanging process must not hang the tests


def spawn(*arguments) -> subprocess.Popen:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen) -> None:
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output.decode()


def kill_when(process: subprocess.Popen, happened) -> None:
    end = time.monotonic() + DEADLINE
    while not happened():
        assert process.poll() is None, process.communicate()[0].decode()
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("**/*.json")}


def test_a_killed_sinusoid_goes_on_from_its_checkpoint(tmp_path):
    def arguments(name):
        size = ("--steps", 20, "--chunk", 2, "--seeds", 1, "--workers", 1)
        choice = ("--methods", "fisher8_radius", "--noises", "constant")
        where = ("--results", tmp_path / name / "results", "--runs", tmp_path / name / "runs")
        return ("sinusoid", *size, *choice, *where)

    jax.config.update("jax_enable_x64", False)  # as in the processes below
    assert main([str(word) for word in arguments("whole")]) == 0
    checkpoints = tmp_path / "killed" / "runs"
    kill_when(spawn(*arguments("killed")), lambda: list(checkpoints.glob("sinusoid/*/1")))
    assert not contents(tmp_path / "killed" / "results")
    finish(spawn(*arguments("killed")))
    assert contents(tmp_path / "killed" / "results") == contents(tmp_path / "whole" / "results")
    assert not list(checkpoints.glob("sinusoid/*"))


@pytest.mark.slow
def test_a_killed_uci_run_on_two_processes_goes_on(data_root, tmp_path):
    def arguments(name):
        choice = ("--optimizers", "sgd", "--methods", "nll", "fisher8", "--rates", 0.01, 0.1)
        where = ("--data-dir", data_root, "--cache-dir", tmp_path / "fast")
        results = ("--results", tmp_path / name, "--workers", 2)
        return ("uci", "--datasets", "yacht", "power", *choice, *where, *results)

    finish(spawn(*arguments("whole")))
    killed = tmp_path / "killed"
    kill_when(spawn(*arguments("killed")), lambda: contents(killed))
    time.sleep(2)  # the workers notice within half a second that their parent is gone
    half = contents(killed)
    time.sleep(3)
    assert contents(killed) == half
    assert 0 < len(half) < 8
    finish(spawn(*arguments("killed")))
    assert contents(killed) == contents(tmp_path / "whole")
