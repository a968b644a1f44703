"""The angle of a rotated digit, from images, with honest error bars.

Two presets: `quick` compresses the training into a few epochs and takes minutes, `full` is the
published protocol (500 epochs, five seeds, the prior chosen from a grid), meant for an accelerator.
Every training becomes one file in the results folder; long ones are resumed from checkpoints.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.rotated_mnist.data import REGIMES, load_digits
from benchmarks.experiments.rotated_mnist.plan import PRESETS, SCHEDULES, SETTINGS, Job
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.console import console
from benchmarks.machinery.data import add_data_argument, cache_dir, data_dir
from benchmarks.machinery.document import print_blocks
from benchmarks.machinery.store import Store


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
    parser.add_argument("--scratch", type=Path, default=None, help="folder of the checkpoints")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the table of what was asked for."""
    images = _find_images(args)
    jobs = make_jobs(args, images)
    run_missing("rotated_mnist.jobs:run_job", jobs, args, title="Rotated digits", work=_work)
    from benchmarks.experiments.rotated_mnist.report import collect, tables

    store = Store(args.results)
    results = [(job.spec, store.read(job.cell, job.spec)) for job in jobs]
    print_blocks(tables(collect((spec, result) for spec, result in results if result)))
    return 0


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


def _work(job: Job) -> float:
    return job.trainings * job.epochs


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
