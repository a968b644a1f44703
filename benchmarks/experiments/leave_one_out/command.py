"""Leave-one-out in closed form, beside a refit for every row and beside cross-validation.

`refits`: a network of the study of gaps is trained by evidence and brought nearer to the maximum of
its posterior; then every row is left out in turn and Levenberg-Marquardt steps go on.
`folds`: the mean NLL of all rows without themselves, beside ten folds of the same training.
"""

import argparse

from benchmarks.experiments.leave_one_out.plan import REFITS, SETS, Job
from benchmarks.experiments.leave_one_out.report import section
from benchmarks.experiments.tables.data import prepare
from benchmarks.experiments.uci.data import default_cache_dir
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store

KINDS = {"refits": REFITS, "folds": SETS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(SETS))
    parser.add_argument("--kinds", nargs="+", default=["all"], help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    datasets = check_names("datasets", args.datasets, SETS)
    kinds = check_names("kinds", args.kinds, tuple(KINDS))
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    jobs = [
        Job(kind, name, args.seed, paths[name], args.results)
        for kind in kinds
        for name in datasets
        if name in KINDS[kind]
    ]
    run_missing("leave_one_out.jobs:run_job", jobs, args, title="Leave one out")
    return print_section(section(Store(args.results)))
