"""The ratio of the two norms of Fisher8: mean and log-variance have equal ones by default.

Eight UCI sets, Adam with a decay to 0; the rate is chosen on held-out rows for each ratio. The
neural process of `examples/` beside it, with layers that both outputs share and without.
"""

import argparse

from benchmarks.experiments.norm_ratio.plan import CHOOSING, PROCESS, REPORTING, Job
from benchmarks.experiments.norm_ratio.report import section
from benchmarks.experiments.uci.data import default_cache_dir, prepare
from benchmarks.machinery.command import add_run_arguments, check_names, run_missing
from benchmarks.machinery.data import add_data_argument
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The choice of problems, and where things are."""
    add_data_argument(parser)
    parser.add_argument("--problems", nargs="+", default=["all"])
    add_run_arguments(parser, cache=True)
    parser.add_argument("--table", action="store_true", help="only print what is there")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing and prints the tables."""
    if not args.table:
        problems = check_names("problems", args.problems, (*CHOOSING, *REPORTING, PROCESS))
        sets = [problem for problem in problems if problem != PROCESS]
        paths = prepare(sets, args.data_dir, args.cache_dir or default_cache_dir())
        jobs = [Job(problem, paths.get(problem), args.results) for problem in problems]
        run_missing("norm_ratio.jobs:run_job", jobs, args, title="Norms")
    return print_section(section(Store(args.results)))
