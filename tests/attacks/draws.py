"""Attacks on families: parameters at the ends of their range, targets drawn from them."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import fisher8_nll
from tests.attacks import BAD
from tests.families.conformance import flatten, unflatten
from tests.families.table import CASES

# The formulas of a declared family are those of whoever declares it.
NAMES = [name for name in CASES if not name.startswith("declared")]


@jax.jit
def _answers(dist: Any, usual: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    """What each row gives for a target drawn from itself, and for one drawn from another row.

    A draw may overflow, or be rounded to the edge of the support: `usual` takes its place.
    """
    draw = dist.sample(key)
    inside = jnp.isfinite(draw) & _like(dist.in_support(draw), draw)
    own = jax.lax.stop_gradient(jnp.where(inside, draw, usual))
    other = jnp.roll(own, 1, axis=0)

    def gradient(dist: Any, target: jax.Array) -> jax.Array:
        """Of one row alone; a sum that is nan if any part is."""
        batch = jax.tree.map(lambda leaf: leaf[None], dist)
        found = jax.grad(lambda d: fisher8_nll(d, target[None]).sum())(batch)
        return sum(leaf.sum() for leaf in jax.tree.leaves(found))

    def unless_infinite(gradient: jax.Array, nll: jax.Array) -> jax.Array:
        """Where the NLL overflows there is no gradient, and the NLL shows it."""
        return jnp.where(jnp.isfinite(nll), gradient, 0)

    cdf, own_nll, other_nll = dist.cdf(other), dist.nll(own), dist.nll(other)
    return {
        "draw": draw,
        "NLL of a draw": own_nll,
        "NLL of another's draw": other_nll,
        "gradient": unless_infinite(jax.vmap(gradient)(dist, own), own_nll),
        "gradient at another's draw": unless_infinite(jax.vmap(gradient)(dist, other), other_nll),
        "cdf": jnp.where((cdf >= 0) & (cdf <= 1), cdf, jnp.nan),
        "cdf of a draw": dist.cdf(own),
    }


def _like(mask: jax.Array, array: jax.Array) -> jax.Array:
    return mask.reshape(*mask.shape, *(1,) * (array.ndim - mask.ndim))


def attack_family(name: str, rounds: int, seed: int = 0) -> Counter:
    """Random parameters within the range that a family promises, in single precision."""
    case, rng = CASES[name], np.random.default_rng(seed)
    size = flatten(case.dist).shape[1]
    # Half of the parameters at an end of the range, half anywhere in it.
    ends = rng.choice([-1.0, 0.0, 1.0], (rounds, size))
    raw = np.where(rng.random((rounds, size)) < 0.5, ends, rng.uniform(-1, 1, (rounds, size)))
    dist = unflatten(case.dist, jnp.asarray(case.extreme * raw, jnp.float32))
    if name == "LowRankGaussian":  # the table's damping is for exactness in double precision
        dist = dataclasses.replace(dist, damping=1e-5)
    usual = jnp.asarray(np.resize(case.targets, (rounds, *case.targets.shape[1:])), jnp.float32)
    answers = _answers(dist, usual, jax.random.key(seed))
    found: Counter = Counter()
    rows = {
        what: np.isnan(np.asarray(values, np.float64)).reshape(rounds, -1).any(axis=1)
        for what, values in answers.items()
    }
    for row in range(rounds):
        wrong = [what for what, is_nan in rows.items() if is_nan[row]]
        found[f"{BAD}{name}, {wrong[0]}" if wrong else "no nan"] += 1
    return found


def attack_families(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Every family of the table."""
    with jax.enable_x64(False):
        each = [attack_family(name, rounds, seed) for name in NAMES]
    return sum(each, Counter())
