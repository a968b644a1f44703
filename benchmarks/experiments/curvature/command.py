"""The natural gradient in parameter space: sinusoid, UCI in 100 steps, UCI at equal time.

Every cell becomes one file in the results folder; a second start goes on where the first ended. The
processor time of a step is measured once (`--experiments costs`) and decides how many steps the
methods of `time` get.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.experiments.curvature.plan import (
    BUDGETS,
    COSTS_CELL,
    COSTS_SPEC,
    METHODS,
    SINUSOID_DAMPING,
    STEPS,
    SinusoidJob,
    StepsJob,
    TimeJob,
    program_of,
)
from benchmarks.experiments.sinusoid.plan import NOISES
from benchmarks.experiments.uci.data import DATASETS, default_cache_dir, prepare
from benchmarks.experiments.uci.plan import SPLITS
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store

EXPERIMENTS = ("sinusoid", "steps", "costs", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of experiments, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--experiments", nargs="+", default=["all"], help=", ".join(EXPERIMENTS))
    parser.add_argument("--datasets", nargs="+", default=["all"], help=", ".join(DATASETS))
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    parser.add_argument("--budgets", nargs="+", default=["all"], help=", ".join(BUDGETS))
    parser.add_argument("--seed", type=int, default=0, help="of the UCI trainings")
    parser.add_argument("--seeds", type=int, default=5, help="of the sinusoid")
    add_run_arguments(parser, cache=True)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    chosen = check_names("experiments", args.experiments, EXPERIMENTS)
    store = Store(args.results)
    if "sinusoid" in chosen:
        jobs = [
            SinusoidJob(noise, inputs, args.seeds, args.results, damping=SINUSOID_DAMPING[noise])
            for inputs in ("standardised", "raw")
            for noise in NOISES
        ]
        _run("sinusoid:run_sinusoid", jobs, args, lambda job: job.steps * job.seeds)
    if set(chosen) - {"sinusoid"}:
        _run_uci(args, chosen, store)
    return _print_tables(store)


def _run_uci(args: argparse.Namespace, chosen: list[str], store: Store) -> None:
    datasets = check_names("datasets", args.datasets, tuple(DATASETS))
    paths = prepare(list(DATASETS), args.data_dir, args.cache_dir or default_cache_dir())
    if "steps" in chosen:
        jobs = [StepsJob(name, args.seed, paths[name], args.results) for name in datasets]
        _run("jobs:run_steps", jobs, args, lambda job: STEPS * SPLITS)
    if "costs" in chosen or "time" in chosen:
        costs = store.read(COSTS_CELL, COSTS_SPEC)
        if costs is None:
            from benchmarks.experiments.curvature.costs import measure_costs

            measure_costs(paths["energy"], args.results)
            costs = store.read(COSTS_CELL, COSTS_SPEC)
        assert costs is not None
    if "time" in chosen:
        timed = [job for name in datasets for job in _time_jobs(args, costs, name, paths[name])]
        _run("jobs:run_time", timed, args, lambda job: job.steps * SPLITS * (1 + len(job.choices)))


def _time_jobs(args: argparse.Namespace, costs: Any, name: str, path: Path) -> list[TimeJob]:
    from benchmarks.experiments.curvature.costs import steps_for

    methods = check_names("methods", args.methods, tuple(METHODS))
    budgets = check_names("budgets", args.budgets, tuple(BUDGETS))
    return [
        TimeJob(
            method=method,
            dataset=name,
            budget=budget,
            steps=steps_for(costs, method, BUDGETS[budget]),
            seconds=costs[program_of(method)][1],
            seed=args.seed,
            data=path,
            results=args.results,
        )
        for budget in budgets
        for method in methods
    ]


def _run(function: str, jobs: list[Any], args: argparse.Namespace, work: Any) -> None:
    run_missing(f"curvature.{function}", jobs, args, title="Natural gradient", work=work)


def _print_tables(store: Store) -> int:
    from benchmarks.experiments.curvature.report import section

    return print_section(section(store))
