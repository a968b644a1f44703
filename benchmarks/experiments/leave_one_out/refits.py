"""Levenberg-Marquardt steps on all rows but one, matrices written out: an independent route."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayTree
from jax import Array
from jax.flatten_util import ravel_pytree

from benchmarks.experiments.gaps.networks import predict_one

# Added to the precisions in turn; the step that lowers the loss most is made.
DAMPINGS = (10.0, 1e2, 1e3, 1e4)


class Fit(NamedTuple):
    """Rows, one precision for every parameter, and a tree like the parameters."""

    inputs: Array
    targets: Array
    precision: Array
    params: ArrayTree

    def one(self, vector: Array, x: Array) -> Array:
        """Mean and log-variance of one row."""
        dist = predict_one(ravel_pytree(self.params)[1](vector), x)
        return jnp.stack([dist.mean, dist.log_variance])

    def outputs(self, vector: Array) -> Array:
        """Those of every row."""
        return jax.vmap(self.one, (None, 0))(vector, self.inputs)

    def loss(self, vector: Array, counts: Array) -> Array:
        """The NLL of the rows that count, and the penalty."""
        mean, log_variance = self.outputs(vector).T
        nll = 0.5 * (log_variance + (self.targets - mean) ** 2 * jnp.exp(-log_variance))
        return counts @ nll + 0.5 * self.precision @ vector**2


@functools.partial(jax.jit, static_argnums=3)
def minimize(fit: Fit, vector: Array, counts: Array, steps: int) -> tuple[Array, Array]:
    """Parameters after some steps, and by how much the last one lowered the loss."""

    def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        vector = state[0]
        found = _candidates(fit, vector, counts)
        losses = jax.lax.map(lambda v: fit.loss(v, counts), found)
        best, before = jnp.nanargmin(losses), fit.loss(vector, counts)
        is_lower = losses[best] < before
        return jnp.where(is_lower, found[best], vector), jnp.maximum(before - losses[best], 0)

    return jax.lax.fori_loop(0, steps, step, (vector, jnp.zeros(())))


def _candidates(fit: Fit, vector: Array, counts: Array) -> Array:
    """`vector - (R' R + D + damping)^-1 gradient`, in the space of outputs, for every damping."""
    gradient = jax.grad(fit.loss)(vector, counts)
    log_variance = fit.outputs(vector)[:, 1]
    root = jnp.stack([jnp.exp(-0.5 * log_variance), jnp.full_like(log_variance, 0.5**0.5)], 1)
    jacobian = jax.vmap(jax.jacrev(fit.one), (None, 0))(vector, fit.inputs)
    white = (jacobian * (jnp.sqrt(counts)[:, None] * root)[:, :, None]).reshape(-1, len(vector))

    def damped(damping: Array) -> Array:
        precision = fit.precision + damping
        scaled = white / precision[None]
        factor = jax.scipy.linalg.cho_factor(jnp.eye(len(white)) + scaled @ white.T, lower=True)
        back = scaled.T @ jax.scipy.linalg.cho_solve(factor, scaled @ gradient)
        return vector - gradient / precision + back

    return jax.lax.map(damped, jnp.asarray(DAMPINGS))


def precisions(params: dict[str, np.ndarray], of_leaf: dict[str, float]) -> np.ndarray:
    """One for every entry; leaves are a flat mapping."""
    return np.concatenate([np.full(np.size(params[k]), of_leaf[k]) for k in sorted(params)])
