"""The square root of the Fisher information where a dense factorisation would fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import families as f8
from fisher8_jax.families._contract import dense_fisher


@pytest.mark.parametrize("log_variance", [-60.0, -30.0, 0.0, 30.0, 60.0])
@pytest.mark.parametrize("family", [f8.Gaussian, f8.LogNormal])
def test_wide_ranges_of_the_variance_in_float32(family, log_variance):
    dist = family(jnp.zeros(2, jnp.float32), jnp.full(2, log_variance, jnp.float32))
    factor = dist.fisher_factor()
    assert factor.dtype == jnp.float32
    expected = np.diag([np.exp(-log_variance / 2), np.sqrt(0.5)])
    np.testing.assert_allclose(factor, np.stack([expected] * 2), rtol=1e-5)


def test_logits_far_apart_stay_finite_and_right():
    logits = jnp.array([[0.0, -300.0, 5.0, -20.0]])
    factor = f8.Categorical(logits).fisher_factor()
    p = jax.nn.softmax(logits[0])
    np.testing.assert_allclose(
        factor[0] @ factor[0].T, jnp.diag(p) - jnp.outer(p, p), rtol=1e-12, atol=1e-300
    )
    narrow = f8.Categorical(logits.astype(jnp.float32)).fisher_factor()
    np.testing.assert_allclose(narrow, factor, rtol=1e-4, atol=1e-30)


def test_low_rank_with_a_null_space_has_a_finite_factor():
    rng = np.random.default_rng(0)
    mean, factor, log_diagonal = (rng.normal(size=s) for s in ((2, 3), (2, 3, 2), (2, 3)))
    dist = f8.LowRankGaussian(*map(jnp.asarray, (mean, factor, log_diagonal)))
    lower = dist.fisher_factor()
    np.testing.assert_allclose(lower @ jnp.swapaxes(lower, -1, -2), dense_fisher(dist), atol=1e-10)
    # Of 12 coordinates, 3 move the mean and 6 the covariance; the others change nothing.
    assert np.linalg.matrix_rank(dense_fisher(dist)[0]) == 9


def test_default_from_unit_tangents_equals_the_closed_form_under_jit_and_vmap():
    dist = f8.Weibull(jnp.array([0.0, 25.0]), jnp.array([-3.0, 12.0]))
    default = jax.jit(f8.Family.fisher_factor)(dist)
    np.testing.assert_allclose(default, dist.fisher_factor(), rtol=1e-9)
    one_by_one = jax.vmap(lambda d: d.fisher_factor())(dist)
    np.testing.assert_allclose(one_by_one, dist.fisher_factor(), rtol=1e-12)


def test_vectors_hold_the_fields_in_order_and_go_back():
    dist = f8.LowRankGaussian(
        jnp.arange(4.0).reshape(2, 2), jnp.arange(12.0).reshape(2, 2, 3), jnp.full((2, 2), 9.0)
    )
    vector = dist.to_vector()
    np.testing.assert_array_equal(vector[1], [2, 3, 6, 7, 8, 9, 10, 11, 9, 9])
    assert jax.tree.all(jax.tree.map(jnp.array_equal, dist.from_vector(vector), dist))
    with pytest.raises(ValueError, match="`vector` must have the shape"):
        dist.from_vector(vector[0])
