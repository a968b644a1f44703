"""The Beta distribution by mean and concentration: targets strictly between 0 and 1."""

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc, betaln

from fisher8_jax._numerics import Scaled, multiply_by_exp
from fisher8_jax._special import digamma_remainder, log_gamma_remainder, trigamma_remainder
from fisher8_jax.families._bisection import broadcast_probability, invert_increasing
from fisher8_jax.families._contract import ScalarFamily, family
from fisher8_jax.families._fisher_factor import triangular_factor


@family
class Beta(ScalarFamily):
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
        dist, targets = self.prepare(targets)
        is_inside = (targets > 0) & (targets < 1)
        targets = jnp.where(is_inside, targets, 0.5)
        log_y, log_not_y = jnp.log(targets), jnp.log1p(-targets)
        remainders = (
            log_gamma_remainder(dist.log_alpha)
            + log_gamma_remainder(dist.log_beta)
            - log_gamma_remainder(dist.log_concentration)
        )
        divergence = multiply_by_exp(
            _bernoulli_divergence(dist.logit_mean, log_y, log_not_y), dist.log_concentration
        )
        return jnp.where(is_inside, remainders + divergence + log_y + log_not_y, jnp.inf)

    def natural(self, cotangent: Self) -> Self:
        """The inverse Fisher information of the class docstring times `cotangent`."""
        dist, cotangent = self.widen(), cotangent.widen()
        return type(self)(*_solve(dist, cotangent.logit_mean, cotangent.log_concentration))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """From the score with its leading terms cancelled by hand; nan outside the support."""
        dist, targets = self.prepare(targets)
        is_inside = (targets > 0) & (targets < 1)
        targets = jnp.where(is_inside, targets, jnp.nan)
        log_y, log_not_y = jnp.log(targets), jnp.log1p(-targets)
        m, n = dist.mean, jax.nn.sigmoid(-dist.logit_mean)
        u_alpha, u_beta = digamma_remainder(dist.log_alpha), digamma_remainder(dist.log_beta)
        # exp(log_scale) is taken out of both scores, because c times a divergence may overflow.
        log_scale = jnp.maximum(dist.log_concentration, 0)
        rest = jnp.exp(-log_scale)
        c = jnp.exp(dist.log_concentration - log_scale)
        logit = c * m * n * (dist.logit_mean - log_y + log_not_y) + rest * (
            n * u_alpha - m * u_beta
        )
        divergence = _bernoulli_divergence(dist.logit_mean, log_y, log_not_y)
        remainders = u_alpha + u_beta - digamma_remainder(dist.log_concentration)
        natural = _solve(dist, logit, c * divergence + rest * remainders)
        return {
            "logit_mean": Scaled(natural[0], log_scale),
            "log_concentration": Scaled(natural[1], log_scale),
        }

    def fisher(self, tangent: Self) -> Self:
        """The Fisher information of the class docstring times `tangent`."""
        dist, tangent = self.widen(), tangent.widen()
        f_mm, f_mc, f_cc, _ = _information(dist)
        dm, dc = tangent.logit_mean, tangent.log_concentration
        return type(self)(f_mm * dm + f_mc * dc, f_mc * dm + f_cc * dc)

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """The quadratic form of `F`."""
        dist, tangent = self.widen(), tangent.widen()
        f_mm, f_mc, f_cc, _ = _information(dist)
        dm, dc = tangent.logit_mean, tangent.log_concentration
        return f_mm * jnp.square(dm) + 2 * f_mc * dm * dc + f_cc * jnp.square(dc)

    def fisher_factor(self) -> Array:
        """From the determinant, which is free of cancellation."""
        dist = self.widen()
        f_mm, f_mc, _, determinant = _information(dist)
        logit = dist.logit_mean
        log_rest = jax.nn.log_sigmoid(logit) + jax.nn.log_sigmoid(-logit)
        log_rest = log_rest + jax.nn.softplus(dist.log_concentration)
        first = jnp.sqrt(f_mm)
        own = jnp.sqrt(determinant) * jnp.exp(0.5 * log_rest) / first
        return triangular_factor((first,), (f_mc / first, own))

    def kl(self, other: Self) -> Array:
        """The closed form, through the remainders of the gamma functions."""
        p, q = self.widen(), other.widen()

        def remainder(function, dist):
            return (
                function(dist.log_alpha)
                + function(dist.log_beta)
                - function(dist.log_concentration)
            )

        normalizers = remainder(log_gamma_remainder, q) - remainder(log_gamma_remainder, p)
        total = multiply_by_exp(
            _bernoulli_divergence(
                q.logit_mean, jax.nn.log_sigmoid(p.logit_mean), jax.nn.log_sigmoid(-p.logit_mean)
            ),
            q.log_concentration,
        )

        def slope(log_p: Array, log_q: Array) -> Array:
            return digamma_remainder(log_p) * -jnp.expm1(log_q - log_p)

        slopes = (
            slope(p.log_alpha, q.log_alpha)
            + slope(p.log_beta, q.log_beta)
            - slope(p.log_concentration, q.log_concentration)
        )
        return normalizers + slopes + total

    def cdf(self, targets: Array) -> Array:
        """The regularised incomplete beta function; it has no derivative in the parameters."""
        dist, targets = self.prepare(targets)
        return betainc(dist.alpha, dist.beta, jnp.clip(targets, 0, 1))

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf in the logit of y; broadcasts against the batch."""
        dist = self.widen()
        probability, alpha, beta = broadcast_probability(
            probability, self.batch_shape, dist.alpha, dist.beta
        )
        width = 700.0 if probability.dtype == jnp.float64 else 80.0
        logit = invert_increasing(
            lambda x: betainc(alpha, beta, jax.nn.sigmoid(x)),
            probability,
            jnp.full_like(probability, -width),
            jnp.full_like(probability, width),
        )
        value = jnp.where(probability >= 1, 1, jax.nn.sigmoid(logit))
        return jnp.where(probability <= 0, 0, value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Two gamma draws, compared through their logarithms."""
        shape = (*sample_shape, *self.batch_shape)
        alpha, beta = (jnp.broadcast_to(x, shape) for x in (self.alpha, self.beta))
        return jax.random.beta(key, alpha, beta, shape, self.logit_mean.dtype)

    def scale_variance(self, factor: Array) -> Self:
        """`(1 + c) / factor - 1` in place of `c`; nan where no Beta has that variance."""
        dist = self.widen()
        total = (1 + jnp.exp(dist.log_concentration)) / factor
        return type(self)(dist.logit_mean, jnp.log(total - 1))

    def crps(self, targets: Array) -> Array:
        """`y (2 F(y) - 1) + mean (1 - 2 F_{alpha+1}(y)) - G`, `G` half the mean difference."""
        dist, targets = self.prepare(targets)
        alpha, beta, c = dist.alpha, dist.beta, jnp.exp(dist.log_concentration)
        below, below_next = betainc(alpha, beta, targets), betainc(alpha + 1, beta, targets)
        log_half_gini = betaln(c, c) - betaln(alpha, alpha) - betaln(beta, beta)
        spread = 2 / c * jnp.exp(log_half_gini)
        return targets * (2 * below - 1) + dist.mean * (1 - 2 * below_next) - spread


def _bernoulli_divergence(logit: Array, log_y: Array, log_not_y: Array) -> Array:
    """`KL(Bernoulli(sigmoid(logit)) || Bernoulli(y))`."""
    m, n = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    return m * (jax.nn.log_sigmoid(logit) - log_y) + n * (jax.nn.log_sigmoid(-logit) - log_not_y)


def _information(dist: Beta) -> tuple[Array, Array, Array, Array]:
    """The three entries of `F` and its determinant divided by `m n (1 + c)`."""
    m, n = jax.nn.sigmoid(dist.logit_mean), jax.nn.sigmoid(-dist.logit_mean)
    a, b = trigamma_remainder(dist.log_alpha), trigamma_remainder(dist.log_beta)
    s, c = trigamma_remainder(dist.log_concentration), jnp.exp(dist.log_concentration)
    f_cc = a + b - s
    # a b - s (n^2 a + m^2 b), arranged around the smaller of m and n; t decreases, so s <= a, b.
    small, large = jnp.minimum(m, n), jnp.maximum(m, n)
    near, far = jnp.where(m < n, a, b), jnp.where(m < n, b, a)
    gap = jnp.maximum(far - s, 0) / small
    rest = (near * gap + s * (2 * near - small * (near + far))) / large
    determinant = (c * f_cc + rest) / (1 + c)
    return m * n * c + jnp.square(n) * a + jnp.square(m) * b, n * a - m * b, f_cc, determinant


def _solve(dist: Beta, logit_mean: Array, log_concentration: Array) -> tuple[Array, Array]:
    f_mm, f_mc, f_cc, determinant = _information(dist)
    m, n = jax.nn.sigmoid(dist.logit_mean), jax.nn.sigmoid(-dist.logit_mean)
    # D = m n (1 + c) determinant; 1 + c = exp(softplus(log_concentration)).
    scale = 1 / (m * n * determinant)
    log_total = jax.nn.softplus(dist.log_concentration)

    def finish(x: Array) -> Array:
        return multiply_by_exp(x * scale, -log_total)

    return (
        finish(f_cc * logit_mean - f_mc * log_concentration),
        finish(f_mm * log_concentration - f_mc * logit_mean),
    )
