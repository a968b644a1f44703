"""The KL radius on the UCI sets: no learning rate, against every learning rate of the tables.

Every cell (experiment, set, variant) becomes one file in the results folder; a second start goes on
where the first ended. Ends with the tables against the published figures and the claims they bear.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.radius.plan import VARIANTS, RadiusJob
from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare, train_rows
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.console import console
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store, write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of experiments, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--experiments", nargs="+", default=["all"], help=", ".join(VARIANTS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument("--cost", action="store_true", help="only measure the cost of a step")
    parser.add_argument("--seed", type=int, default=0)
    add_run_arguments(parser, cache=True)
    parser.add_argument("--picture", type=Path, default=None, help="also write the picture here")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    store = Store(args.results)
    if args.cost:
        from benchmarks.experiments.radius.cost import measure

        measure(store)
    else:
        jobs, cells = make_jobs(args), RadiusJob.cells
        run_missing("radius.jobs:run_job", jobs, args, title="KL radius", cells=cells, work=_work)
    return _print_tables(store, args.seed, args.picture)


def make_jobs(args: argparse.Namespace) -> list[RadiusJob]:
    """The jobs of a command line, neighbours sharing their compiled program."""
    datasets = check_names("datasets", args.datasets, tuple(DATASETS))
    experiments = check_names("experiments", args.experiments, tuple(VARIANTS))
    paths = prepare(datasets, args.data_dir, args.cache_dir or default_cache_dir())
    return [
        RadiusJob(experiment, dataset, args.seed, paths[dataset], args.results)
        for experiment in experiments
        for dataset in datasets
    ]


def _work(job: RadiusJob) -> float:
    return job.run_steps(train_rows(job.data))


def _print_tables(store: Store, seed: int, picture: Path | None) -> int:
    from benchmarks.experiments.radius.report import section

    code = print_section(section(store, seed))
    if picture is not None and code == 0:
        from benchmarks.experiments.radius.report import draw

        write_atomically(picture, draw(store, seed))
        console.print(f"{picture} is written.")
    return code
