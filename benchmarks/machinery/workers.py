"""Jobs on several processes, each pinned to a core of its own.

Small networks gain nothing from several threads inside one operation, so two pinned processes use
two cores better than one process. Every worker starts at its own stretch of the job list and takes
the next job from it, so that neighbouring jobs, which share compiled programs, meet the same
worker; a worker whose stretch is empty takes the last job of the longest one.
"""

import itertools
import os
import resource
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmarks.machinery.provenance import peak_memory_bytes

Report = Callable[[float], None]
Job = Callable[[Any, Report], None]


def default_workers() -> int:
    """One worker per core on CPU; one in all where an accelerator does the work."""
    if os.environ.get("JAX_PLATFORMS") != "cpu":
        import jax

        if jax.default_backend() != "cpu":
            return 1
    return len(os.sched_getaffinity(0))


def run_jobs(function: Job, jobs: Sequence[Any], *, workers: int, report: Report) -> int:
    """Calls `function(job, report)` for every job and returns the peak memory in bytes.

    Args:
        function: a function of a module, so that other processes can import it. What it produces it
            writes to disk itself; it calls `report(amount)` as it gets on.
        jobs: one picklable value per job; neighbours should share compiled programs.
        workers: the number of processes; 1 means this process.
        report: called here with every amount that any worker reports.

    Raises:
        RuntimeError: a job failed; the message holds its traceback. The other workers are stopped.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            function(job, report)
        return peak_memory_bytes()
    queues = _stretches(jobs, workers)
    context = get_context("spawn")
    processes, connections = [], {}
    cores = sorted(os.sched_getaffinity(0))
    try:
        for index in range(workers):
            ours, theirs = context.Pipe()
            arguments = (function, theirs, cores[index % len(cores)], os.getpid())
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections[ours] = index
        return own_peak_memory() + _dispatch(connections, queues, report)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def own_peak_memory() -> int:
    """The peak memory of this process alone; its children report their own."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _dispatch(connections: dict[Connection, int], queues: list[list[Any]], report: Report) -> int:
    peak = 0
    while connections:
        for connection in wait(list(connections)):
            assert isinstance(connection, Connection)
            try:
                kind, value = connection.recv()
            except EOFError:
                raise RuntimeError(
                    "A worker process died. Run the command again to go on."
                ) from None
            if kind == "failed":
                raise RuntimeError(f"A job failed in a worker process:\n{value}")
            if kind == "progress":
                report(value)
            elif kind == "ready":
                connection.send(_next_job(queues, connections[connection]))
            else:
                peak += value
                del connections[connection]
    return peak


def _stretches(jobs: Sequence[Any], workers: int) -> list[list[Any]]:
    bounds = [round(i * len(jobs) / workers) for i in range(workers + 1)]
    return [list(jobs[a:b]) for a, b in itertools.pairwise(bounds)]


def _next_job(queues: list[list[Any]], index: int) -> tuple[Any] | None:
    if queues[index]:
        return (queues[index].pop(0),)
    longest = max(queues, key=len)
    return (longest.pop(),) if longest else None


def _serve(function: Job, connection: Connection, core: int, parent: int) -> None:
    """The life of a worker: pin itself, ask for jobs, go when there are none or nobody asks."""
    # Before JAX is imported: it sizes its thread pool by the cores it may use.
    os.sched_setaffinity(0, {core})
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    try:
        while True:
            connection.send(("ready", None))
            job = connection.recv()
            if job is None:
                connection.send(("finished", own_peak_memory()))
                return
            function(job[0], lambda amount: connection.send(("progress", amount)))
    except Exception:
        connection.send(("failed", traceback.format_exc()))


def _leave_with(parent: int) -> None:
    """Ends this process when the parent is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
