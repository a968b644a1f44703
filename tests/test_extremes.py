"""Nothing non-finite comes out of finite inputs; nothing non-finite is hidden."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, fisher8, fisher8_nll

LOG_VARIANCES = [-200.0, -100.0, -87.0, -20.0, 0.0, 20.0, 87.0, 100.0, 200.0]
RESIDUALS = [1e-30, 1e-10, 1.0, 1e4, 1e10, 1e30]
DTYPES = pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])


@jax.jit
def fused_gradient(mean, log_variance, targets):
    dist = Gaussian(mean, log_variance)
    return jax.grad(lambda d: fisher8_nll(d, targets).mean())(dist)


def finite_in(dtype, x):
    largest = float(jnp.finfo(dtype).max)
    return jnp.asarray(np.clip(x, -largest, largest), dtype)


@DTYPES
def test_fused_loss_is_finite_everywhere(dtype):
    rng = np.random.default_rng(0)
    for log_variance, residual in itertools.product(LOG_VARIANCES, RESIDUALS):
        targets = finite_in(dtype, residual * rng.normal(size=8))
        s = jnp.asarray(log_variance + rng.normal(size=8), dtype)
        gradient = fused_gradient(jnp.zeros(8, dtype), s, targets)
        for column in (gradient.mean, gradient.log_variance):
            assert column.dtype == dtype
            norm = np.linalg.norm(np.asarray(column, np.float64))
            # All residuals may round to 0 in a narrow dtype: then there is no direction.
            expected = 1 if column is gradient.log_variance or np.any(targets != 0) else 0
            np.testing.assert_allclose(norm, expected, rtol=3e-2 if dtype != jnp.float32 else 1e-5)


def test_fused_loss_is_right_where_the_variance_overflows():
    """Against the same rule in float64, where nothing overflows at these magnitudes."""
    rng = np.random.default_rng(1)
    for log_variance, residual in itertools.product(LOG_VARIANCES, RESIDUALS):
        targets = np.float32(residual * rng.normal(size=16))
        s = np.float32(log_variance + 3 * rng.normal(size=16))
        narrow = fused_gradient(jnp.zeros(16, jnp.float32), jnp.asarray(s), jnp.asarray(targets))
        wide = fused_gradient(
            jnp.zeros(16), jnp.asarray(s, jnp.float64), jnp.asarray(targets, jnp.float64)
        )
        # Logarithms of up to 300 carry a relative error of 300 float32 roundings.
        np.testing.assert_allclose(narrow.mean, wide.mean, atol=1e-6)
        np.testing.assert_allclose(narrow.log_variance, wide.log_variance, atol=4e-5)


def test_fused_loss_is_right_where_the_residual_overflows():
    largest = float(jnp.finfo(jnp.float32).max)
    mean = jnp.array([largest, -largest, 0.0], jnp.float32)
    targets = jnp.array([-largest, largest, 0.0], jnp.float32)
    gradient = fused_gradient(mean, jnp.zeros(3, jnp.float32), targets)
    np.testing.assert_allclose(gradient.mean, np.array([1, -1, 0]) / np.sqrt(2), rtol=1e-6)
    # Both squared residuals are equal and dwarf the third entry.
    np.testing.assert_allclose(gradient.log_variance, np.array([-1, -1, 0]) / np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("log_variance", [-1e30, -1e10, -1e4, 1e4, 1e30])
def test_fused_loss_has_a_direction_at_absurd_variances(log_variance):
    s = jnp.full(4, log_variance, jnp.float32)
    gradient = fused_gradient(jnp.zeros(4, jnp.float32), s, jnp.array([1, 2, -1, 3.0], jnp.float32))
    for column in (gradient.mean, gradient.log_variance):
        np.testing.assert_allclose(np.linalg.norm(column), 1, rtol=1e-5)


@pytest.mark.parametrize("log_variance", np.arange(-85.0, 86.0, 17.0))
def test_identity_op_is_right_in_its_documented_range(log_variance):
    """|log_variance| below 85 for residuals of order one in float32."""
    rng = np.random.default_rng(2)
    targets = rng.uniform(0.5, 2, size=8) * rng.choice([-1, 1], size=8)

    def gradient(dtype):
        dist = Gaussian(jnp.zeros(8, dtype), jnp.full(8, log_variance, dtype))
        return jax.grad(lambda d: fisher8(d).nll(jnp.asarray(targets, dtype)).sum())(dist)

    narrow, wide = gradient(jnp.float32), gradient(jnp.float64)
    np.testing.assert_allclose(narrow.mean, wide.mean, rtol=2e-5)
    np.testing.assert_allclose(narrow.log_variance, wide.log_variance, rtol=2e-5)


@DTYPES
def test_a_zero_cotangent_never_becomes_nan(dtype):
    s = jnp.array([500.0, -500.0, 0.0, 90.0], dtype)
    dist = Gaussian(jnp.ones(4, dtype), s)
    gradient = jax.grad(lambda d: jnp.sum(fisher8(d).mean * jnp.array([0, 0, 1, 0], dtype)))(dist)
    np.testing.assert_array_equal(np.asarray(gradient.mean, np.float32), [0, 0, 1, 0])
    np.testing.assert_array_equal(np.asarray(gradient.log_variance, np.float32), 0)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("path", ["identity", "fused"])
@DTYPES
def test_nothing_to_learn_gives_zeros(path, rows, dtype):
    """A perfect mean, a fully masked batch, an empty batch: zeros, not nan."""
    values = jnp.arange(rows, dtype=dtype)
    where = jnp.zeros(rows, bool)

    def loss(dist, where):
        if path == "fused":
            return fisher8_nll(dist, values, where=where).sum()
        return fisher8(dist, where=where).nll(values).sum()

    dist = Gaussian(values, jnp.zeros(rows, dtype))
    perfect = jax.grad(loss)(dist, None)
    np.testing.assert_array_equal(np.asarray(perfect.mean, np.float32), 0)
    assert np.all(np.isfinite(np.asarray(perfect.log_variance, np.float32)))
    for leaf in jax.tree.leaves(jax.grad(loss)(dist, where)):
        np.testing.assert_array_equal(np.asarray(leaf, np.float32), 0)


def test_one_row_has_the_sign_of_its_gradient():
    gradient = fused_gradient(jnp.array([2.0]), jnp.array([0.0]), jnp.array([7.0]))
    np.testing.assert_allclose(gradient.mean, [-1], rtol=1e-12)
    np.testing.assert_allclose(gradient.log_variance, [-1], rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("path", ["identity", "fused"])
def test_non_finite_input_stays_loud(path, bad):
    """One infinite row must not silently zero the gradient of all others."""
    targets = jnp.array([1.0, bad, 2.0])

    def loss(dist):
        values = fisher8_nll(dist, targets) if path == "fused" else fisher8(dist).nll(targets)
        return values.sum()

    gradient = jax.grad(loss)(Gaussian(jnp.zeros(3), jnp.zeros(3)))
    assert np.all(np.isnan(gradient.mean))
    assert np.all(np.isnan(gradient.log_variance))


@jax.jit
def weighted_gradient(mean, weights, scale):
    """Of the mean of the fused loss, with a loss scale."""

    def loss(dist):
        return scale * fisher8_nll(dist, jnp.zeros_like(mean), weights=weights).mean()

    return jax.grad(loss)(Gaussian(mean, jnp.zeros_like(mean)))


def unit(x):
    x = np.asarray(x, np.float64)
    return x / np.linalg.norm(x)


def test_weights_and_loss_scales_never_overflow_or_vanish():
    sizes, weights, scales = [1e-36, 1.0, 1e36], [1e-10, 1.0, 1e10], [1e-30, 1.0, 1e30]
    for size, weight, scale in itertools.product(sizes, weights, scales):
        r, w = (
            np.float32(size * np.linspace(-1, 2, 100)),
            np.float32(weight * np.linspace(1, 3, 100)),
        )
        gradient = weighted_gradient(jnp.asarray(r), jnp.asarray(w), jnp.float32(scale))
        # Logarithms of up to 200 carry a relative error of some 200 float32 roundings.
        expected = unit(r.astype(float) * w)
        np.testing.assert_allclose(gradient.mean, expected, rtol=4e-5, atol=1e-8)
        expected = unit((1 - r.astype(float) ** 2) * w)
        np.testing.assert_allclose(gradient.log_variance, expected, rtol=1e-4, atol=1e-6)


def test_infinite_weights_stay_loud():
    weights = jnp.ones(100, jnp.float32).at[3].set(jnp.inf)
    gradient = weighted_gradient(jnp.ones(100, jnp.float32), weights, jnp.float32(1))
    assert np.all(np.isnan(gradient.mean))


@pytest.mark.parametrize("log_variance", [-40.0, 24.0])
def test_identity_op_widens_the_variance_of_half_precision(log_variance):
    """The natural cotangent exp(log_variance) exists in float32 but not in float16."""
    dist = Gaussian(jnp.zeros(2, jnp.float16), jnp.full(2, log_variance, jnp.float16))
    gradient = jax.grad(lambda d: jnp.sum(fisher8(d).mean * jnp.array([3, 4], jnp.float16)))(dist)
    np.testing.assert_allclose(np.asarray(gradient.mean, np.float64), [0.6, 0.8], rtol=1e-3)
