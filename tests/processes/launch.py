"""Starts several Python processes that talk over loopback, and never hangs."""

import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT_SECONDS = 180


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_processes(module: str, count: int, *arguments: str) -> list[str]:
    """Runs `python -m module coordinator count index *arguments` and returns each stdout.

    Every process is ended when one fails or the time is up.
    """
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, address, str(count), str(index), *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, error[-3000:]
    return [output for output, _ in outputs]
