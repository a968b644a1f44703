"""Posteriors with every matrix written out in NumPy, for comparison only. Gaussian families."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fisher8_jax import Gaussian


def linear(params, x):
    """Linear in everything: the mean and, if it is learned, the log-variance."""
    return Gaussian(x @ params["mean"], x @ params["log_variance"])


def known_noise(params, x):
    """Only the mean is learned; the noise is a function of the inputs."""
    return Gaussian(x @ params["slope"] + params["offset"], jnp.sin(x[0]))


def mlp(params, x):
    """Two outputs behind two layers."""
    hidden = jnp.tanh(x @ params["first"] + params["bias"])
    return Gaussian(*(jnp.tanh(hidden @ params["second"]) @ params["head"]))


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def mlp_problem(rows=15, width=5):
    params = {
        "first": draw(1, 3, width) / 2,
        "bias": draw(2, width) / 3,
        "second": draw(3, width, width) / 2,
        "head": draw(4, width, 2) / 2,
    }
    return mlp, params, draw(5, rows, 3), draw(6, rows)


class Dense(NamedTuple):
    """The Jacobian `(rows, p, parameters)`, the Fisher information, the gradient, the prior."""

    jacobian: np.ndarray
    fisher: np.ndarray
    nll: np.ndarray
    penalty: float
    precision: np.ndarray

    @property
    def covariance(self):
        """Of the parameters."""
        hessian = np.einsum("iap,iab,ibq->pq", self.jacobian, self.fisher, self.jacobian)
        return np.linalg.inv(hessian + np.diag(self.precision))

    @property
    def log_evidence(self):
        _, log_det = np.linalg.slogdet(self.covariance)
        rest = np.sum(np.log(self.precision)) + log_det
        return -self.nll.sum() - 0.5 * self.penalty + 0.5 * rest

    def output_covariance(self, jacobian):
        return np.einsum("iap,pq,ibq->iab", jacobian, self.covariance, jacobian)


def jacobian_of(predict_one, params, inputs):
    flat, unravel = ravel_pytree(params)

    def outputs(flat):
        return jax.vmap(predict_one, (None, 0))(unravel(flat), inputs).to_vector()

    return np.asarray(jax.jit(jax.jacobian(outputs))(flat))


def dense(predict_one, params, inputs, targets, precision):
    """`precision` is a tree of numbers like the parameters."""
    dist = jax.vmap(predict_one, (None, 0))(params, inputs)
    fisher = np.zeros((len(targets), 2, 2))
    fisher[:, 0, 0], fisher[:, 1, 1] = np.exp(-dist.log_variance), 0.5
    spread = ravel_pytree(
        jax.tree.map(lambda p, leaf: np.full(np.shape(leaf), p), precision, params)
    )
    flat = ravel_pytree(params)[0]
    residual = np.asarray(targets - dist.mean)
    nll = 0.5 * (dist.log_variance + residual**2 * np.exp(-dist.log_variance) + np.log(2 * np.pi))
    penalty = float(np.sum(np.asarray(spread[0] * flat**2)))
    jacobian = jacobian_of(predict_one, params, inputs)
    return Dense(jacobian, fisher, np.asarray(nll), penalty, np.asarray(spread[0]))


def worst(found, expected):
    """The largest error in units of the largest expected value."""
    found, expected = np.asarray(found), np.asarray(expected)
    return np.max(np.abs(found - expected)) / np.max(np.abs(expected))
