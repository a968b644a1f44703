"""The estimator with default settings on the UCI sets, beside NGBoost and gradient boosting.

Every cell (model, set) becomes one file in the results folder: the scores of its splits and the
seconds they took. It is written again after every split, and a second start goes on there. The
table at the end compares them with the best figures that the paper prints for Adam, over all
methods and learning rates. `--times` measures the time of a fit, all models on the same split in
turn, in processor seconds of one core, which other programs on the machine disturb little.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.experiments.tables.report import markdown, print_tables
from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare
from benchmarks.experiments.uci.plan import SPLITS, check_names
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.data import DataUnavailableError, add_data_argument
from benchmarks.machinery.store import DEFAULT_RESULTS, Store, write_atomically
from benchmarks.machinery.workers import Report, default_workers, run_jobs

MODELS = ("fisher8", "gradient_boosting", "ngboost")


class Job(NamedTuple):
    """One model on all splits of one set."""

    model: str
    dataset: str
    splits: int
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"estimator/{self.dataset}-{self.model}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {name: getattr(self, name) for name in ("model", "dataset", "seed")}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        seed = "" if self.seed == 0 else f" --seed {self.seed}"
        names = f"--models {self.model} --datasets {self.dataset}"
        return f"python -m benchmarks estimator {names}{seed}"

    def done(self) -> int:
        """The number of splits that the store already has."""
        result = Store(self.results).read(self.cell, self.spec)
        return 0 if result is None else len(result["rmse"])


class TimesJob(NamedTuple):
    """The time of a fit on one set, for all models in turn."""

    dataset: str
    seed: int
    data: Path
    results: Path

    @property
    def cell(self) -> str:
        """The name in the store."""
        return f"estimator-times/{self.dataset}"

    @property
    def spec(self) -> dict[str, object]:
        """What defines the cell."""
        return {"dataset": self.dataset, "seed": self.seed, "models": list(MODELS)}

    @property
    def command(self) -> str:
        """The shortest command that computes it."""
        return f"python -m benchmarks estimator --times --datasets {self.dataset}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--models", nargs="+", default=["all"], help=", ".join(MODELS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--cache-dir", type=Path, default=None, help="fast copies of the data")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")
    parser.add_argument("--times", action="store_true", help="time fits instead of scoring them")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("--docs", type=Path, default=None, help="also write it as Markdown, here")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the table."""
    store = Store(args.results)
    if not args.table:
        try:
            jobs = make_jobs(args)
        except (DataUnavailableError, ValueError) as error:
            console.print(f"[red]{error}[/red]")
            return 1
        workers = args.workers or default_workers()
        began = time.perf_counter()
        if args.times:
            untimed = [job for job in make_times_jobs(jobs) if not store.read(job.cell, job.spec)]
            cells = len(untimed)
            with progress("Estimators, timed fits", 2 * len(MODELS) * cells) as report:
                run_jobs(run_times_job, untimed, workers=workers, report=report)
        else:
            missing = [job for job in jobs if job.done() < job.splits]
            cells = len(missing)
            work = sum(job.splits - job.done() for job in missing)
            with progress("Estimators, splits", work) as report:
                run_jobs(run_job, missing, workers=workers, report=report)
        console.print(f"{cells} cells in {time.perf_counter() - began:.0f} s.")
    if args.docs:
        write_atomically(args.docs, markdown(store).encode())
    return print_tables(store)


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """Jobs, the sets that take longest last."""
    datasets = check_names("datasets", args.datasets, tuple(DATASETS))
    models = check_names("models", args.models, MODELS)
    if not 1 <= args.splits <= SPLITS:
        raise ValueError(f"`--splits` must lie between 1 and {SPLITS}, got {args.splits}.")
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


def run_times_job(job: TimesJob, report: Report) -> None:
    """Runs in a worker, pinned to one core."""
    from benchmarks.experiments.tables import jobs as estimator_jobs

    estimator_jobs.run_times_job(job, report)


def run_job(job: Job, report: Report) -> None:
    """Runs in a worker; only there the models are imported."""
    from benchmarks.experiments.tables import jobs as estimator_jobs

    estimator_jobs.run_job(job, report)
