"""False alarms and hits of the doctor, family by family.

False alarms: targets are drawn from the true distribution of each recovery problem, 200 times 600
of them, and the doctor is shown that very distribution, next to a reference mean that is off by a
tenth of a standard deviation. Whatever it says is a false alarm.

Hits: 50 draws with one fault each, made alike for every family (see `faults.py`), and three pairs
of a wrong family with data of the right one, which it has to name. Cases: faults that are easily
taken for others, and what must be said first (see `cases.py`).
"""

import argparse
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments.doctor.cases import CASES, judge_case
from benchmarks.experiments.doctor.faults import FAULTS, faulty_targets
from benchmarks.experiments.doctor.report import tables_of
from benchmarks.experiments.families.problems import PROBLEMS
from benchmarks.machinery.document import print_blocks, table_lines
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store
from fisher8_jax import Gaussian, families
from fisher8_jax.diagnostics import Diagnosis, doctor
from fisher8_jax.families import Family


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m benchmarks doctor`."""
    parser.add_argument("--draws", type=int, default=200, help="for false alarms")
    parser.add_argument("--faulty-draws", type=int, default=50, help="for hits")
    parser.add_argument("--case-draws", type=int, default=20, help="of every mistake")
    parser.add_argument("--points", type=int, default=600)
    parser.add_argument("--families", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--docs", type=pathlib.Path, help="where to write the tables")
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)


def run(args: argparse.Namespace) -> int:
    """Computes what is not stored yet and prints the table of everything stored."""
    store = Store(args.results)
    spec = {"draws": args.draws, "faulty_draws": args.faulty_draws, "points": args.points}
    command = "python -m benchmarks doctor"
    for name in args.families:
        cell, asked = f"doctor/{name.lower().replace(' ', '_')}", spec | {"family": name}
        if store.read(cell, asked) is None:
            row = judge_family(name, args)
            store.write(cell, spec=asked, result=row, provenance=provenance(command))
    if store.read("doctor/right_names", spec) is None:
        row = {name: _named(pair, args) for name, pair in PAIRS.items()}
        store.write("doctor/right_names", spec=spec, result=row, provenance=provenance(command))
    asked = {"draws": args.case_draws, "points": args.points, "cases": list(CASES)}
    if store.read("doctor/cases", asked) is None:
        row = {name: judge_case(case, args.case_draws, args.points) for name, case in CASES.items()}
        store.write("doctor/cases", spec=asked, result=row, provenance=provenance(command))
    tables = tables_of(store)
    print_blocks(tables)
    if args.docs is not None:
        args.docs.write_text("\n\n".join("\n".join(table_lines(t)) for t in tables) + "\n")
    return 0


def judge_family(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """How often every rule spoke about the true model, and how often each fault was named."""
    alarms: Counter[str] = Counter()
    for seed in range(args.draws):
        dist = _truth(name, seed, args.points)
        targets = _sample(dist, jax.random.key(seed))
        noise = np.random.default_rng(seed).normal(size=targets.shape)
        reference = dist.mean + 0.1 * jnp.sqrt(dist.variance) * jnp.asarray(noise, jnp.float32)
        alarms.update(doctor(dist, targets, unit_variance_mean=reference).codes)
    hits = {fault: _hits(name, fault, args) for fault in FAULTS}
    return {"family": name, "draws": args.draws, "alarms": dict(alarms), "hits": hits}


@jax.jit
def _sample(dist: Family, key: jax.Array) -> jax.Array:
    return dist.sample(key)


def _truth(name: str, seed: int, points: int) -> Family:
    inputs = np.random.default_rng(seed).uniform(-3, 3, (points, 2))
    return PROBLEMS[name].truth(jnp.asarray(inputs, jnp.float32))


def _hits(name: str, fault: str, args: argparse.Namespace) -> dict[str, Any]:
    code = FAULTS[fault][0]
    named = 0
    for seed in range(args.faulty_draws):
        dist = _truth(name, 1000 + seed, args.points)
        targets = faulty_targets(dist, fault, np.random.default_rng(seed))
        codes = doctor(dist, targets).codes
        named += code in codes or (code == "overconfident" and "overdispersed" in codes)
    return {"code": code, "named": named, "draws": args.faulty_draws}


def _counts(seed: int, points: int) -> tuple[Family, Family]:
    truth = _truth("NegativeBinomial", seed, points)
    return families.Poisson(jnp.log(truth.mean)), truth


def _zeros(seed: int, points: int) -> tuple[Family, Family]:
    truth = _truth("ZeroInflatedPoisson", seed, points)
    return families.Poisson(jnp.log(truth.mean)), truth


def _tails(seed: int, points: int) -> tuple[Family, Family]:
    truth = _truth("StudentT", seed, points)
    return Gaussian(truth.mean, jnp.log(truth.variance)), truth


Pair = tuple[Callable[[int, int], tuple[Family, Family]], str, str]
# A wrong family for data of the right one, the code that names the fault, and the family's name.
PAIRS: dict[str, Pair] = {
    "Poisson for negative binomial counts": (_counts, "overdispersed", "NegativeBinomial"),
    "Poisson for counts with more zeros": (_zeros, "overdispersed", "ZeroInflatedPoisson"),
    "Gaussian for Student-t targets": (_tails, "heavy_tails", "StudentT"),
}


def _named(pair: Pair, args: argparse.Namespace) -> dict[str, Any]:
    make, code, family = pair
    named = 0
    for seed in range(args.draws):
        dist, truth = make(seed, args.points)
        diagnosis = doctor(dist, _sample(truth, jax.random.key(seed)))
        named += _says(diagnosis, code, family)
    return {"code": code, "family": family, "named": named, "draws": args.draws}


def _says(diagnosis: Diagnosis, code: str, family: str) -> bool:
    found = [finding for finding in diagnosis.findings if finding.code == code]
    return any(f"families.{family}`" in finding.advice for finding in found)
