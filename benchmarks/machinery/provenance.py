"""Where a result comes from: command, threads, versions, machine, memory."""

import importlib.metadata
import os
import platform
import resource
from typing import Any

from benchmarks.machinery.threads import xla_threads

RECORDED_PACKAGES = ("jax", "jaxlib", "optax", "numpy")


def provenance(command: str) -> dict[str, Any]:
    """The record that accompanies each cell.

    Args:
        command: the shortest command that computes this cell, the same whatever larger run it was
            part of; so an interrupted and resumed run leaves the same bytes.
    """
    versions = {name: importlib.metadata.version(name) for name in RECORDED_PACKAGES}
    return {
        "command": command,
        "threads": xla_threads(),
        "versions": {"python": platform.python_version(), **versions},
    }


def machine() -> dict[str, Any]:
    """Processor, cores and load, for records that hold times."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),  # what else was running
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
