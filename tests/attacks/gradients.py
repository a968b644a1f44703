"""Attacks on `network_gradient`: random options, valid or not."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian, network_gradient
from fisher8_jax.curvature import Blocks, ConjugateGradients, Direct
from tests.attacks import BAD, returned_or_refused
from tests.curvature.dense import dense_natural_gradient, relative_error

ROWS = 5
X = jnp.asarray(np.linspace(-1, 1, ROWS), jnp.float32)
Y = jnp.asarray(np.sin(3 * np.linspace(-1, 1, ROWS)), jnp.float32)
PARAMS = {"a": jnp.float32(0.1), "b": jnp.float32(-0.3), "c": jnp.full(2, 0.2, jnp.float32)}
NAN_AT_2 = Y.at[2].set(jnp.nan)
KEPT = jnp.arange(ROWS) != 2

VALID: dict[str, list[Any]] = {
    "damping": [1e-3, 0.3, 10.0, jnp.float32(0.1), np.float64(1.0)],
    "solver": ["auto", Direct(), Blocks(ROWS), Blocks(100), ConjugateGradients(50, 1e-7)],
    "where": [None, KEPT],
    "weights": [None, jnp.arange(ROWS) + 1.0, jnp.full(ROWS, 1e-3)],
    "targets": [Y, 100 * Y, NAN_AT_2],
}
WRONG: dict[str, list[Any]] = {
    "damping": [0.0, -1.0, "auto", None, 1j, [0.1, 0.2], jnp.ones(3)],
    "solver": ["cg", None, Direct, 3, Blocks(0), Blocks(2.5), ConjugateGradients(0)],
    "where": [jnp.ones(ROWS + 1, bool), "x", jnp.ones((ROWS, 2), bool), jnp.ones(ROWS)],
    "weights": [jnp.ones(ROWS + 1), "x", 1j * jnp.ones(ROWS), jnp.ones((2, ROWS)), True],
    "targets": [Y[:2], Y[:, None], jnp.arange(ROWS) > 1, "x", None, Y * 1j, np.array(["a"] * ROWS)],
    "loss": [3, "nll", jnp.ones(3)],
    "state": [3, {"momentum": 1}, "x"],
    "axis_name": ["nowhere", 3.5],
    "unknown": [1],
}


def predict_one(params: Any, x: jax.Array) -> Gaussian:
    """Four parameters, two of which do the same."""
    return Gaussian(params["a"] + params["b"] * x, params["c"].sum() + 0.1 * x)


def attack_gradients(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """A third has a wrong option, the rest is compared with a dense solve in double precision."""
    rng = random.Random(seed)
    found: Counter = Counter()
    for _ in range(rounds):
        options = {name: rng.choice(values) for name, values in VALID.items()}
        if options["targets"] is NAN_AT_2:
            options["where"] = KEPT
        if rng.random() < 1 / 3:
            name = rng.choice(list(WRONG))
            outcome = _try_wrong(options | {name: rng.choice(WRONG[name])})
        else:
            outcome = _try_valid(options)
        found[outcome] += 1
    return found


def _call(options: dict[str, Any]) -> Any:
    options = dict(options)
    return network_gradient(predict_one, PARAMS, X, options.pop("targets"), **options)


def _try_wrong(options: dict[str, Any]) -> str:
    refusals = (TypeError, ValueError, NameError)  # an unknown axis is JAX's NameError
    outcome = returned_or_refused(lambda: _call(options), refusals)
    return f"{BAD}accepted {_short(options)}" if outcome == "returned" else outcome


def _try_valid(options: dict[str, Any]) -> str:
    try:
        gradient = _call(options).gradient
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    masks = {name: options[name] for name in ("where", "weights")}
    targets = jnp.nan_to_num(options["targets"])
    with jax.enable_x64(True):
        right = dense_natural_gradient(
            predict_one, PARAMS, X, targets, float(options["damping"]), **masks
        )
    error = relative_error(gradient, right)
    # Rounded to single precision, with a condition number of some thousands.
    return "equal to a dense solve" if error < 2e-3 else f"{BAD}{error:.0e} {_short(options)}"


def _short(options: dict[str, Any]) -> str:
    return " ".join(f"{name}={str(value)[:20]}" for name, value in options.items())
