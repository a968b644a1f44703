"""What a member does not know: the posterior of its mean, at a cost that rows do not raise.

The network linearised at its parameters is a Gaussian process whose covariance is that of its
Jacobian. The prior's one scale is such that, on average over the rows, the prior variance is that
of the targets. All rows inform the posterior, in the span of the few that a pivoted Cholesky
decomposition picks, the *anchors*; variance outside of that span stays what the prior says:

    variance(x) = k(x, x) - k(x, Z) (K_ZZ^-1 - (K_ZZ + K_ZX W K_XZ)^-1) k(Z, x)

with `W` the Fisher information of the rows about the mean. A member stops where its held-out NLL is
lowest, so its own variance covers its errors on rows as familiar as held-out ones. Only what
exceeds three times the level of nine tenths of the training rows, each left out, is added to a
prediction, so that nothing is counted twice.

Reference:
    Quiñonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process
    regression, JMLR 2005, section 5.
"""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.estimator._network import DenseNetwork

# At most so many rows inform the posterior, in the span of at most so many.
MOST_ROWS, MOST_ANCHORS = 2000, 128

# Variance up to so many times this quantile of the training rows is covered by the members' own.
_TIMES, _COVERED = 3.0, 0.9

# A level that no variance exceeds.
NEVER = np.finfo(np.float32).max

# Relative to the prior: makes the span well-conditioned in float32.
_JITTER = 1e-4


class Knowledge(NamedTuple):
    """The posterior of the mean of each target; targets first, also where there is only one."""

    anchors: chex.Array
    """Encoded rows, (targets, anchors, features)."""
    root: chex.Array
    """What anchors explain is the square of `root @ k(Z, x)`, (targets, anchors, anchors)."""
    scale: chex.Array
    """The prior variance of the parameters, (targets,)."""
    level: chex.Array
    """The variance from which on it is added, (targets,)."""


class Tangents(NamedTuple):
    """Rows of a Jacobian as outer products: what enters a layer times the derivatives behind it."""

    entering: list[chex.Array]
    deltas: list[chex.Array]

    def kernel(self, other: "Tangents") -> chex.Array:
        """The products of all rows with all rows of another, (rows, other rows)."""
        parts = zip(self.entering, self.deltas, other.entering, other.deltas, strict=True)
        return sum((a @ b.T + 1) * (d @ e.T) for a, d, b, e in parts)

    def own(self) -> chex.Array:
        """The product of every row with itself."""
        parts = zip(self.entering, self.deltas, strict=True)
        return sum(((a * a).sum(1) + 1) * (d * d).sum(1) for a, d in parts)

    def take(self, rows: np.ndarray | slice) -> "Tangents":
        """Some of the rows."""
        return Tangents([a[rows] for a in self.entering], [d[rows] for d in self.deltas])


@functools.partial(jax.jit, static_argnums=0)
def predict_tangents(
    network: DenseNetwork, params: chex.ArrayTree, inputs: Array
) -> tuple[Array, ...]:
    """`DenseNetwork.tangents` as one tuple."""
    entering, deltas, information = network.tangents(params, inputs)
    return *entering, *deltas, information


def learn_knowledge(
    found: list[np.ndarray], inputs: np.ndarray, weights: np.ndarray
) -> tuple[Knowledge, np.ndarray]:
    """The posterior from the tangents of training rows, and the variance of each left out.

    Args:
        found: what `predict_tangents` returns, in float64.
        inputs: the encoded rows.
        weights: how many rows each stands for, 0 where a target is missing, (rows, targets).

    Returns:
        The posterior, and the variances, (targets, rows), in rising order, nan for missing targets.
    """
    layers = len(found) // 2
    information = found[-1] * weights
    parts = [
        _learn_one(
            Tangents(found[:layers], [delta[:, target] for delta in found[layers:-1]]),
            inputs,
            information[:, target],
        )
        for target in range(information.shape[1])
    ]
    columns = zip(*(one for one, _ in parts), strict=True)
    knowledge = Knowledge(*(np.stack(column).astype(np.float32) for column in columns))
    return knowledge, np.stack([known for _, known in parts])


def _learn_one(
    tangents: Tangents, inputs: np.ndarray, information: np.ndarray
) -> tuple[Knowledge, np.ndarray]:
    own = tangents.own()
    scale = 1 / max(float(np.mean(own)), float(np.finfo(np.float32).tiny))
    places = _pivots(tangents, own, min(MOST_ANCHORS, len(own)))
    anchors = tangents.take(places)
    matrix = scale * anchors.kernel(anchors) + _JITTER * np.eye(len(places))
    factor = np.linalg.cholesky(matrix)
    spanned = np.linalg.solve(factor, scale * anchors.kernel(tangents))
    values, vectors = np.linalg.eigh(
        np.eye(len(places)) + (spanned * information) @ spanned.T  # the posterior's precision
    )
    values = np.maximum(values, 1)
    root = scale * (vectors * np.sqrt(1 - 1 / values)).T @ np.linalg.inv(factor)
    inside = np.sum((vectors.T @ spanned) ** 2 / values[:, None], 0)
    outside = np.maximum(scale * own - np.sum(spanned**2, 0), 0)
    # Without its own information; 1 is reached by a row that alone says all about itself.
    left_out = inside / np.maximum(1 - inside * information, 1e-9) + outside
    known = np.sort(np.where(information > 0, left_out, np.nan)).astype(np.float32)
    padded = np.zeros((MOST_ANCHORS, MOST_ANCHORS))
    padded[: len(places), : len(places)] = root
    is_known = np.isfinite(known).any()
    level = _TIMES * np.nanquantile(known, _COVERED) if is_known else NEVER
    chosen = inputs[np.resize(places, MOST_ANCHORS)]
    return Knowledge(chosen, padded, np.asarray(scale), np.asarray(level)), known


def _pivots(tangents: Tangents, own: np.ndarray, number: int) -> np.ndarray:
    """The rows that a pivoted Cholesky decomposition of the kernel picks first."""
    rest, rows = own.copy(), np.zeros((number, len(own)))
    places = np.zeros(number, int)
    for step in range(number):
        place = int(np.argmax(rest))
        places[step] = place
        column = tangents.take(slice(place, place + 1)).kernel(tangents)[0]
        row = column - rows[:step].T @ rows[:step, place]
        rows[step] = row / np.sqrt(max(rest[place], 1e-12 * own.max() + 1e-30))
        rest = np.maximum(rest - rows[step] ** 2, 0)
        rest[places[: step + 1]] = -1  # never twice
    return places


def posterior_variance(
    network: DenseNetwork, params: chex.ArrayTree, knowledge: Knowledge, inputs: Array
) -> Array:
    """The variance of the raw location of every target, (rows, targets).

    Args:
        network: of all members.
        params: of the member that the knowledge belongs to.
        knowledge: of training rows.
        inputs: encoded rows.
    """
    entering, deltas, _ = network.tangents(params, inputs)

    def of_target(one: Knowledge, target: Array) -> Array:
        new = Tangents(entering, [delta[:, target] for delta in deltas])
        a, d, _ = network.tangents(params, one.anchors)
        explained = one.root @ Tangents(a, [delta[:, target] for delta in d]).kernel(new)
        return jnp.maximum(one.scale * new.own() - jnp.sum(explained**2, 0), 0)

    targets = jnp.arange(knowledge.level.shape[0])
    return jax.vmap(of_target, out_axes=1)(knowledge, targets)
