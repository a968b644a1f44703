"""Intervals from the errors on rows that the members held out, whatever the noise looks like.

A prediction is a nest of intervals, larger and larger ones around its center: `center -+ t std`
for families of a location and a scale, else between the quantiles `1/2 -+ t`. The score of a row is
the smallest `t` whose interval holds its target. With one score for every held-out row, each by the
members that did not train on it, the interval of a new row is that of the CV+:

    from the r-th smallest lower end to the r-th largest upper end, r = floor(miss (n + 1)),

with `miss = 1 - coverage`, over the `n` intervals that the new row has by every held-out row's
members and score. Rows of a calibration set are one fold that all members held out, and then this
is split conformal prediction.

Reference:
    Barber, Candès, Ramdas and Tibshirani, Predictive inference with the jackknife+, Annals of
    Statistics 2021, theorem 4. Gupta, Kuchibhotla and Ramdas, Nested conformal prediction, Pattern
    Recognition 2022. Vovk, Conditional validity of inductive conformal predictors, 2012 (groups).
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import smallest_float
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator._families import find_likelihood
from fisher8_jax.estimator._network import DenseNetwork
from fisher8_jax.estimator._prediction import in_blocks, predict_mixture
from fisher8_jax.estimator._widths import Ensemble
from fisher8_jax.families import LocationScale

# So many rows of each fold tell the width.
_MOST_OF_FOLD = 400

_ENDS = {
    "real": (-math.inf, math.inf),
    "positive": (0.0, math.inf),
    "counts": (-1.0, math.inf),
    "unit interval": (0.0, 1.0),
    "closed unit interval": (-1.0, 2.0),
}


CONFORMAL_SUPPORTS = tuple(_ENDS)


class Conformal(NamedTuple):
    """The scores of rows that were held out, for all rows or for each group of rows."""

    labels: tuple[str, ...] | None
    """Of the groups; None for one that all rows belong to."""
    scores: tuple[np.ndarray, ...]
    """One array per group, (folds, rows, targets), in rising order, -inf where there is none."""

    def of(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """The scores of a group, and how many there are for each target."""
        found = self.scores[group]
        return found, np.isfinite(found).sum((0, 1)) + np.isposinf(found).sum((0, 1))


def _by_fold(mixture: Mixture, folds: int) -> Mixture:
    """A mixture for each fold of the members that held it out: folds, then its members, rows."""

    def regroup(leaf: Array) -> Array:
        sides = 1 if isinstance(mixture.members, LocationScale) else 2
        parts = leaf.reshape(-1, folds, sides, *leaf.shape[1:])
        return jnp.moveaxis(parts, 1, 0).reshape(folds, -1, *leaf.shape[1:])

    return Mixture(jax.tree.map(regroup, mixture.members))


def _distances(mixture: Mixture, values: Array) -> tuple[Array, Array]:
    """How far values lie below and above the center: the `t` of the interval that ends there."""
    if isinstance(mixture.members, LocationScale):
        below = (mixture.center - values) / mixture.std
        return below, -below
    last = values - 1 if mixture.is_discrete else values
    return 0.5 - mixture.cdf(values), mixture.cdf(last) - 0.5


@functools.partial(jax.jit, static_argnums=(0, 5))
def _scores(
    network: DenseNetwork,
    ensemble: Ensemble,
    inputs: Array,
    outside: Array,
    targets: Array,
    folds: int,
) -> tuple[Array]:
    """The score of every row by the members of every fold, rows first."""
    grouped = _by_fold(predict_mixture(network, ensemble.plain(), inputs, outside), folds)
    below, above = jax.vmap(lambda part: _distances(Mixture(part), targets))(grouped.members)
    return (jnp.moveaxis(jnp.maximum(jnp.maximum(below, above), 0), 0, 1),)


@functools.partial(jax.jit, static_argnums=(0, 6))
def _ends(
    network: DenseNetwork,
    ensemble: Ensemble,
    inputs: Array,
    outside: Array,
    scores: Array,
    rank: Array,
    limits: tuple[float, float],
) -> tuple[Array, Array]:
    """The ends of intervals; `scores` (folds, rows, targets), `rank` one for each target."""
    mixture = predict_mixture(network, ensemble.plain(), inputs, outside)
    grouped = _by_fold(mixture, scores.shape[0])
    largest = jnp.finfo(jnp.float32).max
    shape, dtype = mixture.batch_shape, jnp.float32
    low, high = (jnp.full(shape, np.clip(end, -largest, largest), dtype) for end in limits)
    is_discrete = mixture.is_discrete
    flat = scores.reshape(*scores.shape[:2], -1)
    rank = jnp.broadcast_to(rank[None], mixture.batch_shape)

    def number(side: int, values: Array) -> Array:
        """How many held-out rows have an end at least that far out."""

        def of_fold(part: Any, known: Array) -> Array:
            t = _distances(Mixture(part), values)[side].reshape(len(inputs), -1)
            found = jax.vmap(jnp.searchsorted, (1, 1), 1)(known, t)
            return known.shape[0] - found.reshape(values.shape)

        return jnp.sum(jax.vmap(of_fold)(grouped.members, flat), 0)

    def search(reaches: Callable[[Array], Array]) -> Array:
        if not is_discrete:
            return smallest_float(reaches, low, high)
        # Rounded, because numbers that are not normal count as 0.
        return jnp.round(smallest_float(lambda y: reaches(jnp.floor(y)), low, high))

    lower = search(lambda y: number(0, y) >= rank)
    upper = search(lambda y: number(1, y) < rank)
    upper = upper - 1 if is_discrete else upper
    lower = jnp.where((rank == 0) | (lower <= -0.99 * largest), limits[0], lower)
    return lower, jnp.where((rank == 0) | (upper >= 0.99 * largest), limits[1], upper)


def score_rows(
    network: DenseNetwork,
    ensemble: Ensemble,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    own: np.ndarray,
    folds: int,
) -> np.ndarray:
    """Scores of held-out rows by the members that held them out, (folds, rows of it, targets).

    Args:
        network: of all members.
        ensemble: that was trained.
        rows: encoded inputs, how far outside they lie, and targets in units of training, nan
            where missing.
        own: the fold of each row; folds have the same number of rows.
        folds: how many.
    """
    inputs, outside, targets = rows
    (found,) = in_blocks(
        _scores, network, ensemble, inputs, outside, np.nan_to_num(targets, nan=1.0), extra=(folds,)
    )
    found = np.take_along_axis(found, own.reshape(-1, *[1] * (found.ndim - 1)), 1)[:, 0]
    found = np.where(np.isnan(targets), -np.inf, np.where(np.isnan(found), np.inf, found))
    order = np.argsort(own, kind="stable")
    flat = found.reshape(len(own), -1)[order].reshape(folds, -1, math.prod(network.target_shape))
    return np.sort(flat, axis=1).astype(np.float32)


def conformal_ends(
    network: DenseNetwork,
    ensemble: Ensemble,
    rows: tuple[np.ndarray, np.ndarray],
    conformal: Conformal,
    groups: np.ndarray,
    coverage: float,
    support: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends in units of training.

    Args:
        network: of all members.
        ensemble: that was trained.
        rows: encoded inputs, and how far outside they lie.
        conformal: the scores.
        groups: the number of the group of each row.
        coverage: between 0 and 1.
        support: of the family.
    """
    low = np.empty((len(groups), *network.target_shape))
    high = np.empty_like(low)
    for group in np.unique(groups):
        scores, count = conformal.of(group)
        # Exact: 0.1 times 10 must not become less than 1.
        rank = np.floor(np.round((1 - coverage) * (count + 1), 9)).astype(np.int32)
        chosen = groups == group
        extra = scores, rank.reshape(network.target_shape), _ENDS[support]
        inputs = [part[chosen] for part in rows]
        low[chosen], high[chosen] = in_blocks(_ends, network, ensemble, *inputs, extra=extra)
    return low, high


def check_groups(groups: ArrayLike | None, rows: int, known: tuple[str, ...] | None) -> np.ndarray:
    """The number of the group of each row; `known` are the labels of the calibration."""
    if (groups is None) != (known is None):
        raise ValueError(
            "`groups` must be given to `predict_interval` if, and only if, they were given to "
            "`calibrate`."
        )
    if groups is None or known is None:
        return np.zeros(rows, int)
    labels = as_labels(groups, rows)
    unknown = sorted(set(labels) - set(known))
    if unknown:
        raise ValueError(
            f"`groups` has {unknown[0]!r}, of which the calibration had no row. It had "
            f"{', '.join(map(repr, known))}."
        )
    return np.array([known.index(label) for label in labels])


def as_labels(groups: ArrayLike, rows: int) -> list[str]:
    """One word per row."""
    labels = [str(label) for label in np.asarray(groups).reshape(-1)]
    if np.ndim(groups) != 1 or len(labels) != rows:
        raise ValueError(
            f"`groups` must have one label for each of the {rows} rows, got shape "
            f"{np.shape(groups)}."
        )
    return labels


def conformal_of(estimator: Any) -> Conformal:
    """The scores of the calibration, or else those of the rows that members held out."""
    likelihood = find_likelihood(estimator.family_, estimator.family)
    if likelihood.support not in _ENDS:
        raise ValueError(
            f"`method='conformal'` needs targets on a line, and {likelihood.__name__} is for "
            f"{likelihood.support}. Use `method='model'`."
        )
    if estimator.conformal_ is not None:
        found: Conformal = estimator.conformal_
        return found
    memory, scaler = estimator.memory_, estimator.scaler_
    held_out = memory.held_out[:, :_MOST_OF_FOLD]
    places, folds = held_out.reshape(-1), len(held_out)
    present = np.where(memory.rows.where, memory.rows.targets, np.nan)[places]
    targets = ((present - scaler.shift) / scaler.scale).astype(np.float32)
    rows = memory.rows.inputs[places], memory.outside[places], targets
    own = np.repeat(np.arange(folds), held_out.shape[1])
    scores = score_rows(estimator._network(), estimator._ensemble(), rows, own, folds)
    return Conformal(None, (scores,))


def calibrated(
    estimator: Any,
    inputs: tuple[np.ndarray, np.ndarray],
    targets: np.ndarray,
    groups: ArrayLike | None,
) -> Conformal:
    """The scores of new rows, for each group."""
    labels = None if groups is None else as_labels(groups, len(targets))
    known = None if labels is None else tuple(sorted(set(labels)))
    numbers = check_groups(groups, len(targets), known)
    network, ensemble = estimator._network(), estimator._ensemble()
    scores = []
    for group in range(1 if known is None else len(known)):
        own = numbers == group
        rows = inputs[0][own], inputs[1][own], targets[own]
        scores.append(score_rows(network, ensemble, rows, np.zeros(own.sum(), int), 1))
    return Conformal(known, tuple(scores))
