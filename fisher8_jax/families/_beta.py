"""The Beta distribution by mean and concentration: targets strictly between 0 and 1."""

import math
from collections.abc import Callable
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.bisection import smallest_float, tail_reaches
from fisher8_jax._internal.deviance import (
    beta_deviance,
    log_relative,
    logit_difference,
    relative_shift,
)
from fisher8_jax._internal.incomplete import beta_density, beta_tails
from fisher8_jax._internal.numerics import Scaled, multiply_by_exp
from fisher8_jax._internal.special import (
    digamma_remainder,
    log_gamma_bregman,
    log_gamma_remainder,
    trigamma_remainder,
)
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import Entry
from fisher8_jax.families._targets import safe_logit
from fisher8_jax.families._triangular import Rows, TriangularFamily


@family
class Beta(TriangularFamily):
    """`Beta(m c, (1-m) c)` with mean `m = sigmoid(logit_mean)` and `c = exp(log_concentration)`.

    With `n = 1 - m` and `t(x) = x^2 trigamma(x) - x`, which lies between 1/2 and 1, write
    `a = t(m c)`, `b = t(n c)` and `s = t(c)`. In the coordinates `(logit_mean, log_concentration)`

        F    = | m n c + n^2 a + m^2 b     n a - m b |
               |       n a - m b           a + b - s |

        F^-1 = (1 / D) * |   a + b - s           m b - n a          |
                         |   m b - n a      m n c + n^2 a + m^2 b   |

        D = m n c (a + b - s) + a b - s (n^2 a + m^2 b)

    Args:
        logit_mean: predicted logits of the mean.
        log_concentration: predicted natural logarithms of `alpha + beta`; the variance is
            `m n / (1 + c)`.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = Beta(jnp.zeros(1), jnp.log(jnp.full(1, 2.0)))  # the uniform distribution
        >>> dist.nll(jnp.full(1, 0.3)).round(6) + 0.0
        Array([0.], dtype=float32)

    Reference:
        Ferrari and Cribari-Neto (2004), Beta regression for modelling rates and proportions;
        arranged without cancellation in the documentation.
    """

    logit_mean: Array
    log_concentration: Array

    support = "unit interval"
    starts: ClassVar = {"logit_mean": safe_logit}

    @property
    def mean(self) -> Array:
        """`sigmoid(logit_mean)`."""
        return jax.nn.sigmoid(self.logit_mean)

    @property
    def variance(self) -> Array:
        """`mean (1 - mean) / (1 + concentration)`."""
        spread = jax.nn.sigmoid(self.logit_mean) * jax.nn.sigmoid(-self.logit_mean)
        return spread / (1 + jnp.exp(self.log_concentration))

    @property
    def alpha(self) -> Array:
        """`mean * concentration`."""
        return jnp.exp(self.log_alpha)

    @property
    def beta(self) -> Array:
        """`(1 - mean) * concentration`."""
        return jnp.exp(self.log_beta)

    @property
    def log_alpha(self) -> Array:
        """The natural logarithm of `alpha`."""
        return self.log_concentration + jax.nn.log_sigmoid(self.logit_mean)

    @property
    def log_beta(self) -> Array:
        """The natural logarithm of `beta`."""
        return self.log_concentration + jax.nn.log_sigmoid(-self.logit_mean)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`ln Beta(alpha, beta) - (alpha - 1) ln(y) - (beta - 1) ln(1 - y)`.

        Infinite outside (0, 1). No term is a constant, so `constant` changes nothing.
        """
        is_inside = (targets > 0) & (targets < 1)
        targets = jnp.where(is_inside, targets, 0.5)
        log_y, log_not_y = jnp.log(targets), jnp.log1p(-targets)
        remainders = (
            log_gamma_remainder(self.log_alpha)
            + log_gamma_remainder(self.log_beta)
            - log_gamma_remainder(self.log_concentration)
        )
        deviance = _deviance(self.logit_mean, self.log_concentration, targets)
        return jnp.where(is_inside, remainders + deviance + log_y + log_not_y, jnp.inf)

    def fisher_rows(self) -> Rows:
        """From the determinant, which is free of cancellation."""
        first_sq, mixed, determinant = _information(self)
        logit, first = self.logit_mean, jnp.sqrt(first_sq)
        log_rest = jax.nn.log_sigmoid(logit) + jax.nn.log_sigmoid(-logit)
        log_rest = log_rest + jax.nn.softplus(self.log_concentration)
        own = Entry(jnp.sqrt(determinant) / first, 0.5 * log_rest)
        return (Entry(first),), (Entry(mixed / first), own)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """From the scores `A`, `B` of `ln(alpha)`, `ln(beta)`; nan outside the support.

        In the words of the class docstring, without a difference of nearly equal terms,

            logit_mean:         (A (b - n s) - B (a - m s)) / D
            log_concentration:  (m n c (A + B) + m b A + n a B) / D
        """
        is_inside = (targets > 0) & (targets < 1)
        targets = jnp.where(is_inside, targets, jnp.nan)
        # exp(log_scale) is taken out of both scores, because c times a logarithm may overflow.
        log_c = self.log_concentration
        log_scale = jnp.maximum(log_c, 0)
        along_a, along_b = _score_of_shapes(self, targets, log_scale)
        m, n = self.mean, jax.nn.sigmoid(-self.logit_mean)
        a, b = trigamma_remainder(self.log_alpha), trigamma_remainder(self.log_beta)
        rest_a, rest_b, determinant = _rests(self, a, b)
        logit = rest_b * along_a - rest_a * along_b
        spread = m * n * jnp.exp(log_c) * (along_a + along_b) + m * b * along_a + n * a * along_b
        log_total = jax.nn.softplus(log_c)
        scale = 1 / (m * n * determinant)
        return {
            "logit_mean": Scaled(multiply_by_exp(logit * scale, -log_total), log_scale),
            "log_concentration": Scaled(multiply_by_exp(spread * scale, -log_total), log_scale),
        }

    def kl(self, other: Self) -> Array:
        """The closed form: what the shapes add, and `c_q` times the divergence of the means."""
        p, q = self, other
        shapes = (
            log_gamma_bregman(p.log_alpha, q.log_alpha)
            + log_gamma_bregman(p.log_beta, q.log_beta)
            - log_gamma_bregman(p.log_concentration, q.log_concentration)
        )
        return shapes + beta_deviance(q.log_alpha, q.log_beta, p.logit_mean - q.logit_mean)

    def cdf(self, targets: Array) -> Array:
        """The regularised incomplete beta function."""
        is_outside = (targets <= 0) | (targets >= 1)
        shift = logit_difference(jnp.where(is_outside, 0.5, targets), self.logit_mean)
        inside = beta_tails(self.log_alpha, self.log_beta, shift)[0]
        return jnp.where(is_outside, jnp.clip(targets, 0, 1), inside)

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf in the logit of y; broadcasts against the batch."""
        logit, log_alpha, log_beta = self.logit_mean, self.log_alpha, self.log_beta
        end = jnp.full_like(probability, 1e30)
        shift = smallest_float(
            lambda x: tail_reaches(beta_tails(log_alpha, log_beta, x), probability), -end, end
        )
        # mean (1 + x), because the logit itself has too few digits for a concentrated beta.
        mean = jax.nn.sigmoid(logit)
        value = jnp.where(jnp.abs(shift) < 1, mean + mean * relative_shift(logit, shift)[0], 0)
        value = jnp.where(jnp.abs(shift) < 1, value, jax.nn.sigmoid(logit + shift))
        value = jnp.where(probability >= 1, 1, jnp.where(probability <= 0, 0, value))
        return jnp.where((probability >= 0) & (probability <= 1), value, jnp.nan)

    def draw(self, key: Array) -> Array:
        """Two gamma draws, compared through their logarithms."""
        return jax.random.beta(key, self.alpha, self.beta, dtype=self.logit_mean.dtype)

    def scale_variance(self, factor: Array) -> Self:
        """`(1 + c) / factor - 1` in place of `c`; nan where no Beta has that variance."""
        dist = self.widen()
        total = (1 + jnp.exp(dist.log_concentration)) / factor
        return type(self)(dist.logit_mean, jnp.log(total - 1))

    def crps(self, targets: Array) -> Array:
        """`(y - mean) (2 F(y) - 1) + 2 g(y) / c - G`, `G` half the mean difference.

        `g(y) = y^alpha (1-y)^beta / Beta(alpha, beta)`.
        """
        shift = logit_difference(targets, self.logit_mean)
        lower, upper = beta_tails(self.log_alpha, self.log_beta, shift)
        residual = self.mean * relative_shift(self.logit_mean, shift)[0]
        density = beta_density(self.log_alpha, self.log_beta, shift)

        def log_beta_of_two(log_x: Array) -> Array:  # plus 2 x ln 2, which cancels in the sum
            twice = log_gamma_remainder(log_x + math.log(2))
            return 2 * log_gamma_remainder(log_x) - twice

        log_half_gini = log_beta_of_two(self.log_concentration) - (
            log_beta_of_two(self.log_alpha) + log_beta_of_two(self.log_beta)
        )
        peak = multiply_by_exp(density - jnp.exp(log_half_gini), -self.log_concentration)
        return residual * (lower - upper) + 2 * peak


@jax.custom_jvp
def _deviance(logit_mean: Array, log_concentration: Array, targets: Array) -> Array:
    """`c KL(m || y)` of two Bernoullis, with derivatives that do not cancel."""
    log_alpha = log_concentration + jax.nn.log_sigmoid(logit_mean)
    log_beta = log_concentration + jax.nn.log_sigmoid(-logit_mean)
    return beta_deviance(log_alpha, log_beta, logit_difference(targets, logit_mean))


@_deviance.defjvp
def _deviance_jvp(primals, tangents):
    logit_mean, log_concentration, targets = primals
    value = _deviance(*primals)
    shift = logit_difference(targets, logit_mean)
    m, n = jax.nn.sigmoid(logit_mean), jax.nn.sigmoid(-logit_mean)
    c = jnp.exp(log_concentration)
    residual = m * relative_shift(logit_mean, shift)[0]  # y - m
    along_targets = c * residual / (targets * (1 - targets))
    tangent = -c * m * n * shift * tangents[0] + value * tangents[1] + along_targets * tangents[2]
    return value, tangent


def _information(dist: Beta) -> tuple[Array, Array, Array]:
    """The first column of `F`, and its determinant divided by `m n (1 + c)`."""
    m, n = jax.nn.sigmoid(dist.logit_mean), jax.nn.sigmoid(-dist.logit_mean)
    a, b = trigamma_remainder(dist.log_alpha), trigamma_remainder(dist.log_beta)
    of_means = m * n * jnp.exp(dist.log_concentration) + jnp.square(n) * a + jnp.square(m) * b
    return of_means, n * a - m * b, _rests(dist, a, b)[2]


def _rests(dist: Beta, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """`a - m s`, `b - n s`, and the determinant divided by `m n (1 + c)`.

    Arranged around the smaller of m and n; t decreases, so s is at most a and b.
    """
    m, n = jax.nn.sigmoid(dist.logit_mean), jax.nn.sigmoid(-dist.logit_mean)
    log_c = dist.log_concentration
    s, c = trigamma_remainder(log_c), jnp.exp(log_c)
    small, large = jnp.minimum(m, n), jnp.maximum(m, n)
    near, far = jnp.where(m < n, a, b), jnp.where(m < n, b, a)
    gap = _quotient(trigamma_remainder, log_c, small, far - s)
    # a b - s (n^2 a + m^2 b)
    rest = (near * gap + s * (2 * near - small * (near + far))) / large
    of_near, of_far = near - small * s, small * (gap + s)
    return (
        jnp.where(m < n, of_near, of_far),
        jnp.where(m < n, of_far, of_near),
        (c * (a + b - s) + rest) / (1 + c),
    )


def _score_of_shapes(dist: Beta, targets: Array, log_scale: Array) -> tuple[Array, Array]:
    """The derivatives of the NLL in `ln(alpha)` and `ln(beta)`, over `exp(log_scale)`.

    `alpha (ln(m / y) + digamma(alpha) - ln(alpha) - digamma(c) + ln(c))`, and so for beta.
    """
    m, n = jax.nn.sigmoid(dist.logit_mean), jax.nn.sigmoid(-dist.logit_mean)
    log_c = dist.log_concentration
    small = jnp.minimum(m, n)
    u_a, u_b, u_c = (digamma_remainder(x) for x in (dist.log_alpha, dist.log_beta, log_c))
    # For the larger of the two, u - large u_c is (u - u_c) + small u_c.
    far = jnp.where(m < n, u_b, u_a)
    settled = small * (_quotient(digamma_remainder, log_c, small, far - u_c) + u_c)
    settled_a = jnp.where(m < n, u_a - m * u_c, settled)
    settled_b = jnp.where(m < n, settled, u_b - n * u_c)
    shift = logit_difference(targets, dist.logit_mean)
    log_up, log_down = log_relative(dist.logit_mean, shift)
    rest, c = jnp.exp(-log_scale), jnp.exp(log_c - log_scale)
    return rest * settled_a - c * m * log_up, rest * settled_b - c * n * log_down


def _quotient(
    function: Callable[[Array], Array], log_c: Array, small: Array, difference: Array
) -> Array:
    """`(f((1 - small) c) - f(c)) / small`, by the derivative where the difference has no digits.

    The derivative in the middle is wrong by a fraction of about `small^2 / 24`.
    """
    is_close = small < (1e-5 if small.dtype == jnp.float64 else 1e-2)
    distance = jnp.log1p(-jnp.where(is_close, small, 0))
    middle = log_c + 0.5 * distance
    _, slope = jax.jvp(function, (middle,), (jnp.ones_like(middle),))
    scale = jnp.where(is_close, distance / small, 0)
    return jnp.where(is_close, slope * scale, difference / small)
