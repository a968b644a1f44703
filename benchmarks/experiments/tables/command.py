"""The estimator with default settings on tables, beside boosted trees and a deep ensemble.

Eight UCI sets with 20 splits each, and fifteen sets of the folder `tables` with 10 (the largest
three with 3). The first split of all sets and models comes first, then the second, so that a run
that is interrupted has seen every set. Every cell (model, set) is one file in the results folder.
It is written again after every split, and a second start goes on there. Variants of the estimator
are run on three splits. `--times` measures the processor time of a first fit, compiled from
nothing, and of a second one on other rows.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments.tables.data import prepare
from benchmarks.experiments.tables.plan import (
    MODELS,
    MORE_EFFORT,
    OUTSIDE,
    PUBLISHED,
    SPLITS,
    STRONGEST,
    STRONGEST_SPLITS,
    VARIANT_SPLITS,
    VARIANTS,
    Job,
    TimesJob,
    has,
)
from benchmarks.experiments.tables.report import section
from benchmarks.experiments.uci.data import default_cache_dir
from benchmarks.machinery.command import UsageError, add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import Section, print_section, to_markdown
from benchmarks.machinery.environments import default_environments, environment
from benchmarks.machinery.store import Store, write_atomically

KNOWN = (*MODELS, *MORE_EFFORT, *VARIANTS, *STRONGEST)
SETS = SPLITS | PUBLISHED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--models", nargs="+", default=["all"], help=", ".join(KNOWN))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(SETS))
    parser.add_argument("--splits", type=int, default=max(SETS.values()), help="at most so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environments", type=Path, default=None, help="where they are kept")
    add_run_arguments(parser, cache=True)
    parser.add_argument("--times", action="store_true", help="time fits instead of scoring them")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("--docs", type=Path, default=None, help="also write it as Markdown, here")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if args.times and not args.table:
        timed = make_times_jobs(make_jobs(args))
        run_missing("tables.jobs:run_times_job", timed, args, title="Tables, timed fits")
    elif not args.table:
        for number, jobs in enumerate(rounds(make_jobs(args))):
            title = f"Tables, split {number}"
            run_missing("tables.jobs:run_job", jobs, args, title=title, is_whole=Job.is_whole)
    found = section(Store(args.results))
    if args.docs and found:
        write_atomically(args.docs, for_docs(found).encode())
    return print_section(found)


def for_docs(found: Section) -> str:
    """The tables for a page that has a heading of its own."""
    _, _, body = to_markdown("", [found], None).partition("\n\n")
    return body


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """One job for each model and set, with all its splits; environments where a cell is missing."""
    datasets = check_names("datasets", args.datasets, tuple(SETS))
    models = check_names("models", args.models, KNOWN)
    if args.splits < 1:
        raise UsageError(f"`--splits` must be positive, got {args.splits}.")
    cache = args.cache_dir or default_cache_dir()
    paths = prepare(datasets, args.data_dir, cache, args.environments)
    store, jobs = Store(args.results), []
    for model in models:
        chosen = [name for name in datasets if has(model, name)]
        some = [
            Job(model, name, _splits(args, model, name), args.seed, paths[name], args.results)
            for name in chosen
        ]
        if model in OUTSIDE and not all(_is_stored(store, job) for job in some):
            folder = args.environments or default_environments()
            python = environment(OUTSIDE[model].requirements, folder, library=False)
            some = [dataclasses.replace(job, python=python) for job in some]
        jobs += some
    return jobs


def _splits(args: argparse.Namespace, model: str, dataset: str) -> int:
    few = {**dict.fromkeys(VARIANTS, VARIANT_SPLITS), **dict.fromkeys(STRONGEST, STRONGEST_SPLITS)}
    most = few.get(model, args.splits) if dataset in SPLITS else args.splits
    return min(most, args.splits, SETS[dataset])


def _is_stored(store: Store, job: Job) -> bool:
    result = store.read(job.cell, job.spec)
    return result is not None and job.is_whole(result)


def rounds(jobs: Sequence[Job]) -> list[list[Job]]:
    """The same work, one split of every cell after the other."""
    longest = max(job.splits for job in jobs)
    return [
        [dataclasses.replace(job, splits=number) for job in jobs if job.splits >= number]
        for number in range(1, longest + 1)
    ]


def make_times_jobs(jobs: Sequence[Job]) -> list[TimesJob]:
    """One job for each model and set."""
    return [
        TimesJob(job.model, job.dataset, job.seed, job.data, job.results)
        for job in jobs
        if job.model not in OUTSIDE  # their cells have times
    ]
