"""What is done to the members of an ensemble row by row: narrowed where all is known, else widened.

The calibration that says how much is found by `_calibration`.
"""

from typing import NamedTuple, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator._epistemic import Knowledge, posterior_variance
from fisher8_jax.estimator._network import DenseNetwork
from fisher8_jax.families import LocationScale, Predictive


class Calibration(NamedTuple):
    """How wide predictions among the data are made; see `_calibration`."""

    factor: chex.Array
    """Of the members' variances, (targets,)."""
    closeness: chex.Array
    """Of the distances between the members' locations, (targets,)."""
    tails: chex.Array
    """The variances of the parts that a member is divided into, of mean 1, (parts, targets)."""
    ceiling: chex.Array
    """The largest log-scale of a member, (targets,)."""

    @classmethod
    def none(cls, targets: int) -> Self:
        """Leaves predictions as they are."""
        ones = np.ones((1, targets), np.float32)
        return cls(ones[0], ones[0], ones, np.log(np.finfo(np.float32).max) * ones[0])


class Ensemble(NamedTuple):
    """Trained members, what a network does not know, and how wide their mixture is."""

    params: chex.ArrayTree
    """Members first."""
    reference: chex.ArrayTree
    """The network that the knowledge belongs to."""
    knowledge: Knowledge
    calibration: Calibration

    def plain(self) -> "Ensemble":
        """The same members as they were trained, but for the largest scale."""
        none = Calibration.none(len(self.calibration.factor))
        return self._replace(calibration=none._replace(ceiling=self.calibration.ceiling))


class Widths(NamedTuple):
    """What is done to the members in every row, each of the targets' shape."""

    added: Array
    """Epistemic variance beyond what the members' own variances cover."""
    factor: Array
    closeness: Array


def variance_of(network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array) -> Array:
    """The posterior variance of the raw locations, (rows, targets)."""
    variance = posterior_variance(network, ensemble.reference, ensemble.knowledge, inputs)
    return variance + outside[:, None] ** 2


def find_widths(network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array) -> Widths:
    """By how familiar a row is.

    The variance that is added grows with `outside` to that of the targets: encoded inputs stand
    still out there. The unfamiliarity of a row, 0 where all is known, is 1/2 at the level from
    which on variance is added, and 1 far away, where members are left as they are.

    There the posterior is around another network's location, too: what of it lies beyond all
    members' is added with the part of the variance that is.
    """
    variance = variance_of(network, ensemble, inputs, outside)
    level, outside = ensemble.knowledge.level[None], outside[:, None]
    factor, closeness = ensemble.calibration.factor[None], ensemble.calibration.closeness[None]
    tiny = jnp.finfo(jnp.float32).tiny
    unfamiliarity = variance / jnp.maximum(variance + level, tiny)
    excess = jnp.maximum(variance - outside**2 - level, 0)
    share = excess / jnp.maximum(variance, tiny)
    added = excess + share * _beyond_members(network, ensemble, inputs) ** 2 + outside**2
    shape = (len(inputs), *network.target_shape)
    return Widths(
        added.reshape(shape),
        (factor + (1 - factor) * unfamiliarity).reshape(shape),
        (closeness + (1 - closeness) * unfamiliarity).reshape(shape),
    )


def _beyond_members(network: DenseNetwork, ensemble: Ensemble, inputs: Array) -> Array:
    """How far the location of the reference is from those of the members; 0 between them."""
    of_members = jax.vmap(lambda params: network.locations(params, inputs)[0])(ensemble.params)
    own = network.locations(ensemble.reference, inputs)[0]
    above, below = own - jnp.max(of_members, axis=0), jnp.min(of_members, axis=0) - own
    return jnp.maximum(jnp.maximum(above, below), 0)


def calibrated_members(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, widths: Widths
) -> Predictive:
    """All members with the calibrated locations and variances, each in its parts."""
    members = jax.vmap(network, (0, None))(ensemble.params, inputs)
    if not isinstance(members, LocationScale):
        return members
    # Exact without calibration.
    apart = members.location - jnp.mean(members.location, axis=0, keepdims=True)
    location = members.location - (1 - widths.closeness[None]) * apart
    ceiling = ensemble.calibration.ceiling.reshape(1, 1, *network.target_shape)
    log_scale = jnp.minimum(members.log_scale, ceiling)
    tails = ensemble.calibration.tails.reshape(-1, 1, *network.target_shape)
    parts = [
        members.with_location_scale(location, log_scale + 0.5 * jnp.log(widths.factor * tail)[None])
        for tail in tails
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def widened_mixture(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, widths: Widths
) -> Mixture:
    """The mixture of all members with `widths.added` in the variance of their raw locations.

    Exact for families of a location and a scale; others become two, one deviation to either side.
    """
    members = calibrated_members(network, ensemble, inputs, widths)
    if isinstance(members, LocationScale):
        return Mixture(jax.vmap(lambda member: _with_variance(member, widths.added))(members))
    sides = jnp.stack([-jnp.sqrt(widths.added), jnp.sqrt(widths.added)])
    both = jax.vmap(jax.vmap(network, (None, None, 0)), (0, None, None))
    found = both(ensemble.params, inputs, sides)
    return Mixture(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found))


def _with_variance(dist: LocationScale, added: Array) -> LocationScale:
    """The same family with a larger variance; heavy tails without one get a larger scale."""
    width = jnp.where(jnp.isfinite(dist.noise_std), dist.noise_std, 1)
    log_scale = jnp.logaddexp(2 * dist.log_scale, jnp.log(added) - 2 * jnp.log(width))
    return dist.with_location_scale(dist.location, 0.5 * log_scale)
