"""A variance fitted to the residuals of a network that is trained already.

The mean is a network by least squares. Its log-variance is linear in the activations of a hidden
layer, fitted to residuals of rows that were held out: the rows of the training would have residuals
that are too small. Several layers give several variances, of which the mean is taken.

Reference:
    Practical deep heteroskedastic regression, arXiv 2603.01750, 2026, whose linear estimators and
    layers these are; prior and solver are our own.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.machinery.networks import Mlp, Params, affine
from fisher8_jax import Gaussian

_STEPS = 100


class LogVariance(NamedTuple):
    """A log-variance that is linear in standardised features."""

    shift: Array
    scale: Array
    weights: Array
    offset: Array

    def __call__(self, features: Array) -> Array:
        return (features - self.shift[None]) / self.scale[None] @ self.weights + self.offset


def fit_log_variance(features: Array, residuals: Array, where: Array) -> LogVariance:
    """The one with the highest posterior density.

    The log-variance has a standard deviation of one around its offset under the prior: weights are
    normal with precision `number of features`. The problem is convex; steps are Fisher scoring, no
    longer than one unit of any log-variance.

    Args:
        features: (rows, features).
        residuals: (rows,).
        where: (rows,), False for padding.
    """
    counted = where.astype(features.dtype)
    total = jnp.sum(counted)
    shift = jnp.sum(counted[:, None] * features, 0) / total
    spread = jnp.sqrt(jnp.sum(counted[:, None] * jnp.square(features - shift[None]), 0) / total)
    scale = jnp.where(spread > 0, spread, 1)
    columns = jnp.concatenate(
        [(features - shift[None]) / scale[None], jnp.ones_like(features[:, :1])], 1
    )
    columns, squares = columns * counted[:, None], jnp.square(residuals) * counted
    number = features.shape[1]
    precision = jnp.append(jnp.full(number, float(number)), 0.0)
    information = 0.5 * columns.T @ columns + jnp.diag(precision)
    factor = jax.scipy.linalg.cho_factor(information)

    def step(_: Any, solution: Array) -> Array:
        surprise = squares * jnp.exp(-(columns @ solution)) - counted
        uphill = 0.5 * columns.T @ surprise - precision * solution
        change = jax.scipy.linalg.cho_solve(factor, uphill)
        largest = jnp.max(jnp.abs(columns @ change))
        return solution + change / jnp.maximum(largest, 1)

    offset = jnp.log(jnp.sum(squares) / total)
    found = jax.lax.fori_loop(0, _STEPS, step, jnp.zeros(number + 1).at[number].set(offset))
    return LogVariance(shift, scale, found[:number], found[number])


@dataclasses.dataclass(frozen=True)
class PostHoc:
    """A network and the hidden layers that its variances are linear in; for the scores.

    Its parameters are those of the network and one `LogVariance` for each of the layers.
    """

    network: Mlp
    layers: tuple[int, ...]

    def __call__(
        self,
        params: tuple[Params, list[LogVariance]],
        variables: Any,
        inputs: Array,
        **ignored: Any,
    ) -> tuple[Gaussian, Any]:
        trained, variances = params
        hidden, mean = self.activations(trained, inputs)
        logs = [found(hidden[layer]) for layer, found in zip(self.layers, variances, strict=True)]
        log_variance = jax.nn.logsumexp(jnp.stack(logs), axis=0) - jnp.log(len(logs))
        return Gaussian(mean, log_variance), variables

    def fit(
        self, trained: Params, inputs: Array, targets: Array, where: Array
    ) -> list[LogVariance]:
        """The variances, from held-out rows."""
        hidden, mean = self.activations(trained, inputs)
        return [fit_log_variance(hidden[layer], targets - mean, where) for layer in self.layers]

    def activations(self, trained: Params, inputs: Array) -> tuple[list[Array], Array]:
        """Those of every hidden layer, and the mean."""
        hidden = [inputs]
        for layer in trained["trunk"]:
            hidden.append(self.network.activation(affine(hidden[-1], layer)))
        return hidden[1:], affine(hidden[-1], trained["head"])[..., 0]
