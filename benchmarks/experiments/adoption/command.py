"""One changed line in programs of other authors: with and without it, over learning rates.

Every program is installed from the package registry into an environment of its own and trained
there; nothing of it is stored here but scores. A cell is a program, a problem and a method.
"""

import argparse
from pathlib import Path

from benchmarks.experiments.adoption.plan import METHODS, PROGRAMS, Job, requirements
from benchmarks.experiments.adoption.report import section
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
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
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    parser.add_argument("--environments", type=Path, default=None, help="where they are kept")
    add_run_arguments(parser)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        jobs = make_jobs(args)
        run_missing("adoption.jobs:run_job", jobs, args, title="Adoption")
    return print_section(section(Store(args.results)))


def make_jobs(args: argparse.Namespace) -> list[Job]:
    """One job for each program, problem and method; environments where a cell is missing."""
    known = tuple(problem for program in PROGRAMS.values() for problem in program.problems)
    problems = check_names("problems", args.problems, known)
    methods = check_names("methods", args.methods, tuple(METHODS))
    folder = args.environments or cache_dir() / "environments"
    jobs = []
    for name in check_names("programs", args.programs, tuple(PROGRAMS)):
        chosen = [problem for problem in PROGRAMS[name].problems if problem in problems]
        some = [_job(args, name, problem, method) for problem in chosen for method in methods]
        store = Store(args.results)
        if any(store.read(job.cell, job.spec) is None for job in some):
            python = environment(requirements(PROGRAMS[name]), folder)
            some = [job._replace(python=python) for job in some]
        jobs += some
    return jobs


def _job(args: argparse.Namespace, name: str, problem: str, method: str) -> Job:
    program = PROGRAMS[name]
    steps = program.network_steps if method == "network" else program.steps
    data = _data(args, problem) if name in UCI_PROGRAMS else None
    return Job(name, problem, method, steps, program.seeds, Path(), data, args.results)


def _data(args: argparse.Namespace, problem: str) -> Path:
    from benchmarks.experiments.uci.data import default_cache_dir, prepare

    return prepare([problem], args.data_dir, default_cache_dir())[problem]
