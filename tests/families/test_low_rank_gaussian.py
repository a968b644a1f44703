"""A nearly singular low-rank Gaussian, which the conformance suite does not ask for."""

import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax.families import LowRankGaussian


@pytest.mark.parametrize("log_diagonal", [-5.0, -15.0, -25.0])
def test_nll_of_a_nearly_singular_covariance_in_float32(log_diagonal):
    """Mahalanobis distances are not negative, however small the diagonal beside the factor."""
    rng = np.random.default_rng(0)
    factor, targets = rng.normal(size=(200, 3, 1)), rng.normal(size=(200, 3))
    targets[100:] = factor[100:, :, 0] * rng.normal(size=(100, 1))  # along the factor
    diagonal = np.full((200, 3), log_diagonal)
    narrow = [jnp.asarray(x, jnp.float32) for x in (np.zeros((200, 3)), factor, diagonal)]
    values = LowRankGaussian(*narrow).nll(jnp.asarray(targets, jnp.float32))
    # The same float32 inputs in float64, by a dense solve.
    w, y = (np.asarray(np.float32(x), np.float64) for x in (factor, targets))
    covariance = w @ w.transpose(0, 2, 1) + np.exp(np.float64(np.float32(log_diagonal))) * np.eye(3)
    distance = np.einsum("ni,ni->n", y, np.linalg.solve(covariance, y[..., None])[..., 0])
    expected = 0.5 * (distance + np.linalg.slogdet(covariance)[1] + 3 * np.log(2 * np.pi))
    # Along the factor own residuals are rounding errors of the targets over a tiny diagonal.
    slack = 0.5 * 3 * (2.0**-22 * np.abs(y).max()) ** 2 * np.exp(-log_diagonal)
    np.testing.assert_allclose(values, expected, rtol=2e-3, atol=1e-3 + slack)


def test_the_natural_gradient_is_not_damped():
    """Against the pseudo-inverse: `natural(fisher(t))` moves the covariance as `t` does."""
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape) for shape in ((4, 6), (4, 6, 2), (4, 6))]
    tangents = [rng.normal(size=shape) for shape in ((4, 6), (4, 6, 2), (4, 6))]
    dist, tangent = (
        LowRankGaussian(*map(jnp.asarray, arrays)),
        LowRankGaussian(*map(jnp.asarray, tangents)),
    )
    back = dist.natural(dist.fisher(tangent))
    expected = dist._covariance_step(tangent)
    np.testing.assert_allclose(dist._covariance_step(back), expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(back.mean, tangent.mean, rtol=1e-9)
