"""The forecaster of `examples/`, which predicts a distribution for every step, by several losses.

Learning rates are chosen on series that are held out. A network for each output, Fisher8 without
its norms and series of equal noise tell why one loss is ahead of another.
"""

import argparse

from benchmarks.experiments.forecaster.plan import NETWORKS, NOISES, Job
from benchmarks.experiments.forecaster.report import section
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    parser.add_argument("--networks", nargs="+", default=["all"], help=", ".join(NETWORKS))
    parser.add_argument("--noises", nargs="+", default=["all"], help=", ".join(NOISES))
    add_run_arguments(parser)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        networks = check_names("networks", args.networks, tuple(NETWORKS))
        noises = check_names("noises", args.noises, tuple(NOISES))
        jobs = [
            Job(network, noise, args.results)
            for network in networks
            for noise in NETWORKS[network].noises
            if noise in noises
        ]
        run_missing("forecaster.jobs:run_job", jobs, args, title="Forecaster")
    return print_section(section(Store(args.results)))
