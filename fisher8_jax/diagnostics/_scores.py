"""From predictions of any family to normal scores: the one scale on which the doctor tests.

If a model is right, its randomised probability integral transform

    pit = cdf(y-) + v * (cdf(y) - cdf(y-)),  v uniform on (0, 1),

is uniform whatever the family, continuous or not, and the *score* `ndtri(pit)` is an independent
standard normal draw at every point. So tests of scores have a known level for all families, where
moments of skewed or heavy-tailed residuals have none.

Reference:
    Dunn and Smyth, Randomized quantile residuals, Journal of Computational and Graphical
    Statistics 5, 1996.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtri

from fisher8_jax._internal.checks import check_mask
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Predictive

# The draws that break the ties of counts: fixed, so that a diagnosis can be repeated.
_SEED = 20260

# Farther than this makes no difference, and fourth powers stay finite.
_FARTHEST = 1e6


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Sound predictions of one target, in double precision, one entry per point.

    Args:
        targets: observed values, all finite.
        mean: predicted means.
        log_variance: logarithms of the predicted variances.
        z: standardised residuals.
        pit: randomised probability integral transforms.
        score: `ndtri(pit)`; standard normal if the model is right.
        unit_variance_mean: means of a reference fit with unit variance, or None.
        inputs: what the predictions were made from, (points, columns), or None.
    """

    targets: np.ndarray
    mean: np.ndarray
    log_variance: np.ndarray
    z: np.ndarray
    pit: np.ndarray
    score: np.ndarray
    unit_variance_mean: np.ndarray | None
    inputs: np.ndarray | None

    @property
    def squared_residuals(self) -> np.ndarray:
        return np.square(self.targets - self.mean)

    def with_moments(self) -> "Predictions":
        """Without the predictions whose tails are too heavy for a mean or a variance."""
        return self.at(np.isfinite(self.mean) & np.isfinite(self.log_variance))

    def at(self, rows: np.ndarray) -> "Predictions":
        """The chosen points."""
        columns: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            column = getattr(self, field.name)
            columns[field.name] = None if column is None else column[rows]
        return Predictions(**columns)


@dataclasses.dataclass(frozen=True)
class Column:
    """One target: what can be judged, and how much cannot.

    Args:
        points: rows with a sound prediction and a finite target.
        targets: of the rows that `where` keeps, finite or not.
        used: rows that `where` keeps.
        bad_predictions: how many of them have a prediction that is not finite.
        bad_targets: how many of them have a target that is not finite.
    """

    points: Predictions
    targets: np.ndarray
    used: int
    bad_predictions: int
    bad_targets: int


def columns_of(
    dist: Predictive,
    targets: Array,
    unit_variance_mean: Array | None,
    where: Array | None,
    inputs: np.ndarray | None = None,
) -> list[Column]:
    """The predictions of every target apart."""
    dist, targets = dist.widen(), at_least_float32(targets)
    shape = dist.batch_shape
    mask = jnp.ones(shape, bool) if where is None else check_mask("where", where, shape)
    size = targets.shape[0]
    number = int(np.prod(targets.shape[1:]))

    def table(values: Array) -> np.ndarray:
        expanded = append_axes(np.asarray(values), targets.ndim)
        return np.broadcast_to(expanded, targets.shape).reshape(size, number)

    uniform = np.random.default_rng(_SEED).random(targets.shape)
    is_sound, arrays = _per_element(dist, targets, jnp.asarray(uniform, targets.dtype))
    arrays["unit_variance_mean"] = unit_variance_mean
    flags = table(mask), table(is_sound), np.isfinite(table(targets))
    tables = {n: None if a is None else table(a).astype(np.float64) for n, a in arrays.items()}
    return [_column(k, *flags, tables, inputs) for k in range(number)]


def _column(
    k: int,
    is_used: np.ndarray,
    is_sound: np.ndarray,
    has_target: np.ndarray,
    tables: dict[str, np.ndarray | None],
    inputs: np.ndarray | None,
) -> Column:
    used, sound, known = is_used[:, k], is_sound[:, k], has_target[:, k]
    rows = used & sound & known
    points: Any = {n: None if t is None else t[rows, k] for n, t in tables.items()}
    points["inputs"] = None if inputs is None else inputs[rows]
    return Column(
        Predictions(**points),
        np.asarray(tables["targets"])[used, k],
        int(used.sum()),
        int(np.sum(used & ~sound)),
        int(np.sum(used & ~known)),
    )


@jax.jit
def _per_element(
    dist: Predictive, targets: Array, uniform: Array
) -> tuple[Array, dict[str, Array | None]]:
    """Which predictions are finite, and what the rules look at."""
    # A joint distribution answers with the cdf of each coordinate's marginal.
    upper = dist.cdf(targets)
    limits = jnp.finfo(upper.dtype)
    below = targets - jnp.maximum(4 * limits.eps * jnp.abs(targets), 4 * limits.tiny)
    lower = jnp.minimum(dist.cdf(below), upper)
    pit = lower + uniform * (upper - lower)
    score = ndtri(jnp.clip(pit, limits.eps, 1 - limits.eps))
    # Where a heavy tail has no variance or mean, scores take the place of residuals.
    z = jnp.where(jnp.isfinite(dist.variance), dist.z_score(targets), score)
    # A clipped score hides how far a target lies; beyond 5 the residual takes its place if it is
    # farther, which no draw of a right model is often enough to matter.
    far = (jnp.abs(score) > 5) & (jnp.abs(z) > jnp.abs(score)) & (z * score > 0)
    arrays: dict[str, Array | None] = {
        "targets": targets,
        "mean": dist.mean,
        "log_variance": 2 * dist.log_std,
        "z": z,
        "pit": pit,
        "score": jnp.clip(jnp.where(far, z, score), -_FARTHEST, _FARTHEST),
    }
    return dist.is_finite(), arrays
