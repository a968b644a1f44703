"""Jobs on several processes, each pinned to a core of its own.

Small networks gain nothing from several threads inside one operation, so two pinned processes use
two cores better than one process. Every worker starts at its own stretch of the job list and takes
the next job from it, so that neighbouring jobs, which share compiled programs, meet the same
worker; a worker whose stretch is empty takes the last job of the longest one.
"""

import itertools
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.machinery.provenance import peak_memory_bytes
from benchmarks.machinery.threads import use_one_thread

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
        RuntimeError: a job failed; the message holds what it raised. All workers are stopped, as
            they are by Ctrl-C.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            function(job, report)
        return peak_memory_bytes()
    context = get_context("spawn")
    amounts = context.SimpleQueue()
    pipes = [context.Pipe(duplex=False) for _ in range(workers)]
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    # A pool of one process each, because only so a job can be given to a certain worker.
    pools = [
        ProcessPoolExecutor(1, context, _settle, (core, lifeline, amounts))
        for core, (lifeline, _) in zip(cores, pipes, strict=False)
    ]
    listener = threading.Thread(target=_pass_on, args=(amounts, report), daemon=True)
    listener.start()
    try:
        peak = _own_peak_memory() + _dispatch(function, pools, _stretches(jobs, workers))
    except BaseException:
        for _, ours in pipes:
            ours.close()  # workers end at once, also in the middle of a job
        raise
    finally:
        for pool in pools:
            pool.shutdown()
    amounts.put(None)
    listener.join()
    return peak


def _dispatch(function: Job, pools: list[ProcessPoolExecutor], queues: list[list[Any]]) -> int:
    """Keeps every pool busy until no job is left; the sum of the workers' peaks."""
    running: dict[Future[int], int] = {}
    peaks = [0] * len(pools)

    def give(index: int) -> None:
        job = _next_job(queues, index)
        if job is not None:
            running[pools[index].submit(_call, function, job[0])] = index

    for index in range(len(pools)):
        give(index)
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            index = running.pop(future)
            try:
                peaks[index] = future.result()
            except BrokenProcessPool:
                message = "A worker process died. Run the command again to go on."
                raise RuntimeError(message) from None
            except Exception as error:
                raise RuntimeError(f"A job failed in a worker process: {error!r}") from error
            give(index)
    return sum(peaks)


def _stretches(jobs: Sequence[Any], workers: int) -> list[list[Any]]:
    bounds = [round(i * len(jobs) / workers) for i in range(workers + 1)]
    return [list(jobs[a:b]) for a, b in itertools.pairwise(bounds)]


def _next_job(queues: list[list[Any]], index: int) -> tuple[Any] | None:
    if queues[index]:
        return (queues[index].pop(0),)
    longest = max(queues, key=len)
    return (longest.pop(),) if longest else None


def _pass_on(amounts: Any, report: Report) -> None:
    while (amount := amounts.get()) is not None:
        report(amount)


_amounts: Any = None  # set in workers alone


def _settle(core: int, lifeline: Connection, amounts: Any) -> None:
    """The first thing a worker does."""
    global _amounts
    _amounts = amounts
    use_one_thread()
    os.sched_setaffinity(0, {core})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_leave_with, args=(lifeline,), daemon=True).start()


def _call(function: Job, job: Any) -> int:
    function(job, _amounts.put)
    return _own_peak_memory()


def _leave_with(lifeline: Connection) -> None:
    """Ends this process when the parent lets go of the other end, or is gone, however it went."""
    try:
        lifeline.recv()
    except EOFError:
        os._exit(1)


def _own_peak_memory() -> int:
    """The peak memory of this process alone; its children report their own."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
