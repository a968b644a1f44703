"""Two cosmological parameters from maps of the gravitational lensing of galaxies.

The real maps come with the FAIR Universe challenge and cannot be shipped. By default the same
pipeline runs on simulated maps in the challenge's file format; `--maps challenge` reads the real
files from the folder `weak_lensing` of the data directory. `quick` simulates small maps and takes
minutes, `full` has the size of the challenge and is meant for an accelerator. Several devices share
every batch. A training that was interrupted goes on from its last epoch.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.experiments.uci.plan import check_names
from benchmarks.experiments.weak_lensing.data import PREFIX, open_survey
from benchmarks.experiments.weak_lensing.plan import METHODS, PAPER_METHODS, PRESETS, Job, Preset
from benchmarks.experiments.weak_lensing.simulator import Simulation, simulate
from benchmarks.machinery.console import console, progress
from benchmarks.machinery.data import DataUnavailableError, add_data_argument, cache_dir, data_dir
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from benchmarks.machinery.workers import Report, default_workers, run_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of trainings, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--maps", default="simulated", choices=("simulated", "challenge"))
    parser.add_argument("--preset", default="quick", choices=tuple(PRESETS))
    parser.add_argument("--methods", nargs="+", default=PAPER_METHODS, help=", ".join(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--learning-rate", type=float, default=None)
    parser.add_argument(
        "--size",
        nargs=4,
        type=int,
        default=None,
        metavar=("HEIGHT", "WIDTH", "COSMOLOGIES", "REALISATIONS"),
        help="of the simulation",
    )
    parser.add_argument("--results", type=Path, default=DEFAULT_RESULTS)
    parser.add_argument("--scratch", type=Path, default=None, help="simulations and checkpoints")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core on CPU")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and says what it took."""
    began = time.perf_counter()
    try:
        jobs = make_jobs(args)
    except (DataUnavailableError, ValueError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    store = Store(args.results)
    open_jobs = [job for job in jobs if store.read(job.cell, job.spec) is None]
    if open_jobs:
        workers = args.workers or default_workers()
        work = sum(job.budget.epochs for job in open_jobs)
        with progress("Weak lensing, epochs", work) as report:
            peak = run_jobs(run_job, open_jobs, workers=workers, report=report)
        console.print(
            f"{len(open_jobs)} trainings in {time.perf_counter() - began:.0f} s on {workers} "
            f"workers; peak memory {peak / 2**30:.1f} GiB over all processes."
        )
    _print_table(store, jobs)
    return 0


def run_job(job: Job, report: Report) -> None:
    """Runs in a worker; only there JAX is imported."""
    from benchmarks.experiments.weak_lensing import jobs as weak_lensing_jobs

    weak_lensing_jobs.run_job(job, report)


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """The jobs of a command line; makes the simulated maps if they are not there yet."""
    preset = PRESETS[args.preset]
    scratch = args.scratch or cache_dir()
    folder, size = _find_maps(args, preset, scratch)
    budget = preset.budget
    budget = budget._replace(
        epochs=budget.epochs if args.epochs is None else args.epochs,
        learning_rate=args.learning_rate or budget.learning_rate,
    )
    return [
        Job(
            maps=args.maps,
            method=method,
            seed=seed,
            galaxies=30.0 if args.maps == "challenge" else preset.galaxies,
            budget=budget,
            channels=preset.channels,
            dense=preset.dense,
            folder=folder,
            size=size,
            results=args.results,
            scratch=scratch / "checkpoints",
        )
        for method in check_names("methods", args.methods, METHODS)
        for seed in args.seeds or preset.seeds
    ]


def _find_maps(args: argparse.Namespace, preset: Preset, scratch: Path) -> tuple[Path, str]:
    """The folder of the maps, and their size in words."""
    if args.maps == "simulated":
        setting = Simulation(*args.size) if args.size else preset.simulation
        folder = simulate(
            setting, scratch / "weak_lensing_simulated", mask=_real_mask(args, setting)
        )
        console.print("These maps are simulated: nothing published compares with their scores.")
        return folder, setting.name
    root = data_dir(args.data_dir)
    if root is None:
        raise DataUnavailableError(
            "`--maps challenge` needs `--data-dir`, a folder that holds the challenge's files in "
            "`weak_lensing`. `--maps simulated` needs none."
        )
    folder = root / "weak_lensing"
    survey = open_survey(folder)
    sizes = (*survey.mask.shape, *survey.maps.shape[:2])
    return folder, "x".join(str(size) for size in sizes)


def _real_mask(args: argparse.Namespace, setting: Simulation) -> np.ndarray | None:
    """The challenge's own mask if it is at hand and as large as the simulation."""
    root = data_dir(args.data_dir)
    path = None if root is None else root / "weak_lensing" / f"{PREFIX}_mask.npy"
    if path is None or not path.exists():
        return None
    mask = np.load(path).astype(bool)
    return mask if mask.shape == (setting.height, setting.width) else None


def _print_table(store: Store, jobs: list[Job]) -> None:
    from benchmarks.experiments.weak_lensing.report import print_table

    results = [(job, store.read(job.cell, job.spec)) for job in jobs]
    print_table(console, [(job, result) for job, result in results if result])
