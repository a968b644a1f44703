"""Splits between the data (gap), beyond them (edge) and among them (random).

Rows are sorted by one feature, and the middle third or the last sixth is held out.

Eight UCI sets and five of the folder `tables`. Every cell (group of models, set, kind of split) is
one file in the results folder, written again after every split; a second start goes on there.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.gaps.plan import GAPS, GROUPS, KINDS, LARGEST_GP, Job, splits_of
from benchmarks.experiments.gaps.report import section
from benchmarks.experiments.tables.data import load, prepare
from benchmarks.experiments.uci.data import default_cache_dir
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--models", nargs="+", default=["all"], help=", ".join(GROUPS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(GAPS))
    parser.add_argument("--kinds", nargs="+", default=["all"], help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        jobs = make_jobs(args)
        run_missing("gaps.jobs:run_job", jobs, args, title="Gaps", is_whole=Job.is_whole)
    return print_section(section(Store(args.results)))


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """One job for each group of models, set and kind, small sets first."""
    datasets = check_names("datasets", args.datasets, tuple(GAPS))
    groups = check_names("models", args.models, tuple(GROUPS))
    kinds = check_names("kinds", args.kinds, KINDS)
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    return [
        Job(group, name, kind, splits_of(name, kind), args.seed, paths[name], args.results)
        for kind in kinds
        for name in datasets
        for group in groups
        if group != "gp" or _rows(paths[name]) <= LARGEST_GP
    ]


def _rows(path: Path) -> int:
    split = load(path)[0]
    return len(split.train_targets)
