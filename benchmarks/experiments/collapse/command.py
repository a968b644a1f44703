"""The command `python -m benchmarks collapse`.

Every default at once on 13 data sets, five activations, two networks, three budgets and two batch
sizes. It asks one thing of every training: does the prediction still depend on the input? Beside it
the share of dead units, and the same for the natural gradient and for Adam.

The grid is ordered so that a part of it is a balanced part: small networks first, then wide ones
by their budget. Large sets are cut to 10,000 rows. `--variants` runs what the
default optimizer was chosen from, on a small part of it.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments.collapse.data import SETS
from benchmarks.experiments.collapse.plan import (
    ACTIVATIONS,
    BATCHES,
    METHODS,
    STEPS,
    WIDTHS,
    Job,
    groups,
    order,
    variant_jobs,
)
from benchmarks.experiments.collapse.report import section
from benchmarks.experiments.tables.data import prepare
from benchmarks.experiments.uci.data import default_cache_dir
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Parts of the grid, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    parser.add_argument("--sets", nargs="+", default=["all"], help=", ".join(SETS))
    parser.add_argument("--activations", nargs="+", default=["all"], help=", ".join(ACTIVATIONS))
    parser.add_argument("--widths", nargs="+", default=["all"], help=", ".join(WIDTHS))
    parser.add_argument("--steps", nargs="+", type=int, choices=STEPS, default=list(STEPS))
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES, default=list(BATCHES))
    add_run_arguments(parser, cache=True)
    parser.add_argument("--variants", action="store_true", help="not the grid: other optimizers")
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        jobs = _make_variants(args) if args.variants else make_jobs(args)
        run_missing("collapse.jobs:run_job", jobs, args, title="Collapse", work=_work)
    return print_section(section(Store(args.results)))


def _make_variants(args: argparse.Namespace) -> list[Job]:
    return variant_jobs(_paths(SETS, args), args.results)


def _paths(sets: Sequence[str], args: argparse.Namespace) -> dict[str, Path]:
    return prepare(list(sets), args.data_dir, args.cache_dir or default_cache_dir())


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """The jobs of a command line, the cheapest first."""
    chosen = {
        "sets": check_names("sets", args.sets, SETS),
        "methods": check_names("methods", args.methods, tuple(METHODS)),
        "activations": check_names("activations", args.activations, ACTIVATIONS),
        "widths": check_names("widths", args.widths, tuple(WIDTHS)),
    }
    paths = _paths(chosen["sets"], args)
    grid = itertools.product(
        chosen["methods"], chosen["activations"], chosen["widths"], args.steps, args.batches
    )
    return order(
        [
            Job(*place, group, tuple(paths[name] for name in group), args.results)
            for place in grid
            for group in groups(place[2], tuple(chosen["sets"]))
        ]
    )


def _work(job: Job) -> float:
    return job.run_steps
