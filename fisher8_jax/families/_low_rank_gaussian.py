"""The multivariate Gaussian with a low-rank-plus-diagonal covariance: many correlated targets."""

import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.batching import cholesky, solve_cholesky, solve_lower
from fisher8_jax._internal.checks import check_positive
from fisher8_jax._internal.numerics import HALF_LOG_2PI, Scaled
from fisher8_jax.families._contract import family, natural_score_by_autodiff, static_field
from fisher8_jax.families._fisher_factor import block_diagonal, factor_from_root, solve_damped
from fisher8_jax.families._joint_gaussian import JointGaussian, diagonal_matrix, eye_like
from fisher8_jax.families._targets import expand_units

# Steps that take the damping out of the inverse again, as the class docstring says.
_REFINEMENTS = 3


@family
class LowRankGaussian(JointGaussian):
    """`N(mean, W W' + D)` over `d` coordinates, `W` of rank `r`, `D = diag(exp(log_diagonal))`.

    With the precision `P = (W W' + D)^-1`, `A = P W` and `C = W' P W`, the Fisher information is
    `P` for the mean, whose inverse is `W W' + D`, and for the covariance the dense matrix

        F[W_ia, W_jb]   = P_ij C_ab + A_ib A_ja
        F[W_ia, s_k]    = D_k P_ki A_ka            (s = log_diagonal)
        F[s_k, s_l]     = D_k D_l P_kl^2 / 2

    Turning the columns of `W` among themselves changes nothing, so `F` has a null space for
    `r > 1`, along which there is no gradient. The inverse is that of `F + damping * diag(F)`,
    refined three times towards `F^-1`: where `F`, scaled to a unit diagonal, has the eigenvalue
    `e`, the result is right to `(damping / e)^4`. Null directions are left alone. The solve costs
    `(d (r + 1))^3`; for more than about a hundred unknowns use a smaller rank or the dense family.

    `cdf`, `quantile` and `variance` are marginal, one value per coordinate.

    Args:
        mean: predicted means, shape `batch_shape + (d,)`.
        factor: `W`, shape `batch_shape + (d, r)`. Start it away from 0, where it has no gradient.
        log_diagonal: natural logarithms of the diagonal of `D`, shape `batch_shape + (d,)`.
        damping: what is added to `F`, relative to its diagonal, before the refinement.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = LowRankGaussian(jnp.zeros(2), jnp.ones((2, 1)), jnp.zeros(2))
        >>> dist.covariance
        Array([[2., 1.],
               [1., 2.]], dtype=float32)

    Reference:
        Magnus and Neudecker (2019), Matrix Differential Calculus, section 15.3, for the trace form
        `tr(P dS P dS) / 2`.
    """

    mean: Array
    factor: Array
    log_diagonal: Array
    damping: float = static_field(default=1e-5)

    def __post_init__(self) -> None:
        check_positive("damping", self.damping)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        mean, factor, log_diagonal = self.parameters().values()
        fits = mean.ndim and log_diagonal.shape == mean.shape and factor.ndim == mean.ndim + 1
        if not fits or factor.shape[:-1] != mean.shape:
            raise ValueError(
                "`mean` and `log_diagonal` must have shape batch + (d,) and `factor` batch + "
                f"(d, r), got {mean.shape}, {log_diagonal.shape} and {factor.shape}."
            )
        return mean.shape[:-1]

    @property
    def covariance(self) -> Array:
        """`W W' + D`, shape `batch_shape + (d, d)`."""
        return self.factor @ _transpose(self.factor) + diagonal_matrix(jnp.exp(self.log_diagonal))

    @property
    def variance(self) -> Array:
        """The marginal variances."""
        return jnp.sum(jnp.square(self.factor), axis=-1) + jnp.exp(self.log_diagonal)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """By the matrix inversion and determinant lemmas, at the cost of `d r^2`."""
        root = jnp.exp(-0.5 * self.log_diagonal)
        residual = (targets - self.mean) * root
        scaled = self.factor * root[..., None]
        capacity = _transpose(scaled) @ scaled
        lower = cholesky(capacity + eye_like(capacity))
        # The distance is min_u |residual - scaled u|^2 + |u|^2. At its minimum the two squares are
        # added; the usual difference of two large numbers may come out far below 0.
        own, shared = residual[..., None], jnp.zeros_like(capacity[..., :1])
        for _ in range(2):  # the second time refines the solution by what is left
            shared = shared + solve_cholesky(lower, _transpose(scaled) @ own - shared)
            own = residual[..., None] - scaled @ shared
        distance = jnp.sum(jnp.square(own), (-2, -1)) + jnp.sum(jnp.square(shared), (-2, -1))
        log_volume = jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), -1)
        values = 0.5 * (distance + jnp.sum(self.log_diagonal, -1)) + log_volume
        return values + self.event_shape[0] * HALF_LOG_2PI if constant else values

    def natural(self, cotangent: Self) -> Self:
        """The inverse of the class docstring, by one Cholesky factorisation each."""
        mean = jnp.einsum("...ij,...j->...i", self.covariance, cotangent.mean)
        flat = _flatten(cotangent.factor, cotangent.log_diagonal)
        solved = solve_damped(_information(self), flat, self.damping, refinements=_REFINEMENTS)
        split = self.factor.shape[-1] * self.factor.shape[-2]
        factor = solved[..., :split].reshape(self.factor.shape)
        return type(self)(mean, factor, solved[..., split:], self.damping)

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`mean - targets`, and `natural` of the gradient for the covariance."""
        score = natural_score_by_autodiff(self, targets)
        return {**score, "mean": Scaled(self.mean - targets)}

    def fisher(self, tangent: Self) -> Self:
        """`(P d_mean, P dS P W, D diag(P dS P) / 2)` with `dS` the change of the covariance."""
        lower = cholesky(self.covariance)
        mean = solve_cholesky(lower, tangent.mean[..., None])[..., 0]
        left = solve_cholesky(lower, self._covariance_step(tangent))
        middle = solve_cholesky(lower, _transpose(left))
        diagonal = jnp.diagonal(middle, axis1=-2, axis2=-1)
        log_diagonal = 0.5 * jnp.exp(self.log_diagonal) * diagonal
        return type(self)(mean, middle @ self.factor, log_diagonal, self.damping)

    def _covariance_step(self, tangent: Self) -> Array:
        """The change of the covariance with a step."""
        half = tangent.factor @ _transpose(self.factor)
        own = diagonal_matrix(tangent.log_diagonal * jnp.exp(self.log_diagonal))
        return half + _transpose(half) + own

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`d_mean' P d_mean + tr(P dS P dS) / 2` with `dS` the change of the covariance."""
        lower = cholesky(self.covariance)
        left = solve_lower(lower, self._covariance_step(tangent))
        whitened = solve_lower(lower, _transpose(left))
        mean = solve_lower(lower, tangent.mean[..., None])[..., 0]
        return jnp.sum(jnp.square(mean), -1) + 0.5 * jnp.sum(jnp.square(whitened), (-2, -1))

    def fisher_factor(self) -> Array:
        """By QR of the map from a tangent to the whitened change of mean and covariance.

        Turning the columns of `W` among themselves makes the factor singular for `r > 1`.
        """
        lower = cholesky(self.covariance)
        eye = jnp.broadcast_to(eye_like(lower), lower.shape)
        dim, rank = self.factor.shape[-2:]
        size = dim * rank

        def column(unit: Array) -> Array:
            unit = jnp.broadcast_to(unit, (*self.batch_shape, size + dim))
            factor = unit[..., :size].reshape(self.factor.shape)
            step = type(self)(jnp.zeros_like(self.mean), factor, unit[..., size:], self.damping)
            left = solve_lower(lower, self._covariance_step(step))
            whitened = solve_lower(lower, _transpose(left))
            return math.sqrt(0.5) * whitened.reshape(*self.batch_shape, dim * dim)

        root = jax.vmap(column, out_axes=-1)(jnp.eye(size + dim, dtype=lower.dtype))
        of_mean = factor_from_root(solve_lower(lower, eye))
        return block_diagonal(of_mean, factor_from_root(root))

    def kl(self, other: Self) -> Array:
        """The Gaussian closed form, with Cholesky factors of both covariances."""
        p, q = self, other
        p_lower, q_lower = cholesky(p.covariance), cholesky(q.covariance)
        ratio = solve_lower(q_lower, p_lower)
        shift = solve_lower(q_lower, (q.mean - p.mean)[..., None])[..., 0]
        diagonal = jnp.diagonal(ratio, axis1=-2, axis2=-1)
        scales = jnp.sum(jnp.square(diagonal) - 1 - 2 * jnp.log(diagonal), -1)
        below = jnp.sum(jnp.square(jnp.tril(ratio, -1)), (-2, -1))
        return 0.5 * (scales + below + jnp.sum(jnp.square(shift), -1))

    def draw(self, key: Array) -> Array:
        """`mean + W e + sqrt(D) f` with standard normal `e` and `f`."""
        shared_key, own_key = jax.random.split(key)
        shape, rank = self.mean.shape, self.factor.shape[-1]
        shared = jax.random.normal(shared_key, (*shape[:-1], rank), self.mean.dtype)
        own = jax.random.normal(own_key, shape, self.mean.dtype) * jnp.exp(0.5 * self.log_diagonal)
        return self.mean + jnp.einsum("...ia,...a->...i", self.factor, shared) + own

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """Rows of the factor and the diagonal times the scale of their coordinate."""
        shift, scale = expand_units(shift, scale, self.mean)
        return type(self)(
            self.mean * scale + shift,
            self.factor * scale[..., None],
            self.log_diagonal + 2 * jnp.log(jnp.abs(scale)),
            self.damping,
        )


def _information(dist: LowRankGaussian) -> Array:
    """The dense Fisher information of `(factor, log_diagonal)`, both flattened."""
    w, d = dist.factor, jnp.exp(dist.log_diagonal)
    lower = cholesky(dist.covariance)
    precision = solve_cholesky(lower, jnp.broadcast_to(eye_like(lower), lower.shape))
    a = precision @ w
    c = _transpose(w) @ a
    batch, (dim, rank) = w.shape[:-2], w.shape[-2:]
    ww = jnp.einsum("...ij,...ab->...iajb", precision, c)
    ww = ww + jnp.einsum("...ib,...ja->...iajb", a, a)
    ww = ww.reshape(*batch, dim * rank, dim * rank)
    ws = jnp.einsum("...k,...ki,...ka->...iak", d, precision, a).reshape(*batch, dim * rank, dim)
    ss = 0.5 * d[..., :, None] * d[..., None, :] * jnp.square(precision)
    upper = jnp.concatenate([ww, ws], axis=-1)
    return jnp.concatenate([upper, jnp.concatenate([_transpose(ws), ss], axis=-1)], axis=-2)


def _flatten(factor: Array, log_diagonal: Array) -> Array:
    return jnp.concatenate([factor.reshape(*factor.shape[:-2], -1), log_diagonal], axis=-1)


def _transpose(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)
