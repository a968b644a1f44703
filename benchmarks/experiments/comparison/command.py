"""Fisher8 under SGD, Adam and Muon, and the natural gradient, at equal time; their angles.

Runs a sinusoid and rotated digits (the UCI tables are those of `python -m benchmarks curvature`)
and measures the angles between the methods' directions along a training. Every cell becomes one
file in the results folder; a second start goes on where the first ended. A Kronecker method has an
environment of its own: `python -m benchmarks.experiments.comparison.kfac`.
"""

import argparse
from typing import Any

from benchmarks.experiments.comparison.plan import (
    ANGLE_SETTINGS,
    METHODS,
    PROBLEMS,
    TABLE,
    AngleJob,
    CostJob,
    RunJob,
    SceneJob,
)
from benchmarks.experiments.uci.data import default_cache_dir, prepare
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store

NAMES = (*ANGLE_SETTINGS, "scene")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of problems and methods, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--problems", nargs="+", default=["all"], help=", ".join(NAMES))
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    add_run_arguments(parser, cache=True)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    problems = check_names("problems", args.problems, NAMES)
    methods = check_names("methods", args.methods, tuple(METHODS))
    store = Store(args.results)
    for problem in problems:
        if problem == "scene":
            _run("scene:run_scene", [SceneJob(args.results)], args, lambda job: 3)
            continue
        if problem in PROBLEMS:
            _run("jobs:run_costs", [CostJob(problem, args.data_dir, args.results)], args)
            costs = store.read(f"comparison/costs-{problem}")
            jobs = [run_job(costs, problem, method, args) for method in methods]
            _run("jobs:run_method", jobs, args, lambda job: job.steps * len(job.rates))
        _run("angles:run_angles", [_angle_job(problem, args)], args)
    return _print_tables(store)


def run_job(costs: Any, problem: str, method: str, args: argparse.Namespace) -> RunJob:
    """As many steps as take the time of the budget."""
    seconds = costs[method][1]
    steps = round(PROBLEMS[problem].adam_steps * costs["adam_nll"][1] / seconds)
    return RunJob(problem, method, steps, seconds, args.data_dir, args.results)


def _angle_job(problem: str, args: argparse.Namespace) -> AngleJob:
    table = None
    if problem == TABLE:
        cache = args.cache_dir or default_cache_dir()
        table = prepare([TABLE], args.data_dir, cache)[TABLE]
    return AngleJob(problem, args.data_dir, args.results, table)


def _run(function: str, jobs: list[Any], args: argparse.Namespace, work: Any = None) -> None:
    options = {} if work is None else {"work": work}
    run_missing(f"comparison.{function}", jobs, args, title="Comparison", **options)


def _print_tables(store: Store) -> int:
    from benchmarks.experiments.comparison.report import section

    return print_section(section(store))
