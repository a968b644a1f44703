"""Rows of the reference tables that float32 answers miss, ours beside those of another checkout.

    python -m benchmarks family_accuracy --other PATH

The tables are those of `tests/families/reference`: log-parameters from -12 to 16, targets from the
lower to the upper tail, answers with more digits than float64. A row is missed by a likelihood that
is off by more than 1e-5 of itself and 1e-4, by a cdf off by more than 1e-5, or 1e-3 of itself down
to 1e-8, by a natural score off by more than 1e-3 of itself and 1e-5 of its standard deviation, by a
CRPS off by more than 1e-3 of itself and 1e-5 of the expected one, by a divergence off by more than
1e-3 of itself and 1e-8.
"""

import argparse
import importlib
import json
import pathlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.costs.family_costs import import_families
from benchmarks.machinery.console import console
from benchmarks.machinery.provenance import provenance
from benchmarks.machinery.store import DEFAULT_RESULTS, Store

TABLES = pathlib.Path("tests/families/reference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--other", required=True, help="folder of the other checkout")
    parser.add_argument("--results", default=DEFAULT_RESULTS, help="folder of the result files")


def run(args: argparse.Namespace) -> int:
    pair = {
        "other": import_families(args.other),
        "ours": importlib.import_module("fisher8_jax.families"),
    }
    rows = []
    for path in sorted(TABLES.glob("*.json")):
        columns = json.loads(path.read_text()).items()
        table = {key: np.array(column, float) for key, column in columns}
        missed = {side: missed_rows(families, path.stem, table) for side, families in pair.items()}
        for question in missed["ours"]:
            # None for what a version does not answer.
            counts = {side: found.get(question) for side, found in missed.items()}
            rows.append({"family": path.stem, "question": question, **counts})
            console.print(f"{path.stem:20s} {question:8s} {counts}")
    spec = {"tables": sorted(path.stem for path in TABLES.glob("*.json"))}
    command = "python -m benchmarks family_accuracy --other PATH"
    Store(args.results).write(
        "family_accuracy/float32", spec=spec, result={"rows": rows}, provenance=provenance(command)
    )
    return 0


def missed_rows(families: ModuleType, name: str, table: dict[str, np.ndarray]) -> dict[str, Any]:
    """By question: how many of all rows are missed, and the largest error."""
    got = answers(families, name, table)
    nll, cdf = (np.abs(got[key] - table[key]) for key in ("nll", "cdf"))
    is_tail = table["cdf"] >= 1e-8
    missed = {
        "nll": (nll, ~((nll <= 1e-5 * np.abs(table["nll"])) | (nll <= 1e-4))),
        "cdf": (cdf, ~((cdf <= 1e-5) & ((cdf <= 1e-3 * table["cdf"]) | ~is_tail))),
    }
    for key in (key for key in table if key.startswith("score")):
        spread = table[key.replace("score", "spread")]
        error = np.abs(got[key] - table[key])
        bad = ~(error <= np.maximum(1e-3 * np.abs(table[key]), 1e-5 * spread))
        missed[key] = (error / np.maximum(np.abs(table[key]), spread), bad)
    for key, least in (("crps", 1e-5 * table["spread_crps"]), ("kl", 1e-8)):
        if key in got:
            with np.errstate(over="ignore", invalid="ignore"):
                right = table[key].astype(np.float32).astype(float)
                error = np.where(got[key] == right, 0, np.abs(got[key] - right))
            bad = ~(error <= np.maximum(1e-3 * np.abs(right), least)) & ~np.isnan(right)
            missed[key] = (error / np.maximum(np.abs(right), 1e-30), bad)
    return {key: _summary(*answer) for key, answer in missed.items()}


def _summary(error: np.ndarray, bad: np.ndarray) -> dict[str, Any]:
    """A vector's entries count together."""
    rows = np.any(bad.reshape(len(bad), -1), axis=1)
    return {
        "missed": int(np.sum(rows)),
        "of": len(bad),
        "largest_error": float(np.max(error[~np.isnan(error)])),
    }


def answers(families: ModuleType, name: str, table: dict[str, np.ndarray]) -> dict[str, Any]:
    """The float32 answers to a table; a family with a static third column goes group by group."""
    columns, others = (
        [table[key].astype(np.float32) for key in table if key.startswith(prefix)]
        for prefix in ("parameter", "other")
    )
    is_static, family = name == "StudentT", getattr(families, name)
    groups = columns.pop() if is_static else np.zeros(len(table["targets"]))
    others = others[: len(columns)]
    got: dict[str, np.ndarray] = {}
    for value in np.unique(groups):
        index = np.flatnonzero(groups == value)
        static = {"df": float(value)} if is_static else {}
        dist, other = (
            family(*(jnp.asarray(x[index]) for x in fields), **static) if fields else None
            for fields in (columns, others)
        )
        targets = jnp.asarray(table["targets"][index].astype(np.float32))
        found = _ask(dist, targets)
        found |= {"crps": _crps(dist, targets)} if hasattr(family, "crps") else {}
        found |= {"kl": _kl(dist, other)} if other is not None else {}
        for key, values in found.items():
            whole = got.setdefault(key, np.zeros((len(groups), *values.shape[1:])))
            whole[index] = np.asarray(values, np.float64)
    return got


@jax.jit
def _crps(dist: Any, targets: jax.Array) -> jax.Array:
    return dist.crps(targets)


@jax.jit
def _kl(dist: Any, other: Any) -> jax.Array:
    return dist.kl(other)


@jax.jit
def _ask(dist: Any, targets: jax.Array) -> dict[str, jax.Array]:
    scores = dist.natural_score(targets).values()
    # By the definition of a scaled number: value * exp(log_scale).
    plain = [x.value if x.log_scale is None else x.value * jnp.exp(x.log_scale) for x in scores]
    named = {f"score_{i}": value for i, value in enumerate(plain)}
    return {"nll": dist.nll(targets), "cdf": dist.cdf(targets), **named}
