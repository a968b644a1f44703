"""Where a result comes from: command, versions, machine, memory."""

import importlib.metadata
import os
import platform
import resource
import shlex
import sys
from collections.abc import Sequence
from typing import Any

RECORDED_PACKAGES = ("jax", "jaxlib", "optax", "numpy")


def provenance(command: Sequence[str] | None = None) -> dict[str, Any]:
    """The record that accompanies each cell."""
    versions = {name: importlib.metadata.version(name) for name in RECORDED_PACKAGES}
    return {
        "command": shlex.join(command_line() if command is None else command),
        "versions": {"python": platform.python_version(), **versions},
    }


def command_line() -> list[str]:
    """The command as a reader would type it, without the place of the interpreter."""
    return ["python", "-m", "benchmarks", *sys.argv[1:]]


def machine() -> dict[str, Any]:
    """Processor and cores, for records that hold times."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
    }


def peak_memory_bytes() -> int:
    """The largest resident set of this process or of its largest finished child."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return 1024 * max(own, children)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or "unknown"
