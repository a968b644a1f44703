"""The Student-t with fixed degrees of freedom: outliers keep a bounded influence."""

import abc
import math
from typing import TYPE_CHECKING, ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.bisection import smallest_float
from fisher8_jax._internal.checks import check_positive
from fisher8_jax._internal.deviance import exp_excess
from fisher8_jax._internal.incomplete import beta_tails, differentiate_tails
from fisher8_jax._internal.numerics import Scaled, multiply_by_exp
from fisher8_jax._internal.special import digamma_remainder, log_gamma_remainder
from fisher8_jax.families._contract import family, static_field
from fisher8_jax.families._diagonal import DiagonalFamily, Entry
from fisher8_jax.families._location_scale import LocationScale
from fisher8_jax.families._quadrature import add_node_axis, expectation, sinh_sinh, sinh_sinh_end

# Beyond it ln(1 + z^2) is 2 ln|z| to double precision.
_LARGEST_PLAIN_LOG_Z = 20.0


class StudentFamily(LocationScale):
    """What follows from `location`, `log_scale` and `df`, be they given or predicted."""

    if TYPE_CHECKING:  # A field or a property.

        @property
        def df(self) -> Array | float: ...

    @abc.abstractmethod
    def log_df_like(self, like: Array) -> Array:
        """`ln(df)` beside an array of the batch shape, in its dtype if `df` is a number."""

    @property
    def _df(self) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.df, self.log_scale.dtype), self.log_scale.shape)

    @property
    def noise_std(self) -> Array:
        """`sqrt(df / (df - 2))` where `df > 2`, else infinite (nan for `df <= 1`)."""
        return jnp.sqrt(student_variance(jnp.zeros_like(self._df), self._df))

    @property
    def center(self) -> Array:
        """`location`: the median, and the mean where there is one."""
        return self.location

    @property
    def variance(self) -> Array:
        """`scale^2 df / (df - 2)` where `df > 2`, else infinite (nan for `df <= 1`)."""
        return student_variance(self.log_scale, self._df)

    def kl(self, other: Self) -> Array:
        """`KL(self || other)` by sinh-sinh quadrature with 129 nodes centred on `self`.

        Accurate to about 1e-9 as long as the other scale is not smaller than a tenth of this one.
        """
        return student_kl(self, self._df, other, other._df)

    def cdf(self, targets: Array) -> Array:
        """The regularised incomplete beta function, right up to the Gaussian limit."""
        z = multiply_by_exp(targets - self.location, -self.log_scale)
        return t_tails(self.log_df_like(z), z)[0]

    def quantile(self, probability: Array) -> Array:
        """By bisection of the cdf; `probability` broadcasts against the batch."""
        z = standard_t_quantile(probability, self.log_df_like(probability))
        return self.location + multiply_by_exp(z, self.log_scale)

    def draw(self, key: Array) -> Array:
        """`location + scale * t`."""
        noise = jax.random.t(key, self.df, self.batch_shape, self.location.dtype)
        return self.location + self.scale * noise

    def crps(self, targets: Array) -> Array:
        """The closed form of Jordan, Krueger and Lerch (2019); nan for `df <= 1`."""
        return student_crps(self, self.log_df_like(targets), targets)


@family
class StudentT(StudentFamily, DiagonalFamily):
    """`location + scale * t` with `t` of `df` degrees of freedom and `scale = exp(log_scale)`.

    In the coordinates `(location, log_scale)` the Fisher information and its inverse are

        F    = diag((df + 1) / (df + 3) * exp(-2 log_scale), 2 df / (df + 3))
        F^-1 = diag((df + 3) / (df + 1) * exp(2 log_scale), (df + 3) / (2 df))

    so with `z = (targets - location) / scale` the natural gradient of the NLL is

        location:   (df + 3) / (df + z^2) * (location - targets)
        log_scale:  (df + 3) (1 - z^2) / (2 (df + z^2))

    both of which stay bounded for outliers.

    Args:
        location: predicted centres, the mean where `df > 1`.
        log_scale: predicted natural logarithms of the scale (not of the standard deviation).
        df: degrees of freedom, a positive number that is not learned.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = StudentT(jnp.zeros(1), jnp.zeros(1), df=3.0)
        >>> dist.mean, dist.variance
        (Array([0.], dtype=float32), Array([3.], dtype=float32))

    Reference:
        Lange, Little and Taylor (1989), Robust statistical modeling using the t distribution,
        appendix B.
    """

    location: Array
    log_scale: Array
    df: float = static_field(default=4.0)

    variance_field: ClassVar[tuple[str, float]] = ("log_scale", 0.5)
    fisher_depends_on: ClassVar[tuple[str, ...]] = ("log_scale",)

    def __post_init__(self) -> None:
        check_positive("df", self.df)

    def log_df_like(self, like: Array) -> Array:
        """The same number everywhere."""
        return jnp.full_like(like, math.log(self.df))

    def with_location_scale(self, location: Array, log_scale: Array) -> Self:
        """A Student-t of this location and scale and the same degrees of freedom."""
        return type(self)(location, log_scale, self.df)

    @property
    def mean(self) -> Array:
        """`location` where `df > 1`, else nan."""
        return self.location if self.df > 1 else jnp.full_like(self.location, jnp.nan)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`log_scale + (df + 1)/2 * ln(1 + z^2 / df)`, plus a function of `df` with the constant.

        The constant is `ln(df)/2 + ln(Beta(1/2, df/2))`.
        """
        values = student_nll(self.location, self.log_scale, self.df, targets)
        return values + student_log_normalizer(self.log_df_like(values)) if constant else values

    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """`((df + 1) / (df + 3) exp(-2 log_scale), 2 df / (df + 3))`."""
        location = Entry((self.df + 1) / (self.df + 3), -2 * self.log_scale)
        return location, Entry(2 * self.df / (self.df + 3))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The two bounded expressions of the class docstring, right for every finite input."""
        df = jnp.full_like(self.location, self.df)
        location, half_shrink = natural_residual(self.location, self.log_scale, df, targets)
        return {"location": location, "log_scale": Scaled((self.df + 3) * half_shrink)}


def student_nll(location, log_scale, df, targets: Array) -> Array:
    """The NLL without the terms that depend on `df` alone; exact for outliers of any size."""
    residual = targets - location
    log_factor = -log_scale - 0.5 * jnp.log(df)
    log_z = jnp.log(jnp.abs(jnp.where(residual == 0, 1, residual))) + log_factor
    is_huge = (residual != 0) & (log_z > _LARGEST_PLAIN_LOG_Z)
    z = multiply_by_exp(residual, jnp.where(is_huge, 0, log_factor))
    body = jnp.log1p(jnp.square(jnp.where(is_huge, 0, z)))
    tail = 2 * jnp.where(is_huge, log_z, 0)
    return log_scale + 0.5 * (df + 1) * jnp.where(is_huge, tail, body)


def natural_residual(location, log_scale, df: Array, targets: Array) -> tuple[Scaled, Array]:
    """`(df + 3) / (df + z^2) * (location - targets)` and `(1 - z^2) / (2 (df + z^2))`."""
    half_residual = 0.5 * location - 0.5 * targets
    log_z = jnp.log(jnp.abs(half_residual)) + math.log(2) - log_scale
    log_factor = jnp.log(df + 3) - jnp.logaddexp(jnp.log(df), 2 * log_z)
    is_outer = log_z > 0
    square = jnp.exp(-2 * jnp.abs(log_z))  # z^2 inside the scale, 1/z^2 outside
    outer = (square - 1) / (2 * (df * square + 1))
    inner = (1 - square) / (2 * (df + square))
    return Scaled(half_residual, log_factor + math.log(2)), jnp.where(is_outer, outer, inner)


def student_variance(log_scale: Array, df: Array) -> Array:
    """`scale^2 df / (df - 2)`, inf for `df` in (1, 2] and nan for `df <= 1`."""
    finite = jnp.exp(2 * log_scale) * df / jnp.where(df > 2, df - 2, 1)
    return jnp.where(df > 2, finite, jnp.where(df > 1, jnp.inf, jnp.nan))


def student_kl(p, p_df: Array, q, q_df: Array) -> Array:
    """`KL(p || q)` of two Student-t distributions by quadrature in the coordinate of `p`.

    Beyond the last node both densities are powers of the distance; their part is added in closed
    form. With a tenth of a degree of freedom most of the probability lies there.
    """
    largest = 1e60 if p.location.dtype == jnp.float64 else 1e30
    # With few degrees of freedom the density bends at their square root.
    width = jnp.sqrt(jnp.minimum(p_df, 1))[None]
    nodes, weights = (width * add_node_axis(x, p.location) for x in sinh_sinh(129, largest))
    p_normalizer, q_normalizer = (
        student_log_normalizer(jnp.log(p_df))[None],
        student_log_normalizer(jnp.log(q_df))[None],
    )
    p_location, p_log_scale, p_df = p.location[None], p.log_scale[None], p_df[None]
    q_location, q_log_scale, q_df = q.location[None], q.log_scale[None], q_df[None]
    # The targets of q, in units of p's scale, so that no huge node meets a tiny scale.
    shift = multiply_by_exp(q_location - p_location, -p_log_scale)
    relative = q_log_scale - p_log_scale

    def log_p(z: Array) -> Array:
        return -student_nll(0.0, jnp.zeros_like(z), p_df, z) - p_normalizer

    # E[q/p - 1] is 0. Added where the nodes resolve q, it leaves a sum of terms that are positive.
    difference = jnp.log(q_df) - jnp.log(p_df)
    is_resolved = jnp.maximum(jnp.abs(relative), jnp.abs(difference)) < 1
    is_resolved &= jnp.abs(shift) < width

    def log_ratio(z: Array) -> Array:
        return log_p(z) + student_nll(shift, relative, q_df, z) + q_normalizer

    def divergence(z: Array) -> Array:
        values = log_ratio(z)
        return jnp.where(is_resolved, exp_excess(-jnp.where(is_resolved, values, 0)), values)

    # The sum reaches half a step beyond the last node.
    end = width * sinh_sinh_end(129, largest)
    log_mass = log_p(end) + jnp.log(2 * end) - jnp.log(p_df)
    beyond = _power_divergence(log_mass, log_ratio(end), difference, is_resolved)
    return jnp.maximum(expectation(divergence, log_p, nodes, weights) + beyond[0], 0)


def _power_divergence(
    log_mass: Array, log_ratio: Array, difference: Array, is_resolved: Array
) -> Array:
    """The part of a divergence from beyond `z`, where the densities are `|y|^-(v+1)`, `|y|^-(w+1)`.

    With `m` the mass of p there, `L` its log-ratio to q at `z` and `d = ln(w/v)` it is
    `m (L + exp(d) - 1)`. The masses of q and p have the ratio `exp(-L - d)`; where q's is counted
    with it, it is `m (e(-L - d) + e(d))` with `e(x) = exp(x) - 1 - x`.
    """
    mass, total = jnp.exp(log_mass), log_ratio + difference
    is_near = jnp.abs(total) < 1
    near = mass * exp_excess(-jnp.where(is_near, total, 0))
    far = jnp.exp(log_mass - total) + mass * (total - 1)
    counted = jnp.where(is_near, near, far)
    excess = mass * exp_excess(difference)
    return jnp.where(is_resolved, counted, mass * total) + excess


@jax.custom_jvp
def t_tails(log_df: Array, z: Array) -> tuple[Array, Array]:
    """The probabilities of at most, and of more than, `z` under a standard Student-t.

    With `x = df / (df + z^2)` the two-sided tail is `I_x(df/2, 1/2)`, whose distance from the mean
    in logits is `-2 ln|z|` for every `df`.
    """
    half = math.log(2)
    size = jnp.maximum(jnp.abs(z), jnp.finfo(z.dtype).tiny ** 0.5)
    # Beyond exp(60) degrees of freedom a float cannot tell it from a Gaussian.
    log_a = jnp.minimum(log_df, 60.0) - half
    outside, inside = beta_tails(log_a, jnp.full_like(z, -half), -2 * jnp.log(size))
    tail, head = 0.5 * outside, 0.5 + 0.5 * inside
    return jnp.where(z < 0, tail, head), jnp.where(z < 0, head, tail)


def t_density(log_df: Array, z: Array) -> Array:
    """The density of a standard Student-t."""
    return jnp.exp(-student_nll(0.0, 0.0, jnp.exp(log_df), z) - student_log_normalizer(log_df))


differentiate_tails(t_tails, t_density)


def student_crps(dist: LocationScale, log_df: Array, targets: Array) -> Array:
    """`scale (z (2 F(z) - 1) + 2 f(z) (df + z^2) / (df - 1) - spread)`; nan for `df <= 1`."""
    z = dist.standardize(targets)
    df = jnp.exp(log_df)
    lower, upper = t_tails(log_df, z)
    # Beta(1/2, df - 1/2) by the normaliser of a Student-t with 2 df - 1 degrees of freedom.
    log_twice = jnp.log(jnp.maximum(2 * df - 1, 1))
    beta = student_log_normalizer(log_twice) - 0.5 * log_twice
    log_spread = beta - 2 * student_log_normalizer(log_df) + 1.5 * log_df
    # The density times df + z^2, which alone may overflow.
    exponent = student_nll(0.0, 0.0, df, z) * ((df - 1) / (df + 1))
    peak = jnp.exp(log_df - student_log_normalizer(log_df) - exponent) - jnp.exp(log_spread)
    finite = z * (lower - upper) + 2 * peak / jnp.where(df > 1, df - 1, 1)
    return jnp.where(df > 1, multiply_by_exp(finite, dist.log_scale), jnp.nan)


def standard_t_quantile(probability: Array, log_df: Array) -> Array:
    """The quantile of a standard Student-t, by bisection over the upper half."""
    tail = jnp.minimum(probability, 1 - probability)
    largest = jnp.full_like(tail, jnp.finfo(tail.dtype).max)
    z = smallest_float(lambda z: t_tails(log_df, z)[1] <= tail, jnp.zeros_like(tail), largest)
    z = jnp.where(tail > 0, jnp.where(tail < 0.5, z, 0), jnp.where(tail == 0, jnp.inf, jnp.nan))
    return jnp.where(probability < 0.5, -z, z)


@jax.custom_jvp
def student_log_normalizer(log_df: Array) -> Array:
    """`ln(df)/2 + ln(Beta(1/2, df/2))`, accurate up to the Gaussian limit `ln(2 pi)/2`."""
    log_x = log_df - math.log(2)
    log_y = jnp.logaddexp(log_x, -math.log(2))
    # ln(gamma(x) / gamma(x + 1/2)) by remainders; x ln(1 + 1/(2x)) by its series for large x.
    is_large = log_x > math.log(1e3)
    x = jnp.exp(jnp.where(is_large, 0, log_x))
    inverse = jnp.exp(-jnp.where(is_large, log_x, 1))
    series = 0.5 - inverse * (1 / 8 - inverse * (1 / 24 - inverse / 64))
    # The softplus is ln(1 + 1/(2x)) with a derivative that does not overflow for tiny x.
    entropy = jnp.where(is_large, series, x * jax.nn.softplus(-log_x - math.log(2)))
    remainders = log_gamma_remainder(log_x) - log_gamma_remainder(log_y)
    return remainders - entropy + 0.5 * (log_df - log_y + 1 + math.log(math.pi))


student_log_normalizer.defjvps(lambda tangent, _, log_df: normalizer_slope(log_df) * tangent)


def normalizer_slope(log_df: Array) -> Array:
    """The derivative of the log-normaliser in `log_df`, which falls as `-1 / (4 df)`.

    `1/2 + x (digamma(x) - digamma(x + 1/2))` at `x = df / 2`, by its series where that cancels.
    """
    is_large = log_df > math.log(200.0 if log_df.dtype == jnp.float64 else 12.0)
    log_x = jnp.where(is_large, 0, log_df) - math.log(2)
    log_y = jnp.logaddexp(log_x, -math.log(2))
    ratio = jnp.exp(log_x - log_y)
    body = 0.5 + jnp.exp(log_x) * (log_x - log_y)
    body = body + digamma_remainder(log_x) - ratio * digamma_remainder(log_y)
    inverse = jnp.exp(-jnp.where(is_large, log_df, 1))
    square = jnp.square(inverse)
    series = jnp.zeros_like(inverse)
    for coefficient in (-31 / 4, 17 / 16, -1 / 4, 1 / 8, -1 / 4):
        series = series * square + coefficient
    return jnp.where(is_large, series * inverse, body)
