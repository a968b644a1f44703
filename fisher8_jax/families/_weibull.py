"""The Weibull distribution: lifetimes whose hazard rises or falls with age."""

import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln, polygamma
from jax.typing import ArrayLike

from fisher8_jax._internal.bisection import smallest_float
from fisher8_jax._internal.deviance import exp_excess, log_ratio
from fisher8_jax._internal.incomplete import gamma_tails
from fisher8_jax._internal.numerics import Scaled, at_least_float32, multiply_by_exp
from fisher8_jax._internal.special import log_gamma_bregman, log_rising
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import Entry
from fisher8_jax.families._targets import scale_alone
from fisher8_jax.families._triangular import Rows, TriangularFamily

_SHIFT = 1 - float(np.euler_gamma)
_SPREAD = math.pi**2 / 6
_LARGEST_PLAIN_LOG = 80.0


@family
class Weibull(TriangularFamily):
    """`P(Y > y) = exp(-(y / scale)^k)`, `scale = exp(log_scale)`, `k = exp(log_concentration)`.

    In the coordinates `(log_scale, log_concentration)` the Fisher information is not diagonal. With
    `c = 1 - euler_gamma`

        F    = | k^2        -k c       |
               | -k c   pi^2/6 + c^2   |

        F^-1 = (6/pi^2) * | (pi^2/6 + c^2) / k^2    c / k |
                          |        c / k              1   |

    Args:
        log_scale: predicted natural logarithms of the scale, the 63 % quantile.
        log_concentration: predicted natural logarithms of the shape `k`.

    Example:
        >>> import jax.numpy as jnp
        >>> Weibull(jnp.zeros(1), jnp.zeros(1)).nll(jnp.full(1, 2.0))  # the unit exponential
        Array([2.], dtype=float32)

    Reference:
        Gupta and Kundu (2006), On the comparison of Fisher information of the Weibull and GE
        distributions; re-derived in these coordinates in the documentation.
    """

    log_scale: Array
    log_concentration: Array

    support = "positive"
    units = "scale"

    @property
    def concentration(self) -> Array:
        """`exp(log_concentration)`, the shape."""
        return jnp.exp(self.log_concentration)

    @property
    def mean(self) -> Array:
        """`scale * Gamma(1 + 1/k)`."""
        return jnp.exp(self.log_scale + _log_gamma_of_one_and(jnp.exp(-self.log_concentration)))

    @property
    def variance(self) -> Array:
        """`scale^2 (Gamma(1 + 2/k) - Gamma(1 + 1/k)^2)`."""
        log_square = 2 * _log_gamma_of_one_and(jnp.exp(-self.log_concentration))
        ratio = _log_square_ratio(-self.log_concentration)
        return jnp.exp(2 * self.log_scale + log_square) * jnp.expm1(ratio)

    def log_hazard(self, targets: Array) -> tuple[Array, Array]:
        """`k ln(targets / scale)`, finite everywhere, and where the targets are positive."""
        dist, targets = self.prepare(targets)
        is_inside = targets > 0
        difference = log_ratio(jnp.where(is_inside, targets, 1), dist.log_scale)
        return multiply_by_exp(difference, dist.log_concentration), is_inside

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`exp(w) - w - log_concentration + ln(targets)`, `w = k ln(targets / scale)`.

        Infinite outside the support. No term is a constant, so `constant` changes nothing.
        """
        w, is_inside = self.log_hazard(targets)
        log_targets = jnp.log(jnp.where(is_inside, targets, 1))
        return jnp.where(is_inside, jnp.exp(w) - w - self.log_concentration + log_targets, jnp.inf)

    def fisher_rows(self) -> Rows:
        """`k` above `-c` and `pi / sqrt 6`."""
        return (Entry(1.0, self.log_concentration),), (Entry(-_SHIFT), Entry(math.sqrt(_SPREAD)))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """From the score `(k (1 - exp(w)), w expm1(w) - 1)`; nan outside the support."""
        log_k = at_least_float32(self.log_concentration)
        w, is_inside = self.log_hazard(targets)
        w = jnp.where(is_inside, w, jnp.nan)
        is_huge = w > _LARGEST_PLAIN_LOG
        plain = jnp.where(is_huge, 0, w)
        # Divided by exp(w) where that overflows.
        scale = jnp.where(is_huge, -1, -jnp.expm1(plain))
        shape = jnp.where(is_huge, w, plain * jnp.expm1(plain) - 1)
        log_concentration = (_SHIFT * scale + shape) / _SPREAD
        taken_out = jnp.where(is_huge, w, 0)
        return {
            "log_scale": Scaled(scale + _SHIFT * log_concentration, taken_out - log_k),
            "log_concentration": Scaled(log_concentration, taken_out),
        }

    def kl(self, other: Self) -> Array:
        """The closed form of Bauckhage (2013), as two parts that are never negative.

        With `r` the ratio of the shapes, `G = lgamma(1 + r)` and `s` the shift of the scales it is
        `exp(s + G) - 1 - (s + G)`, plus the Bregman divergence of `lgamma` from 1 to `r`.
        """
        p, q = self, other
        difference = q.log_concentration - p.log_concentration
        shift = multiply_by_exp(p.log_scale - q.log_scale, q.log_concentration)
        log_gamma = _log_gamma_of_one_and(jnp.exp(difference))
        bregman = log_gamma_bregman(jnp.zeros_like(difference), difference)
        return (
            exp_excess(shift + log_gamma) + bregman + jnp.exp(difference) * exp_excess(-difference)
        )

    def cdf(self, targets: Array) -> Array:
        """`1 - exp(-(targets / scale)^k)`, 0 for targets that are not positive."""
        w, is_inside = self.log_hazard(targets)
        # A nan stays one.
        outside = jnp.where(jnp.isnan(targets), jnp.nan, jnp.zeros_like(w))
        return jnp.where(is_inside, -jnp.expm1(-jnp.exp(w)), outside)

    def quantile(self, probability: Array) -> Array:
        """`scale * (-ln(1 - p))^(1/k)`; `probability` broadcasts against the batch."""
        log_hazard = jnp.log(-jnp.log1p(-probability))
        return jnp.exp(self.log_scale + log_hazard * jnp.exp(-self.log_concentration))

    def draw(self, key: Array) -> Array:
        """`scale * e^(1/k)` with a unit exponential `e`."""
        log_e = jnp.log(jax.random.exponential(key, self.batch_shape, self.log_scale.dtype))
        return jnp.exp(self.log_scale + log_e * jnp.exp(-self.log_concentration))

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """`log_scale + ln(scale)`; a shift would leave the family."""
        log_scale = scale_alone("Weibull", shift, scale, self.log_scale)
        return type(self)(self.log_scale + log_scale, self.log_concentration)

    def scale_variance(self, factor: Array) -> Self:
        """The concentration with `factor` times the squared relative spread, by bisection."""
        dist = self.widen()
        log_inverse = -dist.log_concentration
        wanted = jnp.log1p(factor * jnp.expm1(_log_square_ratio(log_inverse)))
        ends = log_inverse - 12, log_inverse + 12
        log_k = -smallest_float(lambda x: _log_square_ratio(x) >= wanted, *ends)
        means = gammaln(1 + jnp.exp(log_inverse)) - gammaln(1 + jnp.exp(-log_k))
        return type(self)(dist.log_scale + means, log_k)

    def crps(self, targets: Array) -> Array:
        """`y + mean (2^(-1/k) - 2 P(1/k, (y/scale)^k))`, its parts less 1 for large `k`."""
        w, _ = self.log_hazard(targets)
        log_k = self.log_concentration
        inverse = jnp.exp(-log_k)
        log_gamma = _log_gamma_of_one_and(inverse)
        lower, upper = gamma_tails(-log_k, w + log_k)
        far = jnp.exp(w * inverse) + jnp.exp(log_gamma) * (jnp.exp2(-inverse) - 2 * lower)
        # Each of three terms is close to 1, and what they have in common cancels.
        near = jnp.expm1(w * inverse) + jnp.expm1(log_gamma - inverse * math.log(2))
        near = near - 2 * jnp.expm1(log_gamma) + 2 * jnp.exp(log_gamma) * upper
        return multiply_by_exp(jnp.where(log_k > 0, near, far), self.log_scale)


def _log_gamma_of_one_and(x: Array) -> Array:
    """`ln(Gamma(1 + x))`, accurate for small `x`, too."""
    is_small = x < 1
    small = jnp.where(is_small, x, 0.5)
    return jnp.where(is_small, log_rising(jnp.ones_like(x), small), gammaln(1 + x))


def _log_square_ratio(log_inverse: Array) -> Array:
    """`ln(E[Y^2] / E[Y]^2)` for `1/k = exp(log_inverse)`; it rises.

    With `x = 1/k` the second difference of `lgamma` at 1, which for small `x` is the integral

        x^2 integral_0^1 v (trigamma(1 + x v) + trigamma(1 + 2 x - x v)) dv
    """
    inverse = jnp.exp(log_inverse)
    is_small = inverse < 1
    small = jnp.where(is_small, inverse, 0)
    nodes, weights = np.polynomial.legendre.leggauss(6 if small.dtype == jnp.float32 else 16)
    total = jnp.zeros_like(small)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        pair = polygamma(1, 1 + float(node) * small) + polygamma(1, 1 + float(2 - node) * small)
        total = total + float(weight * node) * pair
    large = gammaln(1 + 2 * inverse) - 2 * gammaln(1 + inverse)
    return jnp.where(is_small, total * jnp.square(small), large)
