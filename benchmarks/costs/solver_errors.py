"""How far conjugate gradients are from the exact gradient as predicted variances become small."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.costs.cost_networks import mlp
from benchmarks.machinery.document import Table
from fisher8_jax import Gaussian, network_gradient
from fisher8_jax.curvature import ConjugateGradients, Direct

LOG_VARIANCES = (0.0, -3.0, -6.0)
RANKS = (0, 64)
ITERATIONS = 60
ROWS = 128


def measure(seed: int, damping: float) -> list[dict[str, Any]]:
    """Residual and error for each log-variance, with and without the preconditioner.

    The error is that of the gradient in float32, relative to a Cholesky solution in float64.
    """
    return [
        {"log_variance": shift, "rank": rank} | _errors(seed, damping, shift, rank)
        for shift in LOG_VARIANCES
        for rank in RANKS
    ]


def _errors(seed: int, damping: float, shift: float, rank: int) -> dict[str, float]:
    case = mlp(np.random.default_rng(seed), batch=ROWS)

    def predict_one(params: Any, example: Any) -> Gaussian:
        dist = case.predict_one(params, example)
        return Gaussian(dist.mean, dist.log_variance + shift)

    def gradient(solver: Any, arrays: Any) -> Any:
        return network_gradient(predict_one, *arrays, damping=damping, solver=solver)

    arrays = case.params, case.inputs, case.targets
    solver = ConjugateGradients(max_iterations=ITERATIONS, rank=rank)
    step = jax.jit(functools.partial(gradient, solver))(arrays)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), arrays)
        exact = np.asarray(ravel_pytree(gradient(Direct(), wide).gradient)[0])
    ours = np.asarray(ravel_pytree(step.gradient)[0], np.float64)
    error = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
    return {"residual": float(step.residual), "error": float(error)}


def table(rows: list[dict[str, Any]]) -> Table:
    """One line for each log-variance and preconditioner."""
    header = ["log-variance", "preconditioner", "residual", "error of the gradient"]
    words = {0: "none", 64: "rank 64"}
    lines = [
        [f"{r['log_variance']:g}", words[r["rank"]], f"{r['residual']:.1e}", f"{r['error']:.1e}"]
        for r in rows
    ]
    caption = (
        f"At most {ITERATIONS} iterations of conjugate gradients in float32, 2x50 units, batch "
        f"{ROWS}, against a float64 solution"
    )
    return Table(caption, header, lines)
