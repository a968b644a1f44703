"""The multivariate Gaussian with a dense Cholesky factor: correlated targets."""

import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.batching import solve_lower
from fisher8_jax._internal.numerics import HALF_LOG_2PI, Scaled, at_least_float32
from fisher8_jax.families._contract import family
from fisher8_jax.families._fisher_factor import block_diagonal, factor_from_root
from fisher8_jax.families._joint_gaussian import JointGaussian, diagonal_matrix, eye_like
from fisher8_jax.families._targets import expand_units


@family
class MultivariateGaussian(JointGaussian):
    """`N(mean, L L')` over `d` coordinates, `L` lower triangular with diagonal `exp(log_diagonal)`.

    In the coordinates `mean` and `X = L^-1 dL`, a lower triangular step measured in units of the
    factor itself, the Fisher information is constant and diagonal:

        F    = (L L')^-1 for the mean;  1 for X_ij (i > j);  2 for X_ii = d log_diagonal_i
        F^-1 =  L L'     for the mean;  1 for X_ij (i > j);  1/2 for X_ii

    A cotangent `G` of `L` is `tril(L' G)` in `X`, and a step `X` is `L X` in `L`; that is all the
    inverse needs, with no matrix solved. With `z = L^-1 (targets - mean)` the natural gradient of
    the NLL is `mean - targets` for the mean and `L X` for the factor, with `X_ij = -z_i z_j` and
    `X_ii = (1 - z_i^2) / 2`.

    The log-density is joint. `cdf`, `quantile` and `variance` are marginal, one value per
    coordinate. Every coordinate keeps a norm of its own in `fisher8`, so a diagonal factor trains
    exactly as `d` separate Gaussians do.

    Args:
        mean: predicted means, shape `batch_shape + (d,)`.
        log_diagonal: natural logarithms of the diagonal of `L`, the same shape.
        off_diagonal: the entries of `L` below the diagonal, row by row, shape
            `batch_shape + (d (d-1) / 2,)`.

    Example:
        >>> import jax.numpy as jnp
        >>> dist = MultivariateGaussian(jnp.zeros(2), jnp.zeros(2), jnp.full(1, 2.0))
        >>> dist.covariance
        Array([[1., 2.],
               [2., 5.]], dtype=float32)

    Reference:
        Murray (2016), Differentiation of the Cholesky decomposition; the group coordinates are
        derived in the documentation of the families.
    """

    mean: Array
    log_diagonal: Array
    off_diagonal: Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        mean, log_diagonal, off_diagonal = self.parameters().values()
        dim = mean.shape[-1] if mean.ndim else 0
        expected = (*mean.shape[:-1], dim * (dim - 1) // 2)
        if not mean.ndim or log_diagonal.shape != mean.shape or off_diagonal.shape != expected:
            raise ValueError(
                "`mean` and `log_diagonal` must have shape batch + (d,) and `off_diagonal` batch + "
                f"(d (d-1) / 2,), got {mean.shape}, {log_diagonal.shape} and {off_diagonal.shape}."
            )
        return mean.shape[:-1]

    @property
    def factor(self) -> Array:
        """`L`, shape `batch_shape + (d, d)`."""
        return _lower(jnp.exp(self.log_diagonal), self.off_diagonal)

    @property
    def covariance(self) -> Array:
        """`L L'`."""
        factor = self.factor
        return factor @ jnp.swapaxes(factor, -1, -2)

    @property
    def variance(self) -> Array:
        """The marginal variances, the diagonal of `L L'`."""
        return jnp.sum(jnp.square(self.factor), axis=-1)

    def standardize(self, targets: Array) -> Array:
        """`z = L^-1 (targets - mean)`, independent standard normals under the model."""
        dist, targets = self.prepare(targets)
        return _solve(dist.factor, targets - dist.mean)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`sum(log_diagonal) + |z|^2 / 2`, plus `d ln(2 pi) / 2` with the constant."""
        z = self.standardize(targets)
        log_diagonal = at_least_float32(self.log_diagonal)
        values = jnp.sum(log_diagonal + 0.5 * jnp.square(z), axis=-1)
        return values + self.event_shape[0] * HALF_LOG_2PI if constant else values

    def natural(self, cotangent: Self) -> Self:
        """The inverse Fisher information of the class docstring times `cotangent`."""
        factor = self.factor
        transposed = jnp.swapaxes(factor, -1, -2)
        mean = _multiply(factor, _multiply(transposed, cotangent.mean))
        # The diagonal of L' G only meets G_ii L_ii = d/d log_diagonal and entries below it.
        to_factor = _lower(jnp.zeros_like(self.log_diagonal), cotangent.off_diagonal)
        group = jnp.tril(transposed @ to_factor) + diagonal_matrix(cotangent.log_diagonal)
        group = group * (1 - 0.5 * eye_like(group))
        return type(self)(mean, *_to_fields(factor @ group, group))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """From `z` divided by its largest entry, so that its squares cannot overflow."""
        z = _solve(self.factor, targets - self.mean)
        largest = jnp.max(jnp.abs(z), axis=-1, keepdims=True)
        unit = jnp.maximum(largest, 1)
        z = z / unit
        group = -jnp.tril(z[..., :, None] * z[..., None, :])
        ones = jnp.broadcast_to(jnp.square(1 / unit), z.shape)
        eye = eye_like(group)
        group = (group + diagonal_matrix(ones)) * (1 - 0.5 * eye)
        log_diagonal, off_diagonal = _to_fields(self.factor @ group, group)
        log_scale = 2 * jnp.log(unit)
        return {
            "mean": Scaled(self.mean - targets),
            "log_diagonal": Scaled(log_diagonal, jnp.broadcast_to(log_scale, log_diagonal.shape)),
            "off_diagonal": Scaled(off_diagonal, jnp.broadcast_to(log_scale, off_diagonal.shape)),
        }

    def fisher(self, tangent: Self) -> Self:
        """The Fisher information of the class docstring times `tangent`."""
        factor = self.factor
        mean = _solve(factor, tangent.mean)[..., None]
        mean = solve_lower(factor, mean, transpose=True)[..., 0]
        group = self._group_step(tangent)
        group = group * (1 + eye_like(group))
        to_factor = solve_lower(factor, group, transpose=True)
        log_diagonal, off_diagonal = _to_fields(to_factor, to_factor)
        return type(self)(mean, log_diagonal * jnp.exp(self.log_diagonal), off_diagonal)

    def _group_step(self, tangent: Self) -> Array:
        """`X = L^-1 dL`."""
        step = _lower(tangent.log_diagonal * jnp.exp(self.log_diagonal), tangent.off_diagonal)
        return solve_lower(self.factor, step)

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`|L^-1 d_mean|^2 + sum_{i>j} X_ij^2 + 2 sum_i X_ii^2` with `X = L^-1 dL`."""
        mean = _solve(self.factor, tangent.mean)
        group = jnp.square(self._group_step(tangent))
        twice = jnp.sum(jnp.diagonal(group, axis1=-2, axis2=-1), axis=-1)
        return jnp.sum(jnp.square(mean), axis=-1) + jnp.sum(group, axis=(-2, -1)) + twice

    def fisher_factor(self) -> Array:
        """By QR of the map from a tangent to `(L^-1 d_mean, X)`, for the mean and `L` apart."""
        dim, size = self.event_shape[0], self.off_diagonal.shape[-1]
        eye = jnp.eye(dim, dtype=self.mean.dtype)
        inverse = solve_lower(self.factor, jnp.broadcast_to(eye, self.factor.shape))
        rows, columns = np.tril_indices(dim)
        weight = jnp.asarray(np.where(rows == columns, math.sqrt(2), 1), self.mean.dtype)

        def column(unit: Array) -> Array:
            unit = jnp.broadcast_to(unit, (*self.batch_shape, dim + size))
            step = type(self)(jnp.zeros_like(self.mean), unit[..., :dim], unit[..., dim:])
            group = self._group_step(step)[..., rows, columns]
            return group * jnp.broadcast_to(weight, group.shape)

        root = jax.vmap(column, out_axes=-1)(jnp.eye(dim + size, dtype=self.mean.dtype))
        return block_diagonal(factor_from_root(inverse), factor_from_root(root))

    def kl(self, other: Self) -> Array:
        """`(|M|^2 - d - 2 ln det M + |L_q^-1 (mean_q - mean_p)|^2) / 2` with `M = L_q^-1 L_p`."""
        p, q = self, other
        ratio = solve_lower(q.factor, p.factor)
        shift = _solve(q.factor, q.mean - p.mean)
        difference = 2 * (p.log_diagonal - q.log_diagonal)
        scales = jnp.sum(jnp.expm1(difference) - difference, axis=-1)
        below = jnp.sum(jnp.square(jnp.tril(ratio, -1)), axis=(-2, -1))
        return 0.5 * (scales + below + jnp.sum(jnp.square(shift), axis=-1))

    def draw(self, key: Array) -> Array:
        """`mean + L e` with standard normal `e`."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + _multiply(self.factor, noise)

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """Rows of the factor times the scale of their coordinate."""
        shift, scale = expand_units(shift, scale, self.mean)
        log_diagonal = self.log_diagonal + jnp.log(jnp.abs(scale))
        rows, columns = np.tril_indices(self.event_shape[0], -1)
        # The sign of the column keeps the diagonal of the factor positive.
        off_diagonal = self.off_diagonal * scale[..., rows] * jnp.sign(scale[..., columns])
        return type(self)(self.mean * scale + shift, log_diagonal, off_diagonal)


def _lower(diagonal: Array, off_diagonal: Array) -> Array:
    """The lower triangular matrix with these entries."""
    dim = diagonal.shape[-1]
    rows, columns = np.tril_indices(dim, -1)
    return diagonal_matrix(diagonal).at[..., rows, columns].set(off_diagonal)


def _to_fields(step: Array, group: Array) -> tuple[Array, Array]:
    """`log_diagonal` from the diagonal of `X` and `off_diagonal` from `L X`."""
    rows, columns = np.tril_indices(step.shape[-1], -1)
    return jnp.diagonal(group, axis1=-2, axis2=-1), step[..., rows, columns]


def _solve(factor: Array, vector: Array) -> Array:
    return solve_lower(factor, vector[..., None])[..., 0]


def _multiply(matrix: Array, vector: Array) -> Array:
    return jnp.einsum("...ij,...j->...i", matrix, vector)
