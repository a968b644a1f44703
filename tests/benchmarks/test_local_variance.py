"""Local Jacobian and KL variances against a plain NumPy loop over all balls."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.machinery.local_variance import local_jacobian_variance, local_kl_variance
from fisher8_jax import Gaussian


def balls(inputs, radius):
    """The neighbours of every point, by the definition."""
    flat = np.asarray(inputs).reshape(len(inputs), -1)
    return [np.linalg.norm(flat - x, axis=1) <= radius for x in flat]


def direct_jacobian_variance(jacobians, inputs, radius):
    flat = np.asarray(jacobians).reshape(len(inputs), -1)
    return np.array([flat[ball].var(axis=0).sum() for ball in balls(inputs, radius)])


def direct_kl_variance(mean, log_variance, inputs, radius):
    """The paper's formula for the divergence, with explicit variances."""
    variance = np.exp(log_variance)
    result = []
    for i, ball in enumerate(balls(inputs, radius)):
        gap_sq = (mean[i] - mean[ball]) ** 2
        ratio = (variance[i] + gap_sq) / variance[ball]
        kl = 0.5 * (np.log(variance[ball] / variance[i]) + ratio - 1)
        result.append(kl.reshape(ball.sum(), -1).sum(axis=1).var())
    return np.array(result)


def features(x):
    """Three smooth features of an input of any shape."""
    total = jnp.sum(jnp.sin(2.0 * x))
    return jnp.stack([jnp.tanh(total), total**2, jnp.exp(-jnp.sum(x**2))])


@pytest.mark.parametrize("shape", [(70,), (70, 3), (40, 2, 2)])
@pytest.mark.parametrize("block_size", [1000, 7])
def test_chunked_equals_direct(shape, block_size):
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=shape))
    mean, log_variance = rng.normal(size=(2, shape[0]))
    radius = 0.9 * np.sqrt(np.prod(shape[1:]))

    jacobians = jax.vmap(jax.jacrev(features))(inputs)
    expected = direct_jacobian_variance(jacobians, inputs, radius)
    found = local_jacobian_variance(features, inputs, radius=radius, block_size=block_size)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)

    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    found = local_kl_variance(dist, inputs, radius=radius, block_size=block_size)
    expected = direct_kl_variance(mean, log_variance, inputs, radius)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_groups_of_directions_change_nothing():
    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(30, 5)))
    whole = local_jacobian_variance(features, inputs, radius=2.0)
    for max_entries in (1, 2 * 3 * 30):  # one direction at a time; groups of 2, 2 and 1
        grouped = local_jacobian_variance(features, inputs, radius=2.0, max_entries=max_entries)
        np.testing.assert_allclose(grouped, whole, rtol=1e-12)


def test_mean_over_entries_is_the_sum_divided_by_their_number():
    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(20, 2)))
    total = local_jacobian_variance(features, inputs, radius=1.0)
    mean = local_jacobian_variance(features, inputs, radius=1.0, reduction="mean")
    np.testing.assert_allclose(mean * 6, total, rtol=1e-13)  # 3 features times 2 inputs


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16])
def test_affine_features_have_no_jacobian_variance(dtype):
    rng = np.random.default_rng(2)
    inputs = jnp.asarray(rng.normal(size=(300, 3)), dtype)
    weights, bias = jnp.asarray(rng.normal(size=(4, 3)), dtype), jnp.ones(4, dtype)
    found = local_jacobian_variance(lambda x: weights @ x + bias, inputs, radius=1.0, block_size=32)
    assert found.dtype == jnp.promote_types(dtype, jnp.float32)
    np.testing.assert_array_equal(found, np.zeros(300))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32, jnp.bfloat16])
def test_constant_predictions_have_no_kl_variance(dtype):
    inputs = jnp.linspace(0, 1, 300, dtype=dtype)
    dist = Gaussian(jnp.full(300, 1.3, dtype), jnp.full(300, -0.7, dtype))
    found = local_kl_variance(dist, inputs, radius=0.2, block_size=32)
    assert found.dtype == jnp.promote_types(dtype, jnp.float32)
    np.testing.assert_array_equal(found, np.zeros(300))


def test_float32_keeps_its_digits_where_the_local_variance_is_small():
    # A slope of 1e4 around which the Jacobian varies by 1e-6 of itself between the ball's ends.
    inputs = np.linspace(0, 1, 2000, dtype=np.float32)
    expected = direct_jacobian_variance(2e4 * inputs.astype(np.float64), inputs, 0.002)
    found = local_jacobian_variance(lambda x: 1e4 * x**2, jnp.asarray(inputs), radius=0.002)
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_radius_is_inclusive_and_a_lonely_point_has_no_variance():
    inputs = jnp.array([0.0, 1.0, 2.0, 10.0])
    found = local_jacobian_variance(lambda x: x**2, inputs, radius=1.0)
    # Jacobians 0, 2, 4, 20; balls {0,1}, {0,1,2}, {1,2}, {10}.
    np.testing.assert_allclose(found, [1, 8 / 3, 1, 0], rtol=1e-14)


def test_several_targets_add_their_divergences():
    rng = np.random.default_rng(3)
    mean, log_variance = rng.normal(size=(2, 25, 3))
    inputs = np.sort(rng.normal(size=25))
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    found = local_kl_variance(dist, jnp.asarray(inputs), radius=0.5)
    expected = direct_kl_variance(mean, log_variance, inputs, 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_a_bad_jacobian_is_loud_in_its_own_balls_only():
    inputs = jnp.array([0.0, 1.0, 2.0, 10.0, 11.0])
    found = local_jacobian_variance(lambda x: x * jnp.where(x == 0, jnp.nan, x), inputs, radius=1.0)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2:]).all()


def test_jit_and_vmap_agree_with_plain_calls():
    inputs = jnp.linspace(0, 3, 40)

    def both(scale):
        jacobian = local_jacobian_variance(lambda x: jnp.sin(scale * x), inputs, radius=0.3)
        dist = Gaussian(jnp.sin(scale * inputs), -scale * inputs)
        return jacobian, local_kl_variance(dist, inputs, radius=0.3, block_size=8)

    plain = [both(scale) for scale in (1.0, 2.0)]
    mapped = jax.jit(jax.vmap(both))(jnp.array([1.0, 2.0]))
    for i, values in enumerate(plain):
        for value, batch in zip(values, mapped, strict=True):
            np.testing.assert_allclose(batch[i], value, rtol=1e-10)


LARGE_RUN = """
import resource, sys
import jax, jax.numpy as jnp
from fisher8_jax import Gaussian
from benchmarks.machinery.local_variance import local_jacobian_variance, local_kl_variance
inputs = jnp.linspace(0.0, 12.0, 100_000)
weights, bias = 3 * jax.random.normal(jax.random.key(0), (2, 150))
jacobian = local_jacobian_variance(lambda x: jnp.tanh(weights * x + bias), inputs, radius=0.5)
dist = Gaussian(0.4 * jnp.sin(6.28 * inputs), jnp.cos(inputs) - 4)
kl = local_kl_variance(dist, inputs, radius=0.5)
assert jnp.isfinite(jacobian).all() and jnp.isfinite(kl).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_a_hundred_thousand_points_need_less_than_two_gibibytes():
    run = subprocess.run(
        [sys.executable, "-c", LARGE_RUN], capture_output=True, text=True, check=True
    )
    unit = 1024 if sys.platform == "darwin" else 1  # ru_maxrss is in bytes there, else in KiB
    peak_gib = float(run.stdout) / unit
    assert peak_gib < 2, f"peak of {peak_gib:.2f} GiB"
