"""The von Mises distribution: angles."""

import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import smallest_float
from fisher8_jax._internal.incomplete import differentiate_tails
from fisher8_jax._internal.numerics import Scaled, multiply_by_exp
from fisher8_jax._internal.special import (
    bessel_curvature,
    bessel_gap,
    bessel_ratio,
    exponential_bregman,
    log_bessel_i0e,
    log_bessel_ratio,
)
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._quadrature import add_node_axis, gauss_legendre
from fisher8_jax.families._targets import shift_alone

_LOG_2PI = math.log(2 * math.pi)


@family
class VonMises(DiagonalFamily):
    """Angles with density `exp(k cos(y - location)) / (2 pi I0(k))`, `k = exp(log_concentration)`.

    With `A = I1(k) / I0(k)`, in the coordinates `(location, log_concentration)`

        F    = diag(k A, k^2 (1 - A^2) - k A)
        F^-1 = diag(1 / (k A), 1 / (k^2 (1 - A^2) - k A))

    so with `d = targets - location` the natural gradient of the NLL is

        location:           -sin(d) / A
        log_concentration:  k (A - cos(d)) / (k^2 (1 - A^2) - k A)

    Targets are angles in radians, any number of turns; residuals go the shorter way round, and
    `crps` is that of angles. `mean` is the circular mean, `variance` the
    circular variance `1 - A`. `cdf` counts from the far side of the circle, `location - pi`, and
    `quantile` and `sample` answer within half a turn of the location.

    Args:
        location: predicted angles in radians, any real number.
        log_concentration: predicted natural logarithms of `k`.

    Example:
        >>> import jax.numpy as jnp
        >>> VonMises(jnp.zeros(1), jnp.zeros(1)).cdf(jnp.zeros(1))
        Array([0.5], dtype=float32)

    Reference:
        Mardia and Jupp (2000), Directional Statistics, sections 3.5 and 5.3.
    """

    location: Array
    log_concentration: Array

    support = "angles"
    units = "shift"

    @property
    def mean(self) -> Array:
        """The circular mean, `location`."""
        return self.location

    @property
    def variance(self) -> Array:
        """The circular variance `1 - A`, between 0 and 1."""
        return multiply_by_exp(bessel_gap(self.log_concentration), -self.log_concentration)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`ln(I0(k)) - k cos(d)`, plus `ln(2 pi)` with the constant."""
        # 1 - cos(d) = 2 sin(d/2)^2 keeps its digits for concentrated predictions.
        distance = 2 * jnp.square(jnp.sin(0.5 * (targets - self.location)))
        values = log_bessel_i0e(self.log_concentration) + multiply_by_exp(
            distance, self.log_concentration
        )
        return values + _LOG_2PI if constant else values

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`(k A, k^2 (1 - A^2) - k A)`."""
        log_k = self.log_concentration
        return Entry(1.0, log_k + log_bessel_ratio(log_k)), Entry(1.0, _log_curvature(log_k))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The closed forms of the class docstring, right for every finite input."""
        log_k = self.log_concentration
        difference = targets - self.location
        distance = 2 * jnp.square(jnp.sin(0.5 * difference))
        # k (A - cos d) = k (1 - cos d) - k (1 - A), with the larger of k and 1 taken out.
        log_scale = jnp.maximum(log_k, 0)
        value = distance * jnp.exp(log_k - log_scale) - bessel_gap(log_k) * jnp.exp(-log_scale)
        return {
            "location": Scaled(-jnp.sin(difference), -log_bessel_ratio(log_k)),
            "log_concentration": Scaled(value, log_scale - _log_curvature(log_k)),
        }

    def kl(self, other: Self) -> Array:
        """`ln(I0(k_q) / I0(k_p)) + A_p (k_p - k_q cos(location_p - location_q))`.

        As what the concentrations add and what the locations add, both never negative.
        """
        p, q = self, other
        distance = 2 * jnp.square(jnp.sin(0.5 * (p.location - q.location)))
        turns = multiply_by_exp(distance * bessel_ratio(p.log_concentration), q.log_concentration)
        return _divergence_of_shapes(p.log_concentration, q.log_concentration) + turns

    def cdf(self, targets: Array) -> Array:
        """The probability of the arc from `location - pi` to `targets`, by 64-node quadrature."""
        turn = jnp.round((targets - self.location) / (2 * math.pi))
        difference = targets - self.location - 2 * math.pi * turn
        return _centred_tails(self.log_concentration, difference)[0]

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf, within half a turn of the location."""
        log_k = self.log_concentration
        tail = jnp.minimum(probability, 1 - probability)
        half_turn = jnp.full_like(tail, math.pi)
        angle = smallest_float(
            lambda x: _centred_tails(log_k, x)[1] <= tail, jnp.zeros_like(tail), half_turn
        )
        angle = jnp.where(tail < 0.5, angle, 0)
        signed = self.location + jnp.where(probability < 0.5, -angle, angle)
        return jnp.where(tail >= 0, signed, jnp.nan)

    def draw(self, key: Array) -> Array:
        """Rejection from a wrapped Cauchy, within half a turn of the location."""
        dist = self.widen()
        angle = dist.location + _centred_sample(key, dist.log_concentration)
        return angle.astype(self.location.dtype)

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """The distribution of `y + shift`: turned by `shift`; `scale` must be None."""
        return type(self)(shift_alone(shift, scale, self.location), self.log_concentration)

    def crps(self, targets: Array) -> Array:
        """`E d(Y, targets) - E d(Y, Y') / 2` with the angle `d` between two directions.

        Reference:
            Grimit, Gneiting, Berrocal and Johnson (2006), The continuous ranked probability score
            for circular variables.
        """
        log_k = self.log_concentration
        to_target = _mean_distance(jnp.abs(self.residual(targets)), log_k)
        return to_target - 0.5 * _mean_difference(log_k)


def _log_curvature(log_k: Array) -> Array:
    """`ln(k^2 (1 - A^2) - k A)`, by its limit `k^2 / 2` where k is tiny."""
    is_small = log_k < -10
    body = jnp.log(bessel_curvature(jnp.where(is_small, 0, log_k)))
    return jnp.where(is_small, 2 * log_k - math.log(2), body)


def _divergence_of_shapes(log_p: Array, log_q: Array) -> Array:
    difference = log_q - log_p
    is_close = jnp.abs(difference) < 1
    near = exponential_bregman(bessel_curvature, log_p, jnp.where(is_close, log_q, log_p))
    normalizers = log_bessel_i0e(log_q) - log_bessel_i0e(log_p)
    return jnp.where(is_close, near, normalizers + bessel_gap(log_p) * jnp.expm1(difference))


@jax.custom_jvp
def _centred_tails(log_k: Array, difference: Array) -> tuple[Array, Array]:
    """The arcs on either side of an angle in [-pi, pi] from the location.

    Far from the location the integral runs outwards from the angle, so that a small tail is not a
    difference; closer than a standard deviation it runs from the location to the angle.
    """
    size, spread = jnp.abs(difference), jnp.exp(-0.5 * log_k)
    is_tail = size > spread
    nodes, weights = (add_node_axis(x, size) for x in gauss_legendre(64))
    # 6.5 standard deviations further the density is down by more than exp(-20).
    start = jnp.where(is_tail, size, 0)
    end = jnp.where(is_tail, jnp.minimum(size + 6.5 * spread, math.pi), size)
    width = jnp.maximum(end - start, 0)
    density = _density(log_k[None], start[None] + nodes * width[None])
    arc = width * jnp.sum(weights * density, axis=0)
    small = jnp.where(is_tail, arc, 0.5 - arc)
    large = jnp.where(is_tail, 1 - arc, 0.5 + arc)
    is_below = difference < 0
    return jnp.where(is_below, small, large), jnp.where(is_below, large, small)


def _density(log_k: Array, difference: Array) -> Array:
    distance = 2 * jnp.square(jnp.sin(0.5 * difference))
    return jnp.exp(-multiply_by_exp(distance, log_k) - log_bessel_i0e(log_k) - _LOG_2PI)


differentiate_tails(_centred_tails, _density)


def _mean_distance(angle: Array, log_k: Array) -> Array:
    """`E d(Y, angle)` for a centred `Y` and an angle in [0, pi], split where `d` has kinks."""
    # Beyond 14 standard deviations nothing is left to integrate.
    end = jnp.minimum(math.pi, 14 * jnp.exp(-0.5 * log_k))
    far, near = jnp.maximum(angle - math.pi, -end), jnp.minimum(angle, end)
    nodes, weights = (add_node_axis(x, angle) for x in gauss_legendre(64))

    def integral(lower: Array, upper: Array) -> Array:
        y = lower[None] + (upper - lower)[None] * nodes
        apart = jnp.abs(angle[None] - y)
        distance = jnp.minimum(apart, 2 * math.pi - apart)
        cosine_gap = 2 * jnp.square(jnp.sin(0.5 * y))
        log_density = -multiply_by_exp(cosine_gap, log_k[None]) - log_bessel_i0e(log_k)[None]
        values = distance * jnp.exp(log_density - _LOG_2PI)
        return (upper - lower) * jnp.sum(weights * values, axis=0)

    return integral(-end, far) + integral(far, near) + integral(near, end)


def _mean_difference(log_k: Array) -> Array:
    """`E d(Y, Y')`, whose angle has the density `I0(2 k cos(t/2)) / (2 pi I0(k)^2)`."""
    end = jnp.minimum(math.pi, 20 * jnp.exp(-0.5 * log_k))
    nodes, weights = (add_node_axis(x, log_k) for x in gauss_legendre(64))
    t = end[None] * nodes
    log_argument = log_k[None] + math.log(2) + jnp.log(jnp.cos(0.5 * t))
    gap = multiply_by_exp(4 * jnp.square(jnp.sin(0.25 * t)), log_k[None])
    log_density = log_bessel_i0e(log_argument) - 2 * log_bessel_i0e(log_k)[None] - gap
    return 2 * end * jnp.sum(weights * t * jnp.exp(log_density - _LOG_2PI), axis=0)


def _centred_sample(key: Array, log_k: Array) -> Array:
    """Best and Fisher (1979): wrapped Cauchy proposals, all elements until each has accepted."""
    k = jnp.exp(jnp.clip(log_k, -10, 14))
    root = jnp.sqrt(1 + 4 * jnp.square(k))
    # rho = (tau - sqrt(2 tau)) / (2 k) with tau = 1 + root, freed of its cancellation at small k.
    tau_root = jnp.sqrt(1 + root)
    rho = tau_root * 2 * k / ((root + 1) * (tau_root + math.sqrt(2)))
    r = (1 + jnp.square(rho)) / (2 * rho)

    def propose(state):
        key, angle, done = state
        key, *keys = jax.random.split(key, 4)
        u, v, sign = (jax.random.uniform(x, log_k.shape, log_k.dtype) for x in keys)
        cosine = jnp.cos(math.pi * u)
        f = (1 + r * cosine) / (r + cosine)
        c = k * (r - f)
        accepted = (c * (2 - c) > v) | (jnp.log(c / v) + 1 >= c)
        new = jnp.sign(sign - 0.5) * jnp.arccos(jnp.clip(f, -1, 1))
        return key, jnp.where(done, angle, new), done | accepted

    start = (key, jnp.zeros_like(k), jnp.zeros(k.shape, bool))
    _, angle, _ = lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)
    # An angle from its cosine loses half of its digits near 0; there the limit is a Gaussian, whose
    # variance differs by a fraction 1/(2k).
    normal = jax.random.normal(key, k.shape, k.dtype) * jnp.exp(-0.5 * log_k)
    return jnp.where(log_k > (12 if k.dtype == jnp.float64 else 7), normal, angle)
