"""What the one new line buys in three kinds of code that compute a Gaussian NLL.

Trains `pets_ensemble.py`, `behaviour_cloning.py` and `neural_process.py` of `examples/` as they
are, with and without their line, at four learning rates, from several seeds. A cell is a program.
"""

import argparse
import importlib
import pathlib
from typing import Any

import numpy as np

from benchmarks.experiments.recipes.report import RECIPES, table
from benchmarks.machinery.console import progress
from benchmarks.machinery.document import print_blocks, table_lines
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

RATES = (0.001, 0.003, 0.01, 0.03)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks recipes`."""
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None, help="by default those of the program")
    parser.add_argument("--docs", type=pathlib.Path, help="where to write the table")
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    """Trains what is not stored yet and prints the table."""
    store = Store(args.results)
    with progress("recipes", len(args.recipes)) as advance:
        for name in args.recipes:
            spec = {"recipe": name, "seeds": args.seeds, "rates": list(RATES), "steps": args.steps}
            command = f"python -m benchmarks recipes --recipes {name} --seeds {args.seeds}"
            command += "" if args.steps is None else f" --steps {args.steps}"
            if store.read(f"recipes/{name}", spec) is None:
                result = measure(name, args.seeds, args.steps)
                store.write(
                    f"recipes/{name}", spec=spec, result=result, provenance=provenance(command)
                )
            advance(1)
    found = table(store)
    print_blocks([found] if found else [])
    if found and args.docs is not None:
        args.docs.write_text("\n".join(table_lines(found)) + "\n")
    return 0


def measure(name: str, seeds: int, steps: int | None) -> dict[str, Any]:
    """Held-out NLL without and with the line: a list over rates of lists over seeds."""
    recipe = RECIPES[name]
    example = importlib.import_module(f"examples.{recipe.program}")
    options = dict(recipe.options) if steps is None else {**recipe.options, "steps": steps}

    def train(way: str, rate: float, seed: int) -> float | None:
        corrected = way == "corrected"
        nll = example.main(corrected=corrected, learning_rate=rate, seed=seed, **options)
        return float(nll) if np.isfinite(nll) else None

    return {
        way: [[train(way, rate, seed) for seed in range(seeds)] for rate in RATES]
        for way in recipe.ways
    }
