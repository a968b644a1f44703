"""What a user may get wrong, and what targets outside the support do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import families as f8
from fisher8_jax import fisher8, fisher8_nll

ZERO = np.zeros(2)
OUTSIDE = {
    "LogNormal": (f8.LogNormal(ZERO, ZERO), -1.0, "positive finite numbers"),
    "Gamma": (f8.Gamma(ZERO, ZERO), 0.0, "positive finite numbers"),
    "Weibull": (f8.Weibull(ZERO, ZERO), -2.0, "positive finite numbers"),
    "Beta": (f8.Beta(ZERO, ZERO), 1.0, "strictly between 0 and 1"),
    "Poisson": (f8.Poisson(ZERO), 1.5, "whole numbers from 0"),
    "NegativeBinomial": (f8.NegativeBinomial(ZERO, ZERO), -1.0, "whole numbers from 0"),
    "ZeroInflatedPoisson": (f8.ZeroInflatedPoisson(ZERO, ZERO), 0.5, "whole numbers from 0"),
    "Bernoulli": (f8.Bernoulli(ZERO), 2.0, "numbers from 0 to 1"),
    "Categorical": (f8.Categorical(np.zeros((2, 3))), 3.0, "number of classes minus 1"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_targets_outside_the_support_are_loud(name):
    dist, bad, wanted = OUTSIDE[name]
    dist = jax.tree.map(jnp.asarray, dist)
    good = 0.5 if name == "Beta" else 1.0
    targets, where = jnp.asarray([good, bad]), jnp.asarray([True, False])

    @jax.jit
    def ask(dist):
        gradient = jax.grad(lambda d: fisher8_nll(d, targets).sum())(dist)
        masked = jax.grad(lambda d: fisher8_nll(d, targets, where=where).sum())(dist)
        return dist.nll(targets), gradient, masked

    values, gradient, masked = ask(dist)
    assert np.isfinite(values[0])
    assert values[1] == np.inf
    assert all(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(gradient))
    with pytest.raises(ValueError, match=f"`targets` of {name} must be .*{wanted}.*1 of 2"):
        dist.check_support(targets)
    dist.check_support(targets, where=where)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(masked))


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="`off_diagonal` batch"):
        _ = f8.MultivariateGaussian(
            jnp.zeros((4, 3)), jnp.zeros((4, 3)), jnp.zeros((4, 2))
        ).batch_shape
    with pytest.raises(ValueError, match=r"`factor` batch \+ \(d, r\)"):
        _ = f8.LowRankGaussian(jnp.zeros((4, 3)), jnp.zeros((4, 2)), jnp.zeros((4, 3))).batch_shape
    with pytest.raises(ValueError, match="use `Bernoulli`"):
        _ = f8.Categorical(jnp.zeros((4, 1))).batch_shape
    with pytest.raises(ValueError, match="`component_means` \\(4, 3\\)"):
        _ = f8.GaussianMixture(jnp.zeros((4, 2)), jnp.zeros((4, 3)), jnp.zeros((4, 2))).batch_shape
    with pytest.raises(ValueError, match="All parameters of a distribution must have the same"):
        f8.Gamma(jnp.zeros(3), jnp.zeros(2)).nll(jnp.ones(3))
    with pytest.raises(ValueError, match="`targets` must have the shape of the predictions"):
        f8.Poisson(jnp.zeros(3)).nll(jnp.ones((3, 1)))
    with pytest.raises(TypeError, match="`log_rate` must be a floating-point array"):
        f8.Poisson(jnp.zeros(3, int)).nll(jnp.ones(3))


def test_bad_hyper_parameters_are_named():
    with pytest.raises(ValueError, match="`df` must be positive, got -1"):
        f8.StudentT(jnp.zeros(1), jnp.zeros(1), df=-1)
    with pytest.raises(ValueError, match="`damping` must be positive, got 0"):
        f8.LowRankGaussian(jnp.zeros(2), jnp.zeros((2, 1)), jnp.zeros(2), damping=0)


def test_integer_targets_are_counts_and_classes():
    counts = jnp.asarray([0, 3])
    np.testing.assert_allclose(
        f8.Poisson(jnp.zeros(2)).nll(counts), f8.Poisson(jnp.zeros(2)).nll(counts.astype(float))
    )
    dist = f8.Categorical(jnp.asarray([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(dist.nll(jnp.asarray([2, 0])), dist.nll(jnp.asarray([2.0, 0.0])))


def test_classes_share_a_norm_and_never_move_the_mean_of_the_logits():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    targets = jnp.asarray([0, 1, 2, 2, 1])
    gradient = jax.grad(lambda x: fisher8(f8.Categorical(x)).nll(targets).mean())(logits)
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(gradient), 1)


def test_a_diagonal_factor_trains_as_separate_gaussians():
    rng = np.random.default_rng(1)
    mean, log_diagonal, targets = map(jnp.asarray, rng.normal(size=(3, 6, 2)))

    def joint(mean, log_diagonal):
        dist = f8.MultivariateGaussian(mean, log_diagonal, jnp.zeros((6, 1)))
        return fisher8_nll(dist, targets).sum()

    def separate(mean, log_diagonal):
        return fisher8_nll(f8.Gaussian(mean, 2 * log_diagonal), targets).sum()

    both = [jax.jit(jax.grad(loss, (0, 1)))(mean, log_diagonal) for loss in (joint, separate)]
    for got, expected in zip(*both, strict=True):
        # d log_variance = 2 d log_diagonal scales a whole column, which the norm removes but for
        # the factor of the chain rule.
        ratio = np.asarray(got / expected)
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0, 0], ratio.shape), rtol=1e-9)
