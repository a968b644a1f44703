"""The distribution behind a rising map of probabilities."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._internal.bisection import crowded_nodes
from fisher8_jax._internal.checks import check_targets
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.families import Predictive

# Nodes in every step of the map; the std of a Gaussian is then right to 1e-5 with 40 steps.
_NODES = 12


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class Recalibrated(Predictive):
    """The distribution with cdf `R(base.cdf(y))` for a piecewise linear `R`; made by `IsotonicPIT`.

    It can be scored and sampled, but it is no family: it cannot be trained.

    Args:
        base: the original distribution.
        knots: where `R` reaches 0, 1/bins, ..., 1, on the last axis behind the batch shape.
        mean: its means, by quadrature.
        variance: its variances, by quadrature.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.calibration import IsotonicPIT
        >>> held_out, targets = Gaussian(jnp.zeros(40), jnp.zeros(40)), jnp.linspace(-1, 1, 40)
        >>> dist = IsotonicPIT.fit(held_out, targets, bins=4).apply(held_out)
        >>> type(dist).__name__, dist.batch_shape
        ('Recalibrated', (40,))
    """

    base: Predictive
    knots: Array
    mean: Array
    variance: Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.base.batch_shape

    @property
    def _origin(self) -> Predictive:
        return self.base._origin

    def is_finite(self) -> Array:
        """Where the original prediction and the map are finite."""
        return self.base.is_finite() & jnp.all(jnp.isfinite(self.knots), axis=-1)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`base.nll - ln R'`; nan where `R` jumps, because there is no density."""
        left, right, _ = self._step(targets)
        meets = self.base.cdf(targets)[..., None] == self.knots
        jumps = jnp.sum(meets, axis=-1, dtype=jnp.int32) > 1
        width = jnp.where(jumps, jnp.nan, right - left)
        return self.base.nll(targets, constant=constant) + jnp.log(width * _bins(self.knots))

    def cdf(self, targets: Array) -> Array:
        """`R(base.cdf(targets))`."""
        left, right, step = self._step(targets)
        width = jnp.where(right > left, right - left, 1)
        within = jnp.where(right > left, (self.base.cdf(targets) - left) / width, 1)
        return (step + jnp.clip(within, 0, 1)) / _bins(self.knots)

    def quantile(self, probability: Array) -> Array:
        """`base.quantile` of the inverse of `R`; `probability` broadcasts against the batch."""
        probability = jnp.asarray(probability, self.knots.dtype)
        probability = jnp.broadcast_to(probability, self.batch_shape)
        return self.base.quantile(_inverse(self.knots, probability))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, the quantiles of uniform probabilities."""
        shape = (*sample_shape, *self.batch_shape)
        uniform = jax.random.uniform(key, shape, self.knots.dtype)
        flat = uniform.reshape(-1, *self.batch_shape)
        return jax.vmap(self.quantile)(flat).reshape(shape)

    def crps(self, targets: Array) -> Array:
        """The continuous ranked probability score, by quadrature within every step of the map.

        With the recalibrated quantile function `q` and `u = cdf(targets)` it is
        `2 integral_u^1 (q(p) - targets) dp - 2 integral_0^1 p (q(p) - targets) dp`.
        """
        targets = check_targets(targets, self.batch_shape).astype(self.knots.dtype)
        *_, step = self._step(targets)
        at_target, bins = self.cdf(targets), _bins(self.knots)

        def whole_steps(probability: Array, value: Array) -> Array:
            is_above = jnp.floor(probability * bins) > step
            return 2 * (is_above - probability) * (value - targets)

        rest_of_step = (step + 1) / bins - at_target

        def excess(position: Array) -> Array:
            probability = at_target + position * rest_of_step
            # At the upper end of the last step the quantile is infinite and the step has no length.
            return jnp.where(probability < 1, self.quantile(probability) - targets, 0)

        within, weights = (jnp.asarray(a, targets.dtype) for a in crowded_nodes(_NODES))
        part = jnp.tensordot(weights, jax.vmap(excess)(within), axes=1)
        return _integrate(self.base, self.knots, whole_steps) + 2 * rest_of_step * part

    def _step(self, targets: Array) -> tuple[Array, Array, Array]:
        """The knots on either side of each PIT value, and the number of the left one."""
        values = self.base.cdf(check_targets(targets, self.batch_shape))
        passed = jnp.sum(values[..., None] >= self.knots, axis=-1, dtype=jnp.int32)
        step = jnp.clip(passed - 1, 0, _bins(self.knots) - 1)
        return *_ends(self.knots, step), step.astype(values.dtype)


def recalibrate(base: Predictive, knots: Array) -> Recalibrated:
    """The recalibrated distribution with its moments, centred on the mean of `base`."""
    centre = base.mean
    shift = _integrate(base, knots, lambda _, value: value - centre)
    spread = _integrate(base, knots, lambda _, value: jnp.square(value - centre - shift))
    return Recalibrated(base, knots, centre + shift, spread)


def _integrate(base: Predictive, knots: Array, integrand: Callable[[Array, Array], Array]) -> Array:
    """The integral over `p` from 0 to 1 of `integrand(p, recalibrated quantile of p)`."""
    bins = _bins(knots)
    within, weights = crowded_nodes(_NODES)
    probabilities = ((np.arange(bins)[:, None] + within) / bins).reshape(-1)

    def add_node(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        probability = jnp.broadcast_to(node[0], total.shape)
        value = base.quantile(_inverse(knots, probability))
        return total + node[1] * integrand(probability, value), None

    start = jnp.zeros_like(base.mean)
    columns = (
        jnp.asarray(probabilities, start.dtype),
        jnp.asarray(np.tile(weights / bins, bins), start.dtype),
    )
    return lax.scan(add_node, start, columns)[0]


def _inverse(knots: Array, probability: Array) -> Array:
    """The PIT value at which the map reaches `probability`."""
    bins = _bins(knots)
    step = jnp.clip((probability * bins).astype(jnp.int32), 0, bins - 1)
    left, right = _ends(knots, step)
    return left + (probability * bins - step.astype(probability.dtype)) * (right - left)


def _ends(knots: Array, step: Array) -> tuple[Array, Array]:
    left = jnp.take_along_axis(knots, step[..., None], axis=-1)
    right = jnp.take_along_axis(knots, step[..., None] + 1, axis=-1)
    return left[..., 0], right[..., 0]


def _bins(knots: Array) -> int:
    return knots.shape[-1] - 1
