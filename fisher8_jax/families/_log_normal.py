"""The log-normal: positive targets whose logarithm is Gaussian."""

from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import erf, log_ndtr
from jax.typing import ArrayLike

from fisher8_jax._internal.deviance import log_ratio
from fisher8_jax._internal.numerics import HALF_LOG_2PI, Scaled, multiply_by_exp
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._gaussian import Gaussian
from fisher8_jax.families._targets import scale_alone


@family
class LogNormal(DiagonalFamily):
    """`exp(N(location, exp(log_variance)))`: a Gaussian for the logarithm of the target.

    A change of the target's coordinate changes no Fisher information, so as for the Gaussian

        F    = diag(exp(-log_variance), 1/2)
        F^-1 = diag(exp(log_variance), 2)

    and the natural gradient of the NLL is `(location - ln(targets), 1 - z^2)`.

    Args:
        location: predicted means of the logarithm; `exp(location)` is the median.
        log_variance: predicted natural logarithms of the variance of the logarithm.

    Example:
        >>> import jax.numpy as jnp
        >>> LogNormal(jnp.zeros(1), jnp.zeros(1)).nll(jnp.ones(1), constant=False)
        Array([0.], dtype=float32)

    Reference:
        Crow and Shimizu (1988), Lognormal Distributions, chapter 2.
    """

    location: Array
    log_variance: Array

    support = "positive"
    units = "scale"
    fisher_depends_on: ClassVar[tuple[str, ...]] = ("log_variance",)

    @property
    def of_logarithm(self) -> Gaussian:
        """The distribution of the logarithm of the target."""
        return Gaussian(self.location, self.log_variance)

    @property
    def mean(self) -> Array:
        """`exp(location + exp(log_variance) / 2)`."""
        return jnp.exp(self.location + 0.5 * jnp.exp(self.log_variance))

    @property
    def variance(self) -> Array:
        """`expm1(exp(log_variance)) * mean^2`."""
        return jnp.expm1(jnp.exp(self.log_variance)) * jnp.square(self.mean)

    def _noise(self) -> Gaussian:
        """The distribution of the distance to the median, in logarithms."""
        return Gaussian(jnp.zeros_like(self.location), self.log_variance)

    def _distance(self, targets: Array) -> Array:
        """`ln(targets) - location`, to more digits than either of them has; nan outside."""
        return log_ratio(jnp.where(targets > 0, targets, jnp.nan), self.location)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """The Gaussian NLL of `ln(targets)`, plus `ln(targets)`; inf outside the support."""
        is_inside = targets > 0
        safe = jnp.where(is_inside, targets, 1)
        values = self._noise().nll(self._distance(safe), constant=constant) + jnp.log(safe)
        return jnp.where(is_inside, values, jnp.inf)

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(exp(-log_variance), 1/2)`, that of the Gaussian."""
        return self.of_logarithm.fisher_diagonal()

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`(location - ln(targets), 1 - z^2)`, nan outside the support."""
        score = self._noise().natural_score(self._distance(targets))
        return {"location": score["mean"], "log_variance": score["log_variance"]}

    def kl(self, other: Self) -> Array:
        """The divergence of the two Gaussians."""
        return self.of_logarithm.kl(other.of_logarithm)

    def cdf(self, targets: Array) -> Array:
        """The Gaussian cdf of `ln(targets)`, 0 for targets that are not positive."""
        is_outside = targets <= 0  # a nan stays one
        distance = self._distance(jnp.where(is_outside, 1, targets))
        return jnp.where(is_outside, 0, self._noise().cdf(distance))

    def quantile(self, probability: Array) -> Array:
        """`exp` of the Gaussian quantile."""
        return jnp.exp(self.of_logarithm.quantile(probability))

    def draw(self, key: Array) -> Array:
        """`exp` of a Gaussian draw."""
        return jnp.exp(self.of_logarithm.draw(key))

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """`location + ln(scale)`; a shift would leave the family."""
        log_scale = scale_alone("LogNormal", shift, scale, self.location)
        return type(self)(self.location + log_scale, self.log_variance)

    def scale_variance(self, factor: Array) -> Self:
        """`ln(1 + factor expm1(exp(log_variance)))` in place of `exp(log_variance)`."""
        dist = self.widen()
        old = jnp.exp(dist.log_variance)
        is_large = old > 1
        small = jnp.log1p(factor * jnp.expm1(jnp.where(is_large, 0, old)))
        large = old + jnp.log(factor + (1 - factor) * jnp.exp(-old))
        new = jnp.where(is_large, large, small)
        return type(self)(dist.location + 0.5 * (old - new), jnp.log(new))

    def crps(self, targets: Array) -> Array:
        """`y (2 Phi(z) - 1) - 2 mean (Phi(z - std) - Phi(-std / sqrt 2))`; nan outside."""
        distance = self._distance(targets)
        values = _standard_crps(self._noise(), distance)
        return multiply_by_exp(values, self.location)


def _standard_crps(noise: Gaussian, distance: Array) -> Array:
    """For a median of 1 and a target `exp(distance)`.

    A narrow one is a difference of numbers close to 1. There it is written as

        mean ((y/mean - 1) erf(z / sqrt 2) + 2 (Phi(z) - Phi(z - std)) - erf(std / 2))

    and the difference in the middle is an integral of the density. The mean of a wide one is huge
    and multiplies tiny probabilities, so their logarithms are added.
    """
    z, std = noise.standardize(distance), noise.std
    is_narrow = std < 0.5
    small, half_square = jnp.where(is_narrow, std, 0.5), 0.5 * jnp.square(std)
    nodes, weights = np.polynomial.legendre.leggauss(5)
    between = jnp.zeros_like(z)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        density = jnp.exp(-0.5 * jnp.square(z - float(node) * small) - HALF_LOG_2PI)
        between = between + float(weight) * small * density
    narrow_square = jnp.where(is_narrow, half_square, 0)
    shift = jnp.expm1(distance - narrow_square) * erf(z * 0.5**0.5)
    narrow = jnp.exp(narrow_square) * (shift + 2 * between - erf(0.5 * small))
    parts = [jnp.exp(half_square + log_ndtr(x)) for x in (z - std, -std * 0.5**0.5)]
    wide = jnp.exp(distance) * erf(z * 0.5**0.5) - 2 * (parts[0] - parts[1])
    return jnp.where(is_narrow, narrow, wide)
