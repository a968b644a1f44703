"""What commands share: their options, running the cells that are missing, and being interrupted.

A *job* is picklable and computes one or several cells in a worker. What is stored is never computed
again, so a command that was interrupted is started again with the same words.
"""

import argparse
import functools
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.machinery.console import console, stored_bar
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import Report, default_workers, run_jobs


class UsageError(ValueError):
    """A command line that cannot be run; the command ends with this message."""


class InterruptedRunError(KeyboardInterrupt):
    """Ctrl-C; the message says what is stored and how to go on."""


Job = TypeVar("Job")


def one_cell(job: Any) -> dict[str, Mapping[str, Any]]:
    """The cell of a job that writes one: its name is `job.cell`, what defines it `job.spec`."""
    return {job.cell: job.spec}


def add_run_arguments(parser: argparse.ArgumentParser, *, cache: bool = False) -> None:
    """Where results go and how many processes compute them."""
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")
    if cache:
        parser.add_argument("--cache-dir", type=Path, default=None, help="fast copies of the data")


def check_names(option: str, chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    """`chosen`, all of `known` for "all", or an error that lists what there is."""
    if list(chosen) == ["all"]:
        return list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise UsageError(f"`--{option}` has no {unknown[0]!r}. There are: {', '.join(known)}.")
    return list(chosen)


def run_missing(
    function: str,
    jobs: Sequence[Job],
    args: argparse.Namespace,
    *,
    title: str,
    cells: Callable[[Job], Mapping[str, Mapping[str, Any]]] = one_cell,
    work: Callable[[Job], float] = lambda job: 1.0,
    is_whole: Callable[[Job, dict[str, Any]], bool] = lambda job, result: True,
) -> None:
    """Runs the jobs that have a missing cell and prints what it took.

    Args:
        function: `module:name` below `benchmarks.experiments`, called with a job and a function
            that reports work done. Its module is imported in the workers alone, after they chose
            their cores.
        jobs: everything that was asked for.
        args: with `results` and `workers`, see `add_run_arguments`.
        title: of the progress bar.
        cells: the specs of the cells that a job writes, by their names.
        work: the size of a job, in the units that `function` reports.
        is_whole: False for a stored result that the job would add to.

    Raises:
        InterruptedRunError: Ctrl-C was pressed.
    """
    store = Store(args.results)
    wanted = {name: (job, spec) for job in jobs for name, spec in cells(job).items()}

    def is_stored(name: str) -> bool:
        job, spec = wanted[name]
        result = store.read(name, spec)
        return result is not None and is_whole(job, result)

    _name_damage(store, wanted)
    missing = {name for name in wanted if not is_stored(name)}
    open_jobs = [job for job in jobs if not missing.isdisjoint(cells(job))]
    if not open_jobs:
        console.print(f"All {len(wanted)} cells are stored below {store.root}.")
        return
    began, found = time.perf_counter(), len(missing)

    def count() -> int:
        missing.difference_update([name for name in missing if is_stored(name)])
        return len(wanted) - len(missing)

    sizes = [work(job) for job in jobs], [work(job) for job in open_jobs]
    workers, run = args.workers or default_workers(), functools.partial(_run_by_name, function)
    try:
        with stored_bar(title, sum(sizes[0]), sum(sizes[1]), len(wanted), count) as report:
            peak = run_jobs(run, open_jobs, workers=workers, report=report)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"Interrupted: {count()} of {len(wanted)} cells are stored below {store.root}; the "
            "same command goes on from there."
        ) from None
    console.print(
        f"{found} cells in {time.perf_counter() - began:.1f} s on {workers} workers; peak memory "
        f"{peak / 2**30:.2f} GiB over all processes."
    )


def _run_by_name(name: str, job: Any, report: Report) -> None:
    pkgutil.resolve_name(f"benchmarks.experiments.{name}")(job, report)


def _name_damage(store: Store, names: Mapping[str, Any]) -> None:
    for name in names:
        path = store.path(name)
        if path.exists() and store.load(path) is None:
            console.print(f"{path.name} is damaged and will be computed again.")
