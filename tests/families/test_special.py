"""Remainders of the gamma and Bessel functions against SciPy, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from fisher8_jax._internal import special

LOG_X = np.linspace(-12, 12, 97)


def exact_lgamma(log_x):
    x = np.exp(log_x)
    return sp.gammaln(x) - (x * log_x - x)


def exact_digamma(log_x):
    x = np.exp(log_x)
    return x * (sp.digamma(x) - log_x)


def exact_trigamma(log_x):
    x = np.exp(log_x)
    return x * x * sp.polygamma(1, x) - x


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (special.log_gamma_remainder, exact_lgamma),
        (special.digamma_remainder, exact_digamma),
        (special.trigamma_remainder, exact_trigamma),
    ],
)
def test_gamma_remainders_equal_scipy(function, exact):
    # SciPy's difference itself loses x * eps, so large arguments are compared loosely.
    got = np.asarray(jax.jit(function)(jnp.asarray(LOG_X)))
    tolerance = 1e-12 + 1e-15 * np.exp(LOG_X) * np.maximum(1, np.abs(LOG_X)) * np.exp(
        np.maximum(LOG_X, 0) * (exact is exact_trigamma)
    )
    assert np.all(np.abs(got - exact(LOG_X)) <= tolerance + 1e-12 * np.abs(exact(LOG_X)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_remainders_are_finite_and_bounded_at_the_ends(dtype):
    ends = jnp.asarray([-80.0, 80.0], dtype)
    np.testing.assert_allclose(special.digamma_remainder(ends), [-1, -0.5], rtol=1e-6)
    np.testing.assert_allclose(special.trigamma_remainder(ends), [1, 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        special.log_gamma_remainder(ends), [80, 0.5 * np.log(2 * np.pi) - 40], rtol=1e-6
    )


def test_each_derivative_is_the_next_function():
    def slope(function):
        return jax.vmap(jax.grad(function))(jnp.asarray(LOG_X))

    first, second = slope(special.log_gamma_remainder), slope(special.digamma_remainder)
    step = 1e-5

    def numerical(exact):
        return (exact(LOG_X + step) - exact(LOG_X - step)) / (2 * step)

    near = LOG_X < 4  # finite differences of SciPy's cancelling difference
    np.testing.assert_allclose(first[near], numerical(exact_lgamma)[near], atol=1e-7)
    np.testing.assert_allclose(second[near], numerical(exact_digamma)[near], atol=1e-7)


def test_bessel_functions_equal_scipy():
    log_k = np.linspace(-8, 6, 57)
    k = np.exp(log_k)
    ratio = sp.i1e(k) / sp.i0e(k)
    x = jnp.asarray(log_k)
    np.testing.assert_allclose(special.bessel_ratio(x), ratio, rtol=1e-10)
    np.testing.assert_allclose(special.log_bessel_i0e(x), np.log(sp.i0e(k)), atol=1e-10)
    np.testing.assert_allclose(special.bessel_gap(x), k * (1 - ratio), rtol=1e-9)
    curvature = k * k * (1 - ratio**2) - k * ratio
    np.testing.assert_allclose(special.bessel_curvature(x), curvature, rtol=1e-8)


def test_bessel_functions_in_float32_meet_double_precision():
    log_k = np.linspace(-8, 12, 41)
    for name in ("bessel_ratio", "bessel_gap", "bessel_curvature", "log_bessel_i0e"):
        function = getattr(special, name)
        wide = function(jnp.asarray(log_k))
        narrow = function(jnp.asarray(log_k, jnp.float32))
        np.testing.assert_allclose(narrow, wide, rtol=3e-4, atol=1e-6, err_msg=name)
