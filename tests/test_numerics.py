"""Norms and divisions at the ends of the range, against exact rational or float64 arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax._internal.numerics import (
    Scaled,
    combine_norms,
    divide_by_norm,
    l2_norm,
    log_softplus,
    multiply_by_exp,
)


def value(norm):
    return np.exp(np.float64(norm.log_max)) * np.sqrt(np.float64(norm.sum_sq))


@pytest.mark.parametrize("scale", [2e-38, 1e-20, 1.0, 1e20, 1e38])
def test_norm_neither_overflows_nor_underflows(scale):
    x = np.float32(scale) * np.array([1, -2, 2], np.float32)
    norm = l2_norm(Scaled(jnp.asarray(x)), (0,))
    np.testing.assert_allclose(value(norm), [3 * np.float64(np.float32(scale))], rtol=2e-5)
    unit = divide_by_norm(Scaled(jnp.asarray(x)), norm)
    np.testing.assert_allclose(unit, np.array([1, -2, 2]) / 3, rtol=1e-6)


def test_scaled_values_are_combined_in_log_space():
    x = Scaled(jnp.array([1.0, -1.0], jnp.float32), jnp.array([300.0, 300.0], jnp.float32))
    unit = divide_by_norm(x, l2_norm(x, (0,)))
    np.testing.assert_allclose(unit, np.array([1, -1]) / np.sqrt(2), rtol=1e-6)


def test_norms_of_parts_combine_to_the_norm_of_the_whole():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(9, 2)) * 10.0 ** rng.integers(-20, 20, size=(9, 2)))
    whole = l2_norm(Scaled(x), (0,))
    parts = combine_norms(l2_norm(Scaled(x[:4]), (0,)), l2_norm(Scaled(x[4:]), (0,)))
    np.testing.assert_allclose(value(parts), value(whole), rtol=1e-12)
    np.testing.assert_allclose(value(whole)[0], np.linalg.norm(x, axis=0), rtol=1e-12)


def test_empty_and_zero_vectors_have_norm_zero():
    for x in (jnp.zeros((0, 2)), jnp.zeros((3, 2))):
        norm = l2_norm(Scaled(x), (0,))
        np.testing.assert_array_equal(value(norm), 0)
        np.testing.assert_array_equal(divide_by_norm(Scaled(x), norm), x)
        other = l2_norm(Scaled(jnp.ones((4, 2))), (0,))
        np.testing.assert_allclose(value(combine_norms(norm, other)), 2, rtol=1e-12)
        np.testing.assert_array_equal(value(combine_norms(norm, norm)), 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_log_softplus_for_any_finite_input(dtype):
    x = jnp.asarray([-1e30, -1000, -100, -20.5, -20, -19.5, -1, 0, 1, 50, 1e30], dtype)
    wide = np.asarray(x, np.longdouble)
    exact = np.where(
        wide < -40, wide, np.log(np.logaddexp(np.longdouble(0), np.maximum(wide, -40)))
    )
    np.testing.assert_allclose(log_softplus(x), exact, rtol=4 * jnp.finfo(dtype).eps)
    slope = jax.vmap(jax.grad(log_softplus))(x)
    assert np.all(np.isfinite(slope))
    np.testing.assert_allclose(slope[:3], 1, rtol=1e-6)  # log softplus(x) -> x


def test_multiply_by_exp_uses_the_whole_range():
    x = jnp.array([0.0, 1e-30, 1e30], jnp.float32)
    log_factor = jnp.array([1000.0, 140.0, -140.0], jnp.float32)
    expected = [0, np.exp(140 - 30 * np.log(10)), np.exp(-140 + 30 * np.log(10))]
    np.testing.assert_allclose(multiply_by_exp(x, log_factor), expected, rtol=3e-5)
