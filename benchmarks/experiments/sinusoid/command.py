"""The sinusoid of twelve periods under constant and linear noise, with maps over training.

Four methods, five seeds together, 700,000 steps. The training is kept after every 10,000 steps; a
second start goes on from there and ends with the same numbers. `--setting literal` is the published
description with PyTorch's default initialisation, `spread` places the first layer's units over the
domain, and `best`, the default, adds momentum and a cosine decay. `python -m
benchmarks report` draws the figure.
"""

import argparse
import time
from pathlib import Path

from benchmarks.experiments.sinusoid.plan import METHODS, NOISES, SETTINGS, Job
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import Report, default_workers, run_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of trainings, and where things are."""
    parser.add_argument("--noises", nargs="+", default=tuple(NOISES), choices=tuple(NOISES))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--setting", default="best", choices=tuple(SETTINGS))
    parser.add_argument("--steps", type=int, default=700_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="unfinished trainings")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the errors of every method."""
    began = time.perf_counter()
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
    store = Store(args.results)
    open_jobs = [job for job in jobs if store.read(job.cell, job.spec) is None]
    if open_jobs:
        work = sum(job.steps * job.seeds for job in open_jobs)
        workers = args.workers or default_workers()
        with progress("Sinusoid, training steps", work) as report:
            peak = run_jobs(run_job, open_jobs, workers=workers, report=report)
        seconds = time.perf_counter() - began
        console.print(f"{seconds:.0f} s, peak memory {peak / 2**30:.2f} GiB over all processes.")
    for job in jobs:
        result = store.read(job.cell, job.spec)
        assert result is not None
        console.print(f"{job.noise:9} {job.method:15} {_words(result)}")
    return 0


def run_job(job: Job, report: Report) -> None:
    """Runs in a worker; only there JAX is imported."""
    from benchmarks.experiments.sinusoid import jobs as sinusoid_jobs

    sinusoid_jobs.run_job(job, report)


def _words(result: dict) -> str:
    def spread(name: str) -> str:
        values = [value for value in result[name] if value is not None]
        if len(values) < len(result[name]):
            return f"diverged in {len(result[name]) - len(values)} of {len(result[name])} seeds"
        return f"{sum(values) / len(values):.4f} (from {min(values):.4f} to {max(values):.4f})"

    return f"RMSE {spread('rmse')}, mean |sigma/true - 1| {spread('sigma_error')}"
