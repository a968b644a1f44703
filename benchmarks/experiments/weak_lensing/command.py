"""Two cosmological parameters from maps of the gravitational lensing of galaxies.

The real maps come with the FAIR Universe challenge and cannot be shipped. By default the same
pipeline runs on simulated maps in the challenge's file format; `--maps challenge` reads the real
files from the folder `weak_lensing` of the data directory. `quick` simulates small maps and takes
minutes, `full` has the size of the challenge and is meant for an accelerator. Several devices share
every batch. A training that was interrupted goes on from its last epoch.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.experiments.weak_lensing.data import PREFIX, open_survey
from benchmarks.experiments.weak_lensing.plan import METHODS, PRESETS, PUBLISHED, Job, Preset
from benchmarks.experiments.weak_lensing.simulator import Simulation, simulate
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.console import console
from benchmarks.machinery.data import DataUnavailableError, add_data_argument, cache_dir, data_dir
from benchmarks.machinery.document import print_blocks
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of trainings, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--maps", default="simulated", choices=("simulated", "challenge"))
    parser.add_argument("--preset", default="quick", choices=tuple(PRESETS))
    parser.add_argument("--methods", nargs="+", default=PUBLISHED, help=", ".join(METHODS))
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
    parser.add_argument("--scratch", type=Path, default=None, help="simulations and checkpoints")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the table of what was asked for."""
    jobs = make_jobs(args)
    run_missing("weak_lensing.jobs:run_job", jobs, args, title="Weak lensing", work=_work)
    from benchmarks.experiments.weak_lensing.report import collect, tables

    store = Store(args.results)
    results = [(job.spec, store.read(job.cell, job.spec)) for job in jobs]
    print_blocks(tables(collect((spec, result) for spec, result in results if result)))
    return 0


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
        for method in check_names("methods", args.methods, tuple(METHODS))
        for seed in args.seeds or preset.seeds
    ]


def _work(job: Job) -> float:
    return job.budget.epochs


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
