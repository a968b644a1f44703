"""What the metrics ask of a distribution: less than a family, so that any predictive will do.

Every family is a `Predictive`. So is a recalibrated distribution or a mixture, which can be scored
but not trained. Three more methods are used where a class offers them, because a closed form is
faster and safer than the general way:

* `crps(targets)`, the continuous ranked probability score per element;
* `standardize(targets)`, the residual in units of the predicted standard deviation;
* `is_finite()`, which elements are sound predictions.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax.families import Family, Gaussian


class Predictive(Protocol):
    """A predicted distribution that can be scored, one per element of its batch shape."""

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    @property
    def batch_shape(self) -> tuple[int, ...]: ...

    @property
    def event_shape(self) -> tuple[int, ...]: ...

    def nll(self, targets: Array, *, constant: bool = True) -> Array: ...

    def cdf(self, targets: Array) -> Array: ...

    def quantile(self, probability: Array) -> Array: ...


def is_finite(dist: Predictive) -> Array:
    """Where all parameters of a prediction are finite, one boolean per element.

    Parameters count, not moments: a Student-t with an infinite variance is a sound prediction, a
    Gaussian with an infinite log-variance is not.
    """
    own: Any = getattr(dist, "is_finite", None)
    if own is not None:
        return own()
    fields = [dist.mean, dist.variance]
    if isinstance(dist, Family):
        fields = list(dist.parameters().values())
    ndim = len(dist.batch_shape)
    finite = jnp.ones(dist.batch_shape, bool)
    for field in fields:
        own_axes = tuple(range(ndim, field.ndim))
        finite &= jnp.all(jnp.isfinite(field), axis=own_axes)
    return finite


def standardize(dist: Predictive, targets: Array) -> Array:
    """`(targets - mean) / sqrt(variance)`, by the distribution's own method if it has one."""
    own: Any = getattr(dist, "standardize", None)
    if own is not None:
        return own(targets)
    return (targets - dist.mean) / jnp.sqrt(dist.variance)


def log_variance(dist: Predictive) -> Array:
    """The logarithm of the variance, without forming a variance that may overflow."""
    return dist.log_variance if isinstance(dist, Gaussian) else jnp.log(dist.variance)


def widen(tree: Any) -> Any:
    """Casts every half-precision leaf to float32."""

    def cast(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))

    return jax.tree.map(cast, tree)
