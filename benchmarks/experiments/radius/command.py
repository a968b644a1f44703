"""The KL radius on the UCI sets: no learning rate, against every learning rate of the tables.

Every cell (experiment, set, variant) becomes one file in the results folder; a second start goes on
where the first ended. Ends with the tables against the published figures and the claims they bear.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.radius.plan import VARIANTS, RadiusJob
from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare, train_rows
from benchmarks.experiments.uci.plan import check_names
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.data import DataUnavailableError, add_data_argument
from benchmarks.machinery.document import to_markdown
from benchmarks.machinery.store import DEFAULT_RESULTS, Store, write_atomically
from benchmarks.machinery.workers import Report, default_workers, run_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of experiments, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--experiments", nargs="+", default=["all"], help=", ".join(VARIANTS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument("--cost", action="store_true", help="only measure the cost of a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--cache-dir", type=Path, default=None, help="fast copies of the data")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")
    parser.add_argument("--picture", type=Path, default=None, help="also write the picture here")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    store = Store(args.results)
    if args.cost:
        from benchmarks.experiments.radius.cost import measure

        measure(store)
    else:
        try:
            jobs = make_jobs(args)
        except (DataUnavailableError, ValueError) as error:
            console.print(f"[red]{error}[/red]")
            return 1
        _run_missing(jobs, store, args.workers or default_workers())
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


def run_job(job: RadiusJob, report: Report) -> None:
    """Runs in a worker; only there JAX is imported."""
    from benchmarks.experiments.radius import jobs as radius_jobs

    radius_jobs.run_job(job, report)


def _run_missing(jobs: list[RadiusJob], store: Store, workers: int) -> None:
    missing = [
        job
        for job in jobs
        if any(store.read(job.cell(name), job.spec(name)) is None for name in job.variants)
    ]
    work = sum(job.lane_steps(train_rows(job.data)) for job in missing)
    if missing:
        with progress("KL radius, training steps", work) as report:
            run_jobs(run_job, missing, workers=workers, report=report)


def _print_tables(store: Store, seed: int, picture: Path | None) -> int:
    from benchmarks.experiments.radius.report import section

    found = section(store, seed)
    if found is None:
        console.print("There are no results yet.")
        return 1
    console.print(to_markdown("", [found], None), markup=False)
    if picture is not None:
        from benchmarks.experiments.radius.report import draw

        write_atomically(picture, draw(store, seed))
        console.print(f"{picture} is written.")
    return 0
