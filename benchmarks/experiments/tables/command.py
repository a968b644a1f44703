"""The estimator with default settings on the UCI sets, beside NGBoost and gradient boosting.

Every cell (model, set) becomes one file in the results folder: the scores of its splits and the
seconds they took. It is written again after every split, and a second start goes on there. The
table at the end compares them with the best figures that the paper prints for Adam, over all
methods and learning rates. `--times` measures the time of a fit, all models on the same split in
turn, in processor seconds of one core, which other programs on the machine disturb little.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.tables.plan import MODELS, Job, TimesJob
from benchmarks.experiments.tables.report import section, table
from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.command import UsageError, add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_blocks, table_lines
from benchmarks.machinery.store import Store, write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--models", nargs="+", default=["all"], help=", ".join(MODELS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)
    parser.add_argument("--times", action="store_true", help="time fits instead of scoring them")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("--docs", type=Path, default=None, help="also write it as Markdown, here")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the table."""
    store = Store(args.results)
    if args.times and not args.table:
        timed = make_times_jobs(make_jobs(args))
        run_missing("tables.jobs:run_times_job", timed, args, title="Estimators, timed fits")
    elif not args.table:
        run_missing(
            "tables.jobs:run_job",
            make_jobs(args),
            args,
            title="Estimators, splits",
            work=lambda job: job.splits,
            is_whole=Job.is_whole,
        )
    if args.docs:
        write_atomically(args.docs, ("\n".join(table_lines(table(store))) + "\n").encode())
    found = section(store)
    print_blocks(found.blocks if found else [])
    return 0


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """Jobs, the sets that take longest last."""
    datasets = check_names("datasets", args.datasets, tuple(DATASETS))
    models = check_names("models", args.models, tuple(MODELS))
    if not 1 <= args.splits <= SPLITS:
        raise UsageError(f"`--splits` must lie between 1 and {SPLITS}, got {args.splits}.")
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    return [
        Job(model, dataset, args.splits, args.seed, paths[dataset], args.results)
        for model in models
        for dataset in datasets
    ]


def make_times_jobs(jobs: list[Job]) -> list[TimesJob]:
    """One job for each set of `jobs`."""
    times = [TimesJob(job.dataset, job.seed, job.data, job.results) for job in jobs]
    return list(dict.fromkeys(times))
