"""The UCI tables: eight sets, 20 predefined splits, SGD for 100 steps and Adam for 100 epochs.

Every cell (set, method, optimiser, learning rate) becomes one file in the results folder. A second
start goes on where the first ended, however it ended. `python -m benchmarks report` compares the
results with the published tables.
"""

import argparse

from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare, train_rows
from benchmarks.experiments.uci.plan import BUDGETS, SPLITS, Job
from benchmarks.machinery.baselines import BASELINES, PUBLISHED
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.console import console
from benchmarks.machinery.data import add_data_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--optimizers", nargs="+", default=tuple(BUDGETS), choices=tuple(BUDGETS))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=PUBLISHED,
        help="names of benchmarks/machinery/baselines.py, or all",
    )
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument(
        "--rates", nargs="+", type=float, default=None, help="default: those of the paper"
    )
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and says what it took."""
    jobs = make_jobs(args)
    run_missing("uci.jobs:run_job", jobs, args, title="UCI", cells=Job.cells, work=_work)
    console.print("`python -m benchmarks report` shows the cells beside the published tables.")
    return 0


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
        for method in check_names("methods", args.methods, tuple(BASELINES))
        for dataset in datasets
    ]


def _work(job: Job) -> int:
    return SPLITS * len(job.rates) * job.steps(train_rows(job.data))
