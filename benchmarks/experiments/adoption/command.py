"""One changed line in programs of other authors: with and without it, over learning rates.

Every program is installed from the package registry into an environment of its own and trained
there; nothing of it is stored here but scores. A cell is a program, a problem and a method. What
uses the trained networks further, such as a sampler, comes after the programs that train them.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.experiments.adoption.plan import (
    CAUSES,
    METHODS,
    PROGRAMS,
    RATES,
    Job,
    requirements,
)
from benchmarks.experiments.adoption.report import choose, section
from benchmarks.machinery.command import UsageError, add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument, cache_dir
from benchmarks.machinery.document import print_section
from benchmarks.machinery.environments import environment
from benchmarks.machinery.store import Store

UCI_PROGRAMS = ("flowjax",)  # the others bring or make their data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--programs", nargs="+", default=["all"], help=", ".join(PROGRAMS))
    parser.add_argument("--problems", nargs="+", default=["all"])
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join((*METHODS, CAUSES)))
    parser.add_argument("--environments", type=Path, default=None, help="where they are kept")
    add_run_arguments(parser)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        names = check_names("programs", args.programs, tuple(PROGRAMS))
        for goes_on in (False, True):
            some = [name for name in names if (PROGRAMS[name].goes_on is not None) == goes_on]
            if jobs := make_jobs(args, some):
                run_missing("adoption.jobs:run_job", jobs, args, title="Adoption")
    return print_section(section(Store(args.results)))


def make_jobs(args: argparse.Namespace, names: Iterable[str]) -> list[Job]:
    """One job for each program, problem and method; environments where a cell is missing."""
    known = dict.fromkeys(problem for one in PROGRAMS.values() for problem in one.problems)
    problems = check_names("problems", args.problems, tuple(known))
    methods = check_names("methods", args.methods, (*METHODS, CAUSES))
    folder = args.environments or cache_dir() / "environments"
    jobs = []
    for name in names:
        program = PROGRAMS[name]
        some = [
            _job(args, name, problem, method)
            for problem in program.problems
            for method in program.methods
            if problem in problems and method in methods
        ]
        store = Store(args.results)
        if any(store.read(job.cell, job.spec) is None for job in some):
            python = environment(requirements(program), folder)
            some = [job._replace(python=python) for job in some]
        jobs += some
    return jobs


def _job(args: argparse.Namespace, name: str, problem: str, method: str) -> Job:
    program = PROGRAMS[name]
    rates: tuple[float | None, ...] = RATES if METHODS.get(method, ("", True))[1] else (None,)
    if program.goes_on is not None:
        rates = (_chosen_rate(args, program.goes_on, problem, method),)
    data = _data(args, problem) if name in UCI_PROGRAMS else None
    steps = (program.network_steps if method == "network" else None) or program.steps
    return Job(name, problem, method, steps, program.seeds, rates, Path(), data, args.results)


def _chosen_rate(args: argparse.Namespace, program: str, problem: str, method: str) -> float | None:
    store = Store(args.results)
    cell = store.load(store.path(f"adoption/{program}-{problem}-{method}"))
    if cell is None:
        raise UsageError(
            f"Nothing is stored of `--programs {program} --problems {problem} --methods {method}`, "
            "whose learning rate is used here. Run that first, or `--programs all`."
        )
    return choose(cell).rate


def _data(args: argparse.Namespace, problem: str) -> Path:
    from benchmarks.experiments.uci.data import default_cache_dir, prepare

    return prepare([problem], args.data_dir, default_cache_dir())[problem]
