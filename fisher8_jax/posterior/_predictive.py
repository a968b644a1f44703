"""From normal outputs to a predicted distribution of targets.

The outputs of the network are normal around its predictions. Sampling them gives a mixture for any
family. For a location-scale family no sampling is needed: given the log-scale, the location is
normal, and a member of the family with the variance of noise and location together stands for the
rest. So the predictive is the equal mixture over some quantiles of the log-scale, and

    variance = mean over the quantiles of noise_std^2 exp(2 log_scale) + Var[location],

the first term aleatoric, the second epistemic. The standard deviation of the log-scale counts as at
most 1: beyond, the linearised log-scale says nothing but that it does not know, and its exponential
would be that of a tail which no target reaches.
"""

import dataclasses
from statistics import NormalDist
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.trees import register_tree
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Family, LocationScale, Predictive
from fisher8_jax.posterior._outputs import from_vectors, vectors_of

# Quantiles of a standard normal in the middle of equal parts, of variance 1.
_QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / 7) for i in range(7)])
_QUANTILES /= np.sqrt(np.mean(np.square(_QUANTILES)))
_WIDEST = 1.0


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class PosteriorPredictive(Predictive):
    """A prediction that includes what the network does not know.

    Attributes:
        dist: the distribution to score and to draw from.
        aleatoric: the mean variance of the noise: more data would not remove it.
        epistemic: the variance of the mean: more data would. The two add up to `variance`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.posterior import PosteriorPredictive
        >>> widened = Gaussian(jnp.zeros(1), jnp.log(jnp.array([5.0])))
        >>> dist = PosteriorPredictive(widened, jnp.array([4.0]), jnp.array([1.0]))
        >>> dist.variance, round(float(dist.nll(jnp.zeros(1))[0]), 2)
        (Array([5.], dtype=float32), 1.72)
    """

    dist: Predictive
    aleatoric: Array
    epistemic: Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the predictions."""
        return self.dist.batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one target."""
        return self.dist.event_shape

    @property
    def mean(self) -> Array:
        """Of the targets."""
        return self.dist.mean

    @property
    def variance(self) -> Array:
        """`aleatoric + epistemic`."""
        return self.aleatoric + self.epistemic

    @property
    def is_discrete(self) -> bool:
        """As the family is."""
        return self.dist.is_discrete

    @property
    def is_circular(self) -> bool:
        """As the family is."""
        return self.dist.is_circular

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """Negative log-likelihood, one value per element."""
        return self.dist.nll(targets, constant=constant)

    def cdf(self, targets: Array) -> Array:
        """The probability of a value at most `targets`."""
        return self.dist.cdf(targets)

    def quantile(self, probability: Array) -> Array:
        """The value whose cdf is `probability`."""
        return self.dist.quantile(probability)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `sample_shape + batch_shape + event_shape`."""
        return self.dist.sample(key, sample_shape)

    def crps(self, targets: Array) -> Array:
        """The score of `dist`."""
        return self.dist.crps(targets)

    def unscale(self, shift: Any, scale: Any) -> Self:
        """The prediction in other units; see `Predictive.unscale`."""
        dist = self.dist.unscale(shift, scale)
        square = dist.variance / self.dist.variance
        return dataclasses.replace(
            self, dist=dist, aleatoric=self.aleatoric * square, epistemic=self.epistemic * square
        )


def closed_form(dist: LocationScale, covariance: Array) -> PosteriorPredictive:
    """The mixture over quantiles of the log-scale.

    Args:
        dist: the predictions.
        covariance: of all outputs of every row, `(rows, p, p)`.
    """
    location, log_scale, both = _moments(dist, _element_blocks(dist, covariance))
    tiny = jnp.finfo(location.dtype).tiny
    width = jnp.sqrt(jnp.maximum(log_scale, tiny))
    node = jnp.asarray(_QUANTILES, width.dtype).reshape(-1, *(1,) * width.ndim)
    slope = both / width  # of the location, for each standard deviation of the log-scale
    rest = jnp.log(jnp.maximum(location - jnp.square(slope), tiny))[None]
    log_noise = 2 * (dist.log_scale[None] + node * jnp.minimum(width, _WIDEST)[None])
    noise = jnp.where(jnp.isfinite(dist.noise_std), dist.noise_std, 1)  # heavy tails: its scale
    log_scales = 0.5 * jnp.logaddexp(log_noise, rest - 2 * jnp.log(noise)[None])
    locations = dist.location[None] + node * slope[None]
    members = jax.vmap(dist.with_location_scale)(locations, log_scales)
    aleatoric = jnp.square(dist.noise_std) * jnp.mean(jnp.exp(log_noise), 0)
    return PosteriorPredictive(Mixture(members), aleatoric, location)


def sampled(dist: Family, covariance: Array, key: Array, samples: int) -> Mixture:
    """The mixture over draws of the outputs, independent from row to row."""
    values, vectors = jnp.linalg.eigh(covariance)
    # The symmetric root, which unlike the eigenvectors has no arbitrary signs.
    scaled = vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]
    root = jnp.einsum("iab,icb->iac", scaled, vectors)
    centre = vectors_of(dist)
    noise = jax.random.normal(key, (samples, *centre.shape), centre.dtype)
    drawn = centre[None] + jnp.einsum("iab,sib->sia", root, noise)
    return Mixture(jax.vmap(lambda vector: from_vectors(dist, vector))(drawn))


def _moments(dist: LocationScale, covariance: Array) -> tuple[Array, Array, Array]:
    """The variances of location and log-scale and their covariance, of the batch shape."""

    def coordinates(vector: Array) -> Array:
        other: LocationScale = dist.from_vector(vector)
        return jnp.stack([other.location, other.log_scale], -1)

    vector = dist.to_vector()
    units = jnp.eye(vector.shape[-1], dtype=vector.dtype)
    slopes = jax.vmap(
        lambda unit: jax.jvp(coordinates, (vector,), (jnp.broadcast_to(unit, vector.shape),))[1],
        out_axes=-1,
    )(units)
    found = jnp.einsum("...ka,...ab,...lb->...kl", slopes, covariance, slopes)
    location, log_scale = (jnp.maximum(found[..., i, i], 0) for i in range(2))
    return location, log_scale, found[..., 0, 1]


def _element_blocks(dist: Family, covariance: Array) -> Array:
    """The covariance of the outputs of every element, `batch_shape + (q, q)`."""
    vector = dist.to_vector()
    rows, size = vector.shape[0], vector.shape[-1]
    blocks = covariance.reshape(rows, -1, size, covariance.shape[-1] // size, size)
    own = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
    return own.reshape(*dist.batch_shape, size, size)
