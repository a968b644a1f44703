"""The estimator in use: conformal intervals, rows that it asks labels for, rows that arrive.

Every cell (kind of use, set) is one file, written again after every repetition; a second start goes
on there. MAPIE and crepes run in an environment of their own, which the command makes.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.tables.data import load, prepare
from benchmarks.experiments.uci.data import default_cache_dir
from benchmarks.experiments.uses.plan import DATASETS, KINDS, Job, repetitions_of
from benchmarks.experiments.uses.report import section
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.environments import default_environments
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    every = sorted({name for names in DATASETS.values() for name in names})
    parser.add_argument("--kinds", nargs="+", default=["all"], help=", ".join(KINDS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(every))
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        jobs = make_jobs(args)
        run_missing("uses.jobs:run_job", jobs, args, title="Uses", is_whole=Job.is_whole)
    return print_section(section(Store(args.results)))


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """One job for each kind and set that it has."""
    kinds = check_names("kinds", args.kinds, tuple(KINDS))
    known = tuple(dict.fromkeys(name for kind in kinds for name in DATASETS[kind]))
    datasets = check_names("datasets", args.datasets, known)
    cache = args.cache_dir or default_cache_dir()
    paths = prepare(datasets, args.data_dir, cache)
    rows = {name: _rows(path) for name, path in paths.items()}
    return [
        Job(
            kind,
            name,
            repetitions_of(kind, rows[name]),
            args.seed,
            paths[name],
            args.results,
            default_environments(),
        )
        for kind in kinds
        for name in DATASETS[kind]
        if name in datasets
    ]


def _rows(path: Path) -> int:
    split = load(path)[0]
    return len(split.train_targets) + len(split.test_targets)
