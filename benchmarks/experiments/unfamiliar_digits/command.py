"""Digits that a network has not been trained for: does its uncertainty say so?

Networks learn the angle of the digits 0 to 5, up to 45 degrees, and see larger angles, other
digits, shuffled pixels and noise. The area under the ROC curve (AUROC) of five scores of
unfamiliarity.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.unfamiliar_digits.plan import IMAGES, SEEDS, Job
from benchmarks.experiments.unfamiliar_digits.report import section
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--images", nargs="+", default=["all"], help=", ".join(IMAGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    add_run_arguments(parser)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the table."""
    if not args.table:
        images = check_names("images", args.images, IMAGES)
        folder = None if args.data_dir is None else Path(args.data_dir)
        jobs = [Job(name, seed, folder, args.results) for name in images for seed in args.seeds]
        run_missing("unfamiliar_digits.jobs:run_job", jobs, args, title="Unfamiliar digits")
    return print_section(section(Store(args.results)))
