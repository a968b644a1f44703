"""The Student-t whose degrees of freedom are predicted as well."""

import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.deviance import log1p_deficit
from fisher8_jax._internal.numerics import Scaled, add_scaled
from fisher8_jax._internal.special import trigamma_remainder
from fisher8_jax.families._contract import family
from fisher8_jax.families._diagonal import Entry
from fisher8_jax.families._student_t import (
    StudentFamily,
    natural_residual,
    normalizer_slope,
    student_log_normalizer,
    student_nll,
)
from fisher8_jax.families._triangular import ZERO, Rows, TriangularFamily

# Series in 1/df of the information about log_df, times df^2; derived in the documentation.
_SCHUR_SERIES = (3 / 2, -3.0, 7 / 2, -3.0, 11 / 2, -15.0, 15 / 2)


@family
class StudentTLearnedDf(StudentFamily, TriangularFamily):
    """`location + exp(log_scale) * t` with `t` of `v = exp(log_df)` degrees of freedom.

    In the coordinates `(location, log_scale, log_df)` the Fisher information is

        F = | (v+1)/(v+3) exp(-2 log_scale)       0                   0          |
            |              0                   2v/(v+3)        -2v/((v+1)(v+3))  |
            |              0               -2v/((v+1)(v+3))   S + 2v/((v+1)^2 (v+3)) |

    with `S = v^2 (trigamma(v/2) - trigamma((v+1)/2)) / 4 - v(v+5)/(2(v+1)(v+3))
    - 2v/((v+1)^2 (v+3))`, what is left of the information about `log_df` when the scale is unknown.
    Its inverse has `(v+3)/(v+1) exp(2 log_scale)` for the location and, for the other two,

        F^-1 = | (v+3)/(2v) + 1/((v+1)^2 S)    1/((v+1) S) |
               |        1/((v+1) S)                1/S     |

    `S` falls as `3 / (2 v^2)`: close to a Gaussian data do not identify the degrees of freedom
    and their natural gradient grows like `v`. Start `log_df` near `ln(5)`, not at a large value.

    Args:
        location: predicted centres.
        log_scale: predicted natural logarithms of the scale.
        log_df: predicted natural logarithms of the degrees of freedom.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = StudentTLearnedDf(jnp.zeros(1), jnp.zeros(1), jnp.log(jnp.full(1, 4.0)))
        >>> dist.variance
        Array([2.], dtype=float32)

    Reference:
        Lange, Little and Taylor (1989), appendix B; the reduction to `S` is derived in the
        documentation of the families.
    """

    location: Array
    log_scale: Array
    log_df: Array

    # 5 degrees of freedom: mean and variance exist, and `log_df` still learns.
    starts: ClassVar = {"log_df": lambda mean: np.full(np.shape(mean), math.log(5))}

    @property
    def df(self) -> Array:
        """`exp(log_df)`."""
        return jnp.exp(self.log_df)

    def log_df_like(self, like: Array) -> Array:
        """`log_df`."""
        return self.log_df

    def with_location_scale(self, location: Array, log_scale: Array) -> Self:
        """A Student-t of this location and scale and the same degrees of freedom."""
        return type(self)(location, log_scale, self.log_df)

    @property
    def mean(self) -> Array:
        """`location` where the degrees of freedom exceed 1, else nan."""
        return jnp.where(self.log_df > 0, self.location, jnp.nan)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`log_scale + (df + 1)/2 * ln(1 + z^2 / df) + ln(df)/2 + ln(Beta(1/2, df/2))`.

        Every term depends on a prediction, so `constant` changes nothing.
        """
        values = student_nll(self.location, self.log_scale, self.df, targets)
        return values + student_log_normalizer(self.log_df)

    def fisher_rows(self) -> Rows:
        """The scale comes before what is left for the degrees of freedom."""
        df = self.df
        log_scale = jnp.sqrt(2 * df / (df + 3))
        information, log_information = scale_free_information(self.log_df)
        return (
            (Entry(jnp.sqrt((df + 1) / (df + 3)), -self.log_scale),),
            (ZERO, Entry(log_scale)),
            (
                ZERO,
                Entry(-log_scale / (df + 1)),
                Entry(jnp.sqrt(information), 0.5 * log_information),
            ),
        )

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """From the bounded residuals of the fixed-df family and the score of `log_df`.

        Towards a Gaussian the latter, without the part shared with the scale, tends to
        `(z^4 - 6 z^2 + 3) / (4 df)`.
        """
        df = self.df
        location, half_shrink = natural_residual(self.location, self.log_scale, df, targets)
        score = _score_of_log_df(self, targets)
        reduced = score + 2 * df / (df + 1) * half_shrink
        information, log_information = scale_free_information(self.log_df)
        value, log_scale = reduced / information, -log_information
        shared_scale = log_scale - jax.nn.softplus(self.log_df)
        return {
            "location": location,
            "log_scale": add_scaled((df + 3) * half_shrink, value, shared_scale),
            "log_df": Scaled(value, log_scale),
        }


def scale_free_information(log_df: Array) -> tuple[Array, Array]:
    """`S` of the class docstring as `value * exp(log_scale)`.

    By its series in `1 / df` where the closed form would cancel.
    """
    is_large = log_df > math.log(1000.0 if log_df.dtype == jnp.float64 else 9.0)
    small = jnp.where(is_large, 0, log_df)
    df = jnp.exp(small)
    log_x, log_y = small - math.log(2), jnp.logaddexp(small, 0.0) - math.log(2)
    ratio = jnp.exp(log_x - log_y)
    trigammas = trigamma_remainder(log_x) - jnp.square(ratio) * trigamma_remainder(log_y)
    known = df * (df + 5) / (2 * (df + 1) * (df + 3)) + 2 * df / ((df + 1) ** 2 * (df + 3))
    body = trigammas + 0.5 * ratio - known
    inverse = jnp.exp(-jnp.where(is_large, log_df, 1))
    series = jnp.zeros_like(inverse)
    for coefficient in reversed(_SCHUR_SERIES):
        series = series * inverse + coefficient
    return jnp.where(is_large, series, body), jnp.where(is_large, -2 * log_df, 0)


def _score_of_log_df(dist: StudentTLearnedDf, targets: Array) -> Array:
    """The derivative of the NLL in `log_df`, with `w = z^2 / (df + z^2)`:

        df/2 (-ln(1 - w) - w) - w/2 + slope of the log-normaliser

    All terms fall as `1 / df`, so none is lost against another.
    """
    half_residual = 0.5 * dist.location - 0.5 * targets
    log_z = jnp.log(jnp.abs(half_residual)) + math.log(2) - dist.log_scale
    log_odds = 2 * log_z - dist.log_df
    w = jax.nn.sigmoid(log_odds)
    df_w = dist.df * w
    is_small, is_tiny = w < 0.3, w < 1e-4
    deficit = jnp.where(is_small, log1p_deficit(-w), jax.nn.softplus(log_odds) - w)
    # A tiny w is not squared, because its square may vanish.
    outlying = jnp.where(is_tiny, 0.25 * df_w * w * (1 + w * (2 / 3)), 0.5 * dist.df * deficit)
    return outlying - 0.5 * w + normalizer_slope(dist.log_df)
