"""Families of `location + scale * noise`, and what they share: units and standardised residuals."""

import abc
from typing import TYPE_CHECKING, ClassVar, Self

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.numerics import multiply_by_exp
from fisher8_jax.families._contract import ScalarFamily
from fisher8_jax.families._targets import expand_units


class LocationScale(ScalarFamily):
    """The distribution of `location + exp(log_scale) * noise`, with noise of a known shape.

    `location` and `log_scale` are fields or properties. A family says how the two are replaced and
    how wide its noise is; it then has residuals, units and a standard deviation.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import Laplace
        >>> dist = Laplace(mean=jnp.zeros(1), log_scale=jnp.zeros(1)).unscale(shift=3.0, scale=2.0)
        >>> dist.mean, dist.scale
        (Array([3.], dtype=float32), Array([2.], dtype=float32))
    """

    units: ClassVar[str] = "shift and scale"

    if TYPE_CHECKING:  # A field or a property, as the family likes.

        @property
        def location(self) -> Array: ...

        @property
        def log_scale(self) -> Array: ...

    @property
    @abc.abstractmethod
    def noise_std(self) -> Array:
        """The standard deviation of the noise, of the batch shape."""

    @abc.abstractmethod
    def with_location_scale(self, location: Array, log_scale: Array) -> Self:
        """The same noise at another place and of another size."""

    @property
    def scale(self) -> Array:
        """`exp(log_scale)`."""
        return jnp.exp(self.log_scale)

    @property
    def std(self) -> Array:
        """`scale * noise_std`."""
        return self.scale * self.noise_std

    @property
    def log_std(self) -> Array:
        """`log_scale + ln(noise_std)`."""
        return self.log_scale + jnp.log(self.noise_std)

    def standardize(self, targets: Array) -> Array:
        """`(targets - location) / scale`: the noise, without forming a scale that may overflow."""
        dist, targets = self.prepare(targets)
        return multiply_by_exp(targets - dist.location, -dist.log_scale)

    def z_score(self, targets: Array) -> Array:
        """`standardize(targets) / noise_std`."""
        return self.standardize(targets) / self.noise_std

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """The distribution of `scale * y + shift`: back to the units of the original targets."""
        shift, scale = expand_units(shift, scale, self.location)
        log_scale = self.log_scale + jnp.log(jnp.abs(scale)).astype(self.log_scale.dtype)
        return self.with_location_scale(self.location * scale + shift, log_scale)

    def scale_variance(self, factor: Array) -> Self:
        """`log_scale + ln(factor) / 2`, which exists for an infinite variance, too."""
        log_factor = jnp.log(factor).astype(self.log_scale.dtype)
        return self.with_location_scale(self.location, self.log_scale + 0.5 * log_factor)
