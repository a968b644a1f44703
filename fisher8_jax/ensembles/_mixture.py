"""The predictive distribution of an ensemble: an equal mixture of its members' predictions.

Everything of one member (parameters, optimiser state, key) is a tree; an ensemble is the same tree
with the members as first axis of every leaf. A function of one member becomes one of all by
`jax.vmap`, so a training loop written for one network trains an ensemble unchanged.
"""

import dataclasses
import math
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import crowded_nodes, smallest_float
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.families import Gaussian, Predictive


def check_members(members: object) -> int:
    """The number of stacked members, or an error that says how to stack them."""
    if not isinstance(members, Predictive):
        raise TypeError(
            "`members` must be one distribution with the members as first axis of its arrays, got "
            f"{type(members).__name__}. Predict with `jax.vmap` over stacked parameters, or stack "
            "them: `jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)`."
        )
    leaves = jax.tree.leaves(members)
    if not leaves or any(np.ndim(leaf) == 0 for leaf in leaves):
        raise ValueError(
            "`members` must have the members as first axis of its arrays, got a distribution of "
            "scalars. Of a single one take `jax.tree.map(lambda leaf: leaf[None], dist)`."
        )
    size = np.shape(leaves[0])[0]
    if size == 0:
        raise ValueError("`members` must hold at least one member, got an axis of length 0.")
    return size


def check_probability(probability: chex.Numeric) -> None:
    """Rejects concrete levels outside [0, 1]; tracers pass."""
    if isinstance(probability, jax.core.Tracer):
        return
    levels = np.asarray(probability, np.float64)
    if not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"`probability` must lie between 0 and 1, got {levels.tolist()}.")


# Of the integrals in the CRPS: below 1e-5 of a standard deviation for Gaussian members.
_NODES = 48


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class Mixture(Predictive):
    """The equal mixture of distributions that are stacked along their first axis.

    With one member every answer is that member's own, to the bit. Moments of angles are those of
    directions. Their `cdf` and `quantile` are the members' own, each counted from its far side, and
    mean something only if members agree to within a fraction of a turn.

    Args:
        members: a distribution whose arrays have the members as first axis, as `jax.vmap` over
            stacked parameters returns it.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.ensembles import Mixture
        >>> members = Gaussian(mean=jnp.array([[-1.0], [1.0]]), log_variance=jnp.zeros((2, 1)))
        >>> mixture = Mixture(members)
        >>> mixture.mean, mixture.aleatoric, mixture.epistemic
        (Array([0.], dtype=float32), Array([1.], dtype=float32), Array([1.], dtype=float32))

    Reference:
        Lakshminarayanan et al., Simple and scalable predictive uncertainty estimation using deep
        ensembles, NeurIPS 2017.
    """

    members: Predictive

    @property
    def size(self) -> int:
        """The number of members."""
        return check_members(self.members)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the predictions, without the members."""
        check_members(self.members)
        return self.members.batch_shape[1:]

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one target."""
        return self.members.event_shape

    @property
    def mean(self) -> Array:
        """The mean of the members' means; of angles their mean direction."""
        check_members(self.members)
        if self.is_circular and self.size > 1:
            cosine, sine = self._resultant()
            return jnp.arctan2(sine, cosine)
        return jnp.mean(self.members.mean, axis=0)

    @property
    def center(self) -> Array:
        """The mean of the members' centers, which exists where their means do not."""
        check_members(self.members)
        return self.mean if self.is_circular else jnp.mean(self.members.center, axis=0)

    @property
    def aleatoric(self) -> Array:
        """The mean of the members' variances: noise that more data would not remove."""
        check_members(self.members)
        return jnp.mean(self.members.variance, axis=0)

    @property
    def epistemic(self) -> Array:
        """The variance of the members' centers: what the members disagree about."""
        check_members(self.members)
        if self.is_circular and self.size > 1:
            return jnp.maximum(1 - self.aleatoric - jnp.hypot(*self._resultant()), 0)
        return jnp.var(self.members.center, axis=0)

    @property
    def variance(self) -> Array:
        """`aleatoric + epistemic`, the exact variance of the mixture."""
        return self.aleatoric + self.epistemic

    @property
    def std(self) -> Array:
        """The square root of `variance`."""
        return self.one.std if self.size == 1 else jnp.sqrt(self.variance)

    @property
    def one(self) -> Predictive:
        """The first member."""
        return self.member(0)

    def member(self, index: int) -> Predictive:
        """One member's own prediction."""
        return jax.tree.map(lambda leaf: leaf[index], self.members)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`-log(mean over members of exp(-nll))`, one value per element."""
        values = jax.vmap(lambda dist: dist.nll(targets, constant=constant))(self.members)
        return math.log(self.size) - logsumexp(-values, axis=0)

    def cdf(self, targets: Array) -> Array:
        """The mean of the members' cdfs."""
        check_members(self.members)
        return jnp.mean(jax.vmap(lambda dist: dist.cdf(targets))(self.members), axis=0)

    def quantile(self, probability: Array) -> Array:
        """The value whose cdf is `probability`, by bisection between the members' quantiles.

        It halves the list of floating-point numbers in between, so it ends at the right one
        however far apart the members are.

        Args:
            probability: between 0 and 1; broadcasts against the batch.

        Returns:
            Quantiles of the shape that both have together, right to the last bits of their dtype.
        """
        check_probability(probability)
        if self.size == 1:
            return self.one.quantile(probability)
        mixture = dataclasses.replace(self, members=self._jax_members)
        quantiles = jax.vmap(lambda dist: dist.quantile(probability))(mixture.members)
        wide = at_least_float32(quantiles)
        low, high = jnp.min(wide, axis=0), jnp.max(wide, axis=0)
        level = jnp.broadcast_to(jnp.asarray(probability, wide.dtype), low.shape)
        values = smallest_float(lambda value: mixture._spread_cdf(value) >= level, low, high)
        # Where the members agree, at 0 and 1 for instance, their answer is that of the mixture.
        return jnp.where(low == high, high, values).astype(quantiles.dtype)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `sample_shape + batch_shape + event_shape`."""
        size, (draw_key, pick_key) = self.size, jax.random.split(key)
        keys = jax.random.split(draw_key, size)
        draws = jax.vmap(lambda dist, key: dist.sample(key, sample_shape))(self.members, keys)
        picked = jax.random.randint(pick_key, (*sample_shape, *self.batch_shape), 0, size)
        picked = picked.reshape((1, *picked.shape) + (1,) * len(self.event_shape))
        return jnp.take_along_axis(draws, picked, axis=0)[0]

    @property
    def can_scale_variance(self) -> bool:
        """Whether members of scalar targets can be shifted and scaled."""
        return self.is_location_scale and not self.event_shape

    @property
    def _origin(self) -> Predictive:
        return self.members._origin

    def _resultant(self) -> tuple[Array, Array]:
        """The mean of directions, each as long as its member is certain of it."""
        length, angle = 1 - self.members.variance, self.members.mean
        return jnp.mean(length * jnp.cos(angle), axis=0), jnp.mean(length * jnp.sin(angle), axis=0)

    def is_finite(self) -> Array:
        """Where the predictions of all members are finite."""
        return jnp.all(self.members.is_finite(), axis=0)

    def crps(self, targets: Array) -> Array:
        """The mean score of the members, less half of how much further apart they are than within.

        With `D_ij` the mean score of member `i` over draws of member `j`, by quadrature over the
        quantiles of `j`, the score is `mean_i crps_i + (mean_i D_ii - mean_ij D_ij) / 2`. Every
        integrand is that of one member, smooth however far apart the members are. For Gaussians
        `D_ij` is known in closed form.
        """
        if self.size == 1:
            return self.one.crps(targets)

        members = self._jax_members

        def scores(values: Array) -> Array:  # of all members, members first
            return jax.vmap(lambda dist: dist.crps(values))(members)

        own = scores(targets)
        if isinstance(members, Gaussian):
            return jnp.mean(own, axis=0) + 0.5 * _gaussians_apart(members, own)
        nodes, weights = crowded_nodes(_NODES)

        def add_node(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
            level, weight = node
            draws = jax.vmap(lambda dist: dist.quantile(level))(members)
            table = jax.vmap(scores)(draws.astype(own.dtype))  # draws of j, members i, batch
            within = jnp.mean(jnp.diagonal(table), axis=-1)
            return total + weight * (within - jnp.mean(table, axis=(0, 1))), None

        columns = (jnp.asarray(nodes, own.dtype), jnp.asarray(weights, own.dtype))
        apart, _ = lax.scan(add_node, jnp.zeros_like(own[0]), columns)
        return jnp.mean(own, axis=0) + 0.5 * apart

    def marginals(self) -> "Mixture":
        """The mixture of the members' marginals."""
        return Mixture(self.members.marginals())

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """Every member in the other units; see `Predictive.unscale`."""
        back = jax.vmap(lambda dist: dist.unscale(shift, scale))
        return dataclasses.replace(self, members=back(self.members))

    def scale_variance(self, factor: Array) -> Self:
        """All members stretched around the mean of the mixture, for families that have units."""
        root = jnp.sqrt(factor)
        return self.unscale((1 - root) * self.mean, root)

    @property
    def _jax_members(self) -> Predictive:
        """Not of NumPy, which JAX refuses as constants of a loop around a `custom_jvp`."""
        members: Predictive = jax.tree.map(jnp.asarray, self.members)
        return members

    def _take(self, index: tuple[Any, ...]) -> Self:
        return dataclasses.replace(self, members=self.members[(slice(None), *index)])

    def _spread_cdf(self, values: Array) -> Array:
        """The cdf at values with more leading axes than the targets have."""
        shape = self.batch_shape + self.event_shape
        extra = values.ndim - len(shape)
        evaluate = self.cdf
        for _ in range(extra):
            evaluate = jax.vmap(evaluate)
        return evaluate(jnp.broadcast_to(values, (*values.shape[:extra], *shape)))


def _gaussians_apart(members: Gaussian, own: Array) -> Array:
    """`mean_i D_ii - mean_ij D_ij` of `Mixture.crps`; `own` are the members' scores.

    The mean distance of draws of `i` and `j` is the CRPS of a Gaussian with both variances, but for
    its own mean distance to itself.
    """
    root = 1 / math.sqrt(math.pi)

    def add_member(total: Array, one: Gaussian) -> tuple[Array, None]:
        both = jax.vmap(
            lambda other: Gaussian(other.mean, jnp.logaddexp(other.log_variance, one.log_variance))
        )(members)
        distances = jax.vmap(lambda dist: dist.crps(one.mean))(both) + root * both.std
        apart = jnp.mean((2 * root * one.std)[None] - distances, axis=0)
        return total + apart.astype(own.dtype), None

    apart, _ = lax.scan(add_member, jnp.zeros_like(own[0]), members)
    return apart / len(members.mean)
