"""Attacks on the posterior: random options, valid or not."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.posterior import Prior, fit_posterior, leave_one_out
from tests.attacks import BAD, returned_or_refused

ROWS = 6
X = np.linspace(-1, 1, ROWS)
Y = np.sin(3 * X)
PARAMS = {"level": np.array(0.1), "slope": np.array(-0.3)}

VALID: dict[str, list[Any]] = {
    "precision": [1e-3, 1.0, 1e3, {"level": 1.0, "slope": 30.0}],
    "groups": ["leaves"],
    "form": ["auto", "dual", "primal"],
    "dtype": ["float64", "float32"],
    "tune": [False],
    "inputs": [X, jnp.asarray(X, jnp.float32)],
}
WRONG: dict[str, list[Any]] = {
    "precision": [0.0, -1.0, np.nan, np.inf, "x", None, {"nowhere": 1.0}, {"level": 1.0}, [1.0]],
    "groups": ["layers", None, 3, {}, {"a": ["nowhere"]}, {"a": ["level"], "b": ["level"]}],
    "mean": [{"level": 0.0}, 3.0, {"level": np.nan, "slope": 0.0}],
    "form": ["exact", None, 3, "Dual"],
    "dtype": ["float16", "int32", None, 3],
    "memory": [0, -1.0, np.nan, "2 GB", None],
    "inputs": [X[:3], X[:0], np.full(ROWS, np.nan), np.full(ROWS, np.inf), "x", None],
    "targets": [Y[:3], Y[:, None], np.full(ROWS, np.nan), "x", None, 1j * Y, Y > 0],
    "params": [{"level": np.array(np.nan), "slope": np.array(1.0)}, {}, None, "x"],
    "predict_one": [None, 3, lambda params, x: params["slope"] * x],
    "samples": [0, -1, 2.5, "x", 10**30],
    "unknown": [1],
}


def predict_one(params: Any, x: jax.Array) -> Gaussian:
    """A line with known noise, for which everything has a closed form."""
    return Gaussian(params["level"] + params["slope"] * x, jnp.zeros_like(x))


def attack_posteriors(folder: Path, rounds: int, seed: int = 0) -> Counter:
    """Half have a wrong option, the rest is compared with Bayesian linear regression."""
    rng, found = random.Random(seed), Counter[str]()
    for _ in range(rounds):
        options = {name: rng.choice(values) for name, values in VALID.items()}
        if rng.random() < 0.5:
            name = rng.choice(list(WRONG))
            found[_try_wrong(options | {name: rng.choice(WRONG[name])}, name)] += 1
        else:
            found[_try_valid(options)] += 1
    return found


def _call(options: dict[str, Any]) -> Any:
    options = {"params": PARAMS, "targets": Y, "predict_one": predict_one} | options
    names = ("predict_one", "params", "inputs", "targets")
    arguments = [options.pop(name) for name in names]
    prior = Prior(**{n: options.pop(n) for n in ("precision", "groups", "mean") if n in options})
    samples = options.pop("samples", None)
    posterior = fit_posterior(*arguments, prior=prior, **options)
    return posterior, posterior.predict(X, samples=samples)


def _try_wrong(options: dict[str, Any], name: str) -> str:
    outcome = returned_or_refused(lambda: _call(options))
    if outcome == "refused":
        return outcome
    return f"{BAD}{name}={str(options[name])[:20]}: {outcome}"


def _try_valid(options: dict[str, Any]) -> str:
    try:
        posterior, predictive = _call(options)
        left_out = np.asarray(leave_one_out(posterior).covariance)[:, 0, 0]
    except Exception as error:
        return f"{BAD}{type(error).__name__}"
    given = options["precision"]
    precision = np.diag(
        [given["level"], given["slope"]] if isinstance(given, dict) else [given] * 2
    )
    design = np.stack([np.ones(ROWS), X], 1)
    covariance = np.linalg.inv(design.T @ design + precision)
    spread = np.einsum("ia,ab,ib->i", design, covariance, design)
    found = np.asarray(predictive.variance, float) - 1
    right = np.allclose(found, spread, rtol=2e-3, atol=2e-6)
    right &= np.allclose(left_out, spread / (1 - spread), rtol=2e-3, atol=2e-6)
    return "equal to a closed form" if right else f"{BAD}silently wrong"
