"""Recovery of every family: Fisher8 with the KL radius beside tuned Adam on the plain NLL.

Data is drawn from each family with parameters that depend on two inputs. A small network learns
them by Fisher8 with `fisher8_optimizer`, at one setting for all families, and by Adam on the plain
NLL with three learning rates. The excess is the held-out NLL above that of the true parameters on
the same targets, averaged over the seeds; a family is recovered within 0.02 nats.

A run has a *planned length*, over which its step falls linearly to 0. How many steps a method needs
is asked in two ways, and both methods are asked alike:

    planned    the shortest length on a common ladder whose run *ends* within that
    crossing   the first evaluation, every five steps, within that in *any* run of the method

All lengths up to 600 are run for both methods, longer ones only until both have arrived.

The first is what a user pays who plans a run. Adam may choose among six settings at every length,
three rates with the decay or at a constant rate; Fisher8 has one. The second looks into runs of all
lengths and takes the luckiest moment, so it favours the method with more runs, which is Adam.
The strictest comparison, Fisher8 as planned against Adam at its first crossing, is printed as well.

Every family is stored in a file of its own, so a run can be resumed or split.
"""

import argparse
import itertools

from benchmarks.experiments.families.plan import LADDER, RECIPES, SEEDS, Job, RecipeJob
from benchmarks.experiments.families.problems import PROBLEMS
from benchmarks.experiments.families.report import section
from benchmarks.machinery.command import add_run_arguments, run_missing
from benchmarks.machinery.document import print_section
from benchmarks.machinery.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks families`."""
    parser.add_argument("--ladder", type=int, nargs="+", default=list(LADDER))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--families", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    for recipe, words in RECIPES.items():
        parser.add_argument(f"--{recipe}", action="store_true", help=f"only {words}, beside Adam")
    add_run_arguments(parser)
    parser.set_defaults(workers=1)  # one training has enough for all cores


def run(args: argparse.Namespace) -> int:
    """Computes what is not stored yet and prints the table of everything stored."""
    size = tuple(sorted(args.ladder)), tuple(args.seeds)
    recipes = [recipe for recipe in RECIPES if getattr(args, recipe)]
    if recipes:
        pairs = itertools.product(recipes, args.families)
        bare = [RecipeJob(family, recipe, args.results) for recipe, family in pairs]
        run_missing("families.jobs:run_recipe_job", bare, args, title="Families, presets")
    else:
        jobs = [Job(family, *size, args.results) for family in args.families]
        run_missing("families.jobs:run_job", jobs, args, title="Families")
    return print_section(section(Store(args.results)))
