"""The sinusoid of twelve periods under constant and linear noise, with maps over training.

Four methods, five seeds together, 700,000 steps. The training is kept after every 10,000 steps; a
second start goes on from there and ends with the same numbers. `--setting literal` is the published
description with PyTorch's default initialisation, `spread` places the first layer's units over the
domain, and `best`, the default, adds momentum and a cosine decay. `python -m
benchmarks report` draws the figure.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.sinusoid.plan import METHODS, NOISES, SETTINGS, Job
from benchmarks.machinery.command import add_run_arguments, run_missing
from benchmarks.machinery.document import print_blocks
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of trainings, and where things are."""
    parser.add_argument("--noises", nargs="+", default=tuple(NOISES), choices=tuple(NOISES))
    parser.add_argument("--methods", nargs="+", default=tuple(METHODS), choices=tuple(METHODS))
    parser.add_argument("--setting", default="best", choices=tuple(SETTINGS))
    parser.add_argument("--steps", type=int, default=700_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="unfinished trainings")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the errors of every method."""
    jobs = [
        Job(
            noise=noise,
            method=method,
            setting=args.setting,
            steps=args.steps,
            seeds=args.seeds,
            chunk=args.chunk,
            results=args.results,
            runs=args.runs,
        )
        for noise in args.noises
        for method in args.methods
    ]
    run_missing("sinusoid.jobs:run_job", jobs, args, title="Sinusoid", work=_work)
    from benchmarks.experiments.sinusoid.report import table

    stored = [Store(args.results).load(Store(args.results).path(job.cell)) for job in jobs]
    print_blocks([table([cell for cell in stored if cell is not None])])
    return 0


def _work(job: Job) -> float:
    return job.steps * job.seeds
