"""Cost of a family's cdf and natural score beside another checkout of the library, interleaved.

    python -m benchmarks family_costs --other PATH

imports the families of the checkout at PATH next to ours, compiles the same question to both and
calls them in turn, each as often as fills a few milliseconds. Reported is the ratio of neighbouring
turns for ordinary parameters, with its quartiles; processor time, so that other programs on the
machine count little.
"""

import argparse
import functools
import importlib
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.console import console, progress
from benchmarks.machinery.provenance import machine, provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

PACKAGE = "fisher8_jax"
ROWS = 4096
TURN = 0.005  # seconds of calls in one turn

# Parameters of order one, as a network predicts them for scaled targets.
FAMILIES: dict[str, int] = {
    "Gaussian": 2,
    "Laplace": 2,
    "StudentT": 2,
    "StudentTLearnedDf": 3,
    "LogNormal": 2,
    "Gamma": 2,
    "Weibull": 2,
    "Beta": 2,
    "Poisson": 1,
    "NegativeBinomial": 2,
    "ZeroInflatedPoisson": 2,
    "VonMises": 2,
    "GaussianMixture": 3,
}
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "cdf": lambda dist, targets: dist.cdf(targets),
    "natural_score": lambda dist, targets: dist.natural_score(targets),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--other", required=True, help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of turns per family")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    pair = import_families(args.other), importlib.import_module(f"{PACKAGE}.families")
    rows = []
    with progress("family_costs", len(args.families) * len(QUESTIONS)) as advance:
        for name in args.families:
            for question in QUESTIONS:
                seconds = interleaved_seconds(pair, name, question, args)
                rows.append(summary(name, question, *seconds))
                advance(1)
    spec = {
        "rounds": args.rounds, "rows": ROWS, "turn": TURN, "seed": args.seed,
        "families": args.families,
    }  # fmt: skip
    result = {"rows": rows, "machine": machine()}
    command = f"python -m benchmarks family_costs --other PATH --rounds {args.rounds}"
    Store(args.results).write(
        "family_costs/cpu", spec=spec, result=result, provenance=provenance(command)
    )
    for row in rows:
        console.print(
            f"{row['family']:20s} {row['question']:14s} {row['median_ratio']:6.2f}  "
            f"[{row['ratio_quartiles'][0]:.2f}, {row['ratio_quartiles'][1]:.2f}]"
        )
    return 0


def import_families(folder: str) -> ModuleType:
    """The families of another checkout, which stay alive after its modules are forgotten."""
    ours = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
    sys.path.insert(0, str(pathlib.Path(folder).resolve()))
    try:
        families = importlib.import_module(f"{PACKAGE}.families")
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(ours)
    if pathlib.Path(folder).resolve() not in pathlib.Path(str(families.__file__)).parents:
        raise ValueError(f"`--other` must hold the package {PACKAGE}, got {folder}.")
    return families


def _is_ours(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def interleaved_seconds(
    pair: tuple[ModuleType, ModuleType], name: str, question: str, args: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Seconds of processor time per call of the other checkout and of ours."""
    rng = np.random.default_rng(args.seed)
    shape = (ROWS, 3) if name == "GaussianMixture" else (ROWS,)
    fields = [jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(FAMILIES[name])]
    targets = jnp.asarray(ordinary_targets(name, rng), jnp.float32)
    calls = []
    for families in pair:
        compiled = (
            jax.jit(QUESTIONS[question]).lower(getattr(families, name)(*fields), targets).compile()
        )
        call = functools.partial(compiled, getattr(families, name)(*fields), targets)
        first = min(seconds_of(call, 1) for _ in range(5))
        calls.append((call, max(1, round(TURN / first))))
    seconds: tuple[list[float], list[float]] = ([], [])
    for index in range(args.rounds):
        for place in (0, 1) if index % 2 else (1, 0):
            seconds[place].append(seconds_of(*calls[place]))
    return seconds


def seconds_of(call: Callable[[], Any], times: int) -> float:
    """Processor time of one call, the mean of several."""
    begin = time.process_time()
    for _ in range(times):
        jax.block_until_ready(call())
    return (time.process_time() - begin) / times


def ordinary_targets(name: str, rng: np.random.Generator) -> np.ndarray:
    """Targets in the support, of the size of the predictions."""
    if name in ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson"):
        return rng.poisson(1.5, ROWS)
    if name == "Beta":
        return rng.uniform(0.02, 0.98, ROWS)
    return (
        np.exp(rng.normal(size=ROWS))
        if name in ("Gamma", "Weibull", "LogNormal")
        else (rng.normal(size=ROWS))
    )


def summary(name: str, question: str, other: list[float], ours: list[float]) -> dict[str, Any]:
    """The ratio of neighbouring calls and its quartiles."""
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return {
        "family": name,
        "question": question,
        "median_ratio": median,
        "ratio_quartiles": [low, high],
        "median_microseconds": {
            "other": 1e6 * statistics.median(other),
            "ours": 1e6 * statistics.median(ours),
        },
    }
