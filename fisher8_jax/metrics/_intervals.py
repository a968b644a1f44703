"""Central prediction intervals: how often they hold the target, and how wide they are.

The central interval of level `c` runs from the quantile `(1 - c)/2` to the quantile `(1 + c)/2`.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_targets
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.families import Predictive


@register_tree
@dataclasses.dataclass(frozen=True)
class Interval:
    """Intervals at several levels: `lower` and `upper` have the levels on their last axis.

    Args:
        lower: lower ends, `batch_shape + (number of levels,)`.
        upper: upper ends, the same shape.
        levels: the nominal levels.

    Example:
        >>> import jax.numpy as jnp
        >>> interval = Interval(jnp.array([[-1.0]]), jnp.array([[1.0]]), levels=(0.9,))
        >>> interval.contains(jnp.array([0.5]))
        Array([[ True]], dtype=bool)
    """

    lower: Array
    upper: Array
    levels: tuple[float, ...] = dataclasses.field(metadata={"static": True})

    @property
    def width(self) -> Array:
        """`upper - lower`."""
        return self.upper - self.lower

    def contains(self, targets: Array) -> Array:
        """Whether `lower <= targets <= upper`, ends included; nan ends hold nothing."""
        y = self._spread(targets)
        return (self.lower <= y) & (y <= self.upper)

    def score(self, targets: Array) -> Array:
        """The width plus `2 / (1 - level)` times the distance of a target outside."""
        y = self._spread(targets)
        miss = jnp.maximum(self.lower - y, 0) + jnp.maximum(y - self.upper, 0)
        rate = jnp.asarray([2 / (1 - level) for level in self.levels], miss.dtype)
        return self.width + jnp.broadcast_to(rate, miss.shape) * miss

    def _spread(self, targets: Array) -> Array:
        targets = check_targets(targets, self.lower.shape[:-1])
        return jnp.broadcast_to(targets[..., None], self.lower.shape)


def central_intervals(dist: Predictive, levels: tuple[float, ...]) -> Interval:
    """The central intervals of `dist`, element by element."""
    tails = [0.5 * (1 - level) for level in levels] + [0.5 * (1 + level) for level in levels]

    def quantile(probability: Array) -> Array:
        return dist.quantile(jnp.broadcast_to(probability, dist.batch_shape))

    # Mapped rather than repeated: one copy of the quantile function in the compiled program.
    ends = jax.vmap(quantile, out_axes=-1)(jnp.asarray(tails, dist.mean.dtype))
    return Interval(ends[..., : len(levels)], ends[..., len(levels) :], levels)
