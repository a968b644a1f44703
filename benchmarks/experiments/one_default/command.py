"""One default: nothing is chosen but the number of steps.

Three made-up regressions with known noise, three activations, 500 and 3,000 steps, scored by how
far the NLL of new rows is above that of the truth; and the sinusoid of twelve periods. Adam's rate
and length are the best of twelve by the test rows themselves.
"""

import argparse

from benchmarks.experiments.one_default.plan import (
    METHODS,
    PROBLEMS,
    SINUSOID,
    Job,
    methods_of,
    variants_of,
)
from benchmarks.experiments.one_default.report import COSTS, section
from benchmarks.machinery.command import UsageError, add_run_arguments, check_names, run_missing
from benchmarks.machinery.document import print_section
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import Store

_VARIANTS = tuple(v for problem in ("friedman", SINUSOID) for v in variants_of(problem))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of cells, and where things are."""
    parser.add_argument("--methods", nargs="+", default=["all"], help=", ".join(METHODS))
    parser.add_argument("--problems", nargs="+", default=["all"])
    parser.add_argument("--variants", nargs="+", default=["all"], help=", ".join(_VARIANTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--costs", action="store_true", help="only measure processor times")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if args.seed:
        raise UsageError("`--seed` has one value, 0: every cell has seeds of its own.")
    if args.costs:
        from benchmarks.experiments.one_default.jobs import processor_seconds

        origin = provenance("python -m benchmarks one_default --costs")
        result = processor_seconds()
        Store(args.results).write(COSTS, spec={"what": "costs"}, result=result, provenance=origin)
    elif not args.table:
        methods = check_names("methods", args.methods, tuple(METHODS))
        problems = check_names("problems", args.problems, (*PROBLEMS, SINUSOID))
        variants = check_names("variants", args.variants, _VARIANTS)
        jobs = [
            Job(method, problem, variant, args.seed, args.results)
            for method in methods
            for problem in problems
            for variant in variants_of(problem)
            if variant in variants and method in methods_of(problem)
        ]
        run_missing("one_default.jobs:run_job", jobs, args, title="One default")
    return print_section(section(Store(args.results)))
