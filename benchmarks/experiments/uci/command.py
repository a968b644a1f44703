"""The UCI tables: eight sets, 20 predefined splits, SGD for 100 steps and Adam for 100 epochs.

Every cell (set, method, optimiser, learning rate) becomes one file in the results folder. A second
start goes on where the first ended, however it ended. `python -m benchmarks report` compares the
results with the published tables.
"""

import argparse
import time
from pathlib import Path

from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare, train_rows
from benchmarks.experiments.uci.plan import BUDGETS, PAPER_METHODS, SPLITS, Job, check_names
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.data import DataUnavailableError, add_data_argument
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import Report, default_workers, run_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--optimizers", nargs="+", default=tuple(BUDGETS), choices=tuple(BUDGETS))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=PAPER_METHODS,
        help="names of benchmarks/machinery/methods.py, or all",
    )
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument(
        "--rates", nargs="+", type=float, default=None, help="default: those of the paper"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--cache-dir", type=Path, default=None, help="fast copies of the data")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and says what it took."""
    began = time.perf_counter()
    try:
        jobs = make_jobs(args)
    except (DataUnavailableError, ValueError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    store = Store(args.results)
    for path in store.damaged("uci"):
        console.print(f"{path.name} is damaged and will be computed again.")
    open_jobs = [job for job in jobs if _is_open(job, store)]
    cells = sum(len(job.rates) for job in jobs)
    if not open_jobs:
        console.print(f"All {cells} cells are there. `python -m benchmarks report` shows them.")
        return 0
    work = sum(_work(job) for job in open_jobs)
    workers = args.workers or default_workers()
    with progress("UCI, training steps", work) as report:
        peak = run_jobs(run_job, open_jobs, workers=workers, report=report)
    seconds = time.perf_counter() - began
    console.print(
        f"{cells} cells, {work:,} training steps in {seconds:.1f} s on {workers} workers "
        f"({1e6 * seconds / work:.1f} us a step, all included); peak memory "
        f"{peak / 2**30:.2f} GiB over all processes."
    )
    return 0


def run_job(job: Job, report: Report) -> None:
    """Runs in a worker; only there JAX is imported."""
    from benchmarks.experiments.uci import jobs as uci_jobs

    uci_jobs.run_job(job, report)


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """The jobs of a command line, neighbours sharing their compiled program."""
    datasets = check_names("datasets", args.datasets, tuple(DATASETS))
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    return [
        Job(
            optimizer=optimizer,
            method=method,
            dataset=dataset,
            rates=tuple(args.rates or BUDGETS[optimizer].rates),
            seed=args.seed,
            data=paths[dataset],
            results=args.results,
        )
        for optimizer in args.optimizers
        for method in _check_methods(args.methods)
        for dataset in datasets
    ]


def _check_methods(chosen: list[str]) -> list[str]:
    if all(name in PAPER_METHODS for name in chosen):
        return list(chosen)
    from benchmarks.machinery.methods import METHODS

    return check_names("methods", chosen, tuple(METHODS))


def _is_open(job: Job, store: Store) -> bool:
    return any(store.read(job.cell(rate), job.spec(rate)) is None for rate in job.rates)


def _work(job: Job) -> int:
    return SPLITS * len(job.rates) * job.steps(train_rows(job.data))
