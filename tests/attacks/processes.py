"""One of several processes is killed in training: the others end, and a restart goes on."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.processes.launch import ROOT, free_port

TIMEOUT = 400  # seconds; a hanging process must not hang the tests
BOUND = 60  # seconds until the last survivor has ended; the heartbeat is ten
KILLED_AT = 8
# What JAX writes when a process, or the one that coordinates, does not answer any more.
CLEAR = ("heartbeat timeout", "coordination service", "Connection closed by peer")


def start(folder: Path, count: int, pause: float) -> list[subprocess.Popen]:
    """Processes with one device each; their errors go to files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    places = [str(folder / "states"), str(folder / "result"), str(pause)]
    command = [sys.executable, "-m", "tests.attacks.train_together", address, str(count)]
    return [
        subprocess.Popen(
            [*command, str(index), *places],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=(folder / f"errors_{index}").open("w"),
            text=True,
        )
        for index in range(count)
    ]


def finish(folder: Path, count: int) -> int:
    """Runs to the end and returns the step that came first."""
    processes = start(folder, count, 0)
    try:
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for index, process in enumerate(processes):
        assert process.returncode == 0, (folder / f"errors_{index}").read_text()[-3000:]
    return _steps(outputs[0])[0]


def kill_one(folder: Path, count: int, victim: int) -> dict[str, int]:
    """Kills the process `victim` in step 8 and watches the others."""
    processes = start(folder, count, 0.1)
    try:
        for line in processes[victim].stdout or []:
            if _steps(line) == [KILLED_AT]:
                break
        processes[victim].kill()
        killed = time.monotonic()
        for process in processes:
            process.communicate(timeout=TIMEOUT)
        seconds = time.monotonic() - killed
    finally:
        for process in processes:
            process.kill()
    others = [index for index in range(count) if index != victim]
    errors = [(folder / f"errors_{index}").read_text() for index in others]
    return {
        f"others that ended within {BOUND} s": len(others) if seconds < BOUND else 0,
        "others that failed": sum(processes[index].returncode != 0 for index in others),
        "others that said why": sum(any(c in error for c in CLEAR) for error in errors),
    }


def attack(folder: Path, count: int, victim: int) -> dict[str, int]:
    """A whole run beside one with a killed process and a restart."""
    finish(folder / "whole", count)
    found = kill_one(folder / "killed", count, victim)
    found["restarted at step"] = finish(folder / "killed", count)
    whole, killed = (folder / name / "result" for name in ("whole", "killed"))
    found["files that differ"] = int(whole.read_bytes() != killed.read_bytes())
    names = [sorted(p.name for p in (folder / n / "states").iterdir()) for n in ("whole", "killed")]
    found["files left behind"] = len(set(names[1]) - set(names[0]))
    return found


def _steps(output: str) -> list[int]:
    # The transport prints lines of its own.
    lines = [line for line in output.splitlines() if line.startswith('{"step"')]
    return [json.loads(line)["step"] for line in lines]
