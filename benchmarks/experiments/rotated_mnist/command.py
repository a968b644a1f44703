"""The angle of a rotated digit, from images, with honest error bars.

Two presets: `quick` compresses the training into a few epochs and takes minutes, `full` is the
published protocol (500 epochs, five seeds, the prior chosen from a grid), meant for an accelerator.
Every training becomes one file in the results folder; long ones are resumed from checkpoints.
"""

import argparse
import time
from pathlib import Path

from benchmarks.experiments.rotated_mnist.data import REGIMES, load_digits
from benchmarks.experiments.rotated_mnist.plan import PRESETS, SCHEDULES, SETTINGS, Job
from benchmarks.experiments.uci.plan import check_names
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.data import DataUnavailableError, add_data_argument, cache_dir, data_dir
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import Report, default_workers, run_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of trainings, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--preset", default="quick", choices=tuple(PRESETS))
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(SETTINGS))
    parser.add_argument("--regimes", nargs="+", default=["all"], help=", ".join(REGIMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--schedule", default=None, choices=SCHEDULES)
    parser.add_argument("--learning-rate", type=float, default=None, help="at full length")
    parser.add_argument("--prior", type=float, default=None, help="instead of the grid")
    parser.add_argument(
        "--images",
        default="auto",
        choices=("auto", "mnist", "digits"),
        help="digits are the 8 x 8 ones of scikit-learn, which `auto` falls back on",
    )
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--scratch", type=Path, default=None, help="folder of the checkpoints")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and says what it took."""
    began = time.perf_counter()
    try:
        images = _find_images(args)
        jobs = make_jobs(args, images)
    except (DataUnavailableError, ValueError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    store = Store(args.results)
    open_jobs = [job for job in jobs if store.read(job.cell, job.spec) is None]
    if open_jobs:
        work = sum(job.trainings * job.epochs for job in open_jobs)
        workers = args.workers or default_workers()
        with progress("Rotated digits, epochs", work) as report:
            peak = run_jobs(run_job, open_jobs, workers=workers, report=report)
        console.print(
            f"{len(open_jobs)} trainings, {work} epochs in {time.perf_counter() - began:.0f} s on "
            f"{workers} workers; peak memory {peak / 2**30:.1f} GiB over all processes."
        )
    _print_table(store, jobs, images)
    return 0


def run_job(job: Job, report: Report) -> None:
    """Runs in a worker; only there JAX is imported."""
    from benchmarks.experiments.rotated_mnist import jobs as rotated_mnist_jobs

    rotated_mnist_jobs.run_job(job, report)


def make_jobs(args: argparse.Namespace, images: str) -> list[Job]:
    """The jobs of a command line; neighbours share their images."""
    preset = PRESETS[args.preset]
    methods = check_names("methods", args.methods, tuple(SETTINGS))
    regimes = check_names("regimes", args.regimes, REGIMES)
    folder = data_dir(args.data_dir)
    scratch = args.scratch or cache_dir() / "checkpoints"
    jobs = []
    for seed in args.seeds or preset.seeds:
        for regime in regimes:
            for method in methods:
                setting = SETTINGS[method]
                uses_grid = preset.uses_grid and setting.has_grid and args.prior is None
                prior = setting.prior if args.prior is None else args.prior
                rate = args.learning_rate
                job = Job(
                    images=images,
                    regime=regime,
                    method=method,
                    seed=seed,
                    epochs=preset.epochs if args.epochs is None else args.epochs,
                    learning_rate=setting.learning_rate if rate is None else rate,
                    schedule=args.schedule or setting.schedule,
                    prior=None if uses_grid else prior,
                    data=folder,
                    results=args.results,
                    scratch=scratch,
                )
                jobs.append(job._replace(epochs=0) if method == "untrained" else job)
    return jobs


def _find_images(args: argparse.Namespace) -> str:
    """Which images there are, found out before any worker starts."""
    name = load_digits(args.images, args.data_dir).name
    if name == "MNIST":
        return "mnist"
    console.print(
        "These are the 8 x 8 digits of scikit-learn, not MNIST: nothing published compares with "
        "them."
    )
    return "digits"


def _print_table(store: Store, jobs: list[Job], images: str) -> None:
    from benchmarks.experiments.rotated_mnist.report import print_table

    results = [(job, store.read(job.cell, job.spec)) for job in jobs]
    print_table(console, [(job, result) for job, result in results if result], images)
