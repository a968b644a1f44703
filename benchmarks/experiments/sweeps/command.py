"""Collier, Trustable, Wong-Toi and post-hoc variances over their settings, on four UCI sets.

Every method has the same network, steps of Adam, learning rates and held-out rows, and may choose
its setting on these. The published sweeps are longer and on images; this one is a few minutes.
"""

import argparse

from benchmarks.experiments.sweeps.plan import METHODS, SETS, Job
from benchmarks.experiments.sweeps.report import section
from benchmarks.experiments.uci.data import default_cache_dir, prepare
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(SETS))
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    run_missing("sweeps.jobs:run_job", make_jobs(args), args, title="Sweeps", work=_work)
    return print_section(section(Store(args.results)))


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """The jobs of a command line, neighbours sharing their compiled programs."""
    datasets = check_names("datasets", args.datasets, SETS)
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    return [
        Job(method, dataset, args.seed, paths[dataset], args.results)
        for method in check_names("methods", args.methods, tuple(METHODS))
        for dataset in datasets
    ]


def _work(job: Job) -> int:
    return len(job.settings)
