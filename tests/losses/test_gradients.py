"""The gradient of every loss against formulas derived by hand, and the limits between methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.losses import beta_nll, faithful, nll
from fisher8_jax.losses._losses import natural_gradient, unit_variance

RNG = np.random.default_rng(1)
MEAN, S, Y = RNG.normal(size=(3, 7, 2))
VARIANCE = np.exp(S)
Z2 = (Y - MEAN) ** 2 / VARIANCE


def gradients(loss, mean=MEAN, log_variance=S, targets=Y, **hyperparameters):
    """The gradient of the summed loss with respect to mean and log-variance."""

    def total(mean, log_variance):
        return loss(Gaussian(mean, log_variance), jnp.asarray(targets), **hyperparameters).sum()

    return jax.grad(total, (0, 1))(jnp.asarray(mean), jnp.asarray(log_variance))


def unit_columns(x):
    return x / np.sqrt(np.sum(x**2, axis=0))


BY_HAND = {
    "unit_variance": (unit_variance, {}, MEAN - Y, np.zeros_like(S)),
    "nll": (nll, {}, (MEAN - Y) / VARIANCE, (1 - Z2) / 2),
    "beta_nll": (
        beta_nll,
        {"beta": 0.3},
        VARIANCE**0.3 * (MEAN - Y) / VARIANCE,
        VARIANCE**0.3 * (1 - Z2) / 2,
    ),
    "faithful": (faithful, {}, MEAN - Y, (1 - Z2) / 2),
    "natural_gradient": (natural_gradient, {}, MEAN - Y, 1 - Z2),
    "fisher8": (fisher8_nll, {}, unit_columns(MEAN - Y), unit_columns(1 - Z2)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_gradients_are_those_derived_by_hand(name):
    loss, hyperparameters, mean_gradient, scale_gradient = BY_HAND[name]
    actual = gradients(loss, **hyperparameters)
    np.testing.assert_allclose(actual[0], mean_gradient, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(actual[1], scale_gradient, rtol=1e-12, atol=1e-14)


def test_values_equal_scipy():
    expected_nll = -scipy.stats.norm(MEAN, np.exp(S / 2)).logpdf(Y)
    dist, targets = Gaussian(jnp.asarray(MEAN), jnp.asarray(S)), jnp.asarray(Y)
    squares = (Y - MEAN) ** 2 / 2
    expected = {
        unit_variance: squares,
        nll: expected_nll,
        natural_gradient: expected_nll,
        fisher8_nll: expected_nll,
        faithful: squares + expected_nll,
    }
    for loss, values in expected.items():
        np.testing.assert_allclose(loss(dist, targets), values, rtol=1e-12)
    np.testing.assert_allclose(
        beta_nll(dist, targets, beta=0.3), VARIANCE**0.3 * expected_nll, rtol=1e-12, atol=1e-14
    )
    without = nll(dist, targets, constant=False)
    np.testing.assert_allclose(
        without, expected_nll - np.log(2 * np.pi) / 2, rtol=1e-12, atol=1e-14
    )


def test_beta_0_is_the_nll():
    dist, targets = Gaussian(jnp.asarray(MEAN), jnp.asarray(S)), jnp.asarray(Y)
    np.testing.assert_allclose(beta_nll(dist, targets, beta=0.0), nll(dist, targets), rtol=1e-14)
    for actual, expected in zip(gradients(beta_nll, beta=0.0), gradients(nll), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_beta_1_gives_the_mean_gradient_of_unit_variance():
    actual, expected = gradients(beta_nll, beta=1.0)[0], gradients(unit_variance)[0]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("s", [-160.0, -60.0, 60.0, 160.0])
def test_beta_1_holds_at_variances_that_overflow_in_float32(s):
    mean, targets = jnp.zeros(3, jnp.float32), jnp.array([0.5, 1, 2], jnp.float32)
    actual, _ = gradients(beta_nll, mean, jnp.full(3, s, jnp.float32), targets, beta=jnp.float32(1))
    np.testing.assert_array_equal(actual, mean - targets)


def test_beta_may_be_traced_or_vary_by_element():
    dist, targets = Gaussian(jnp.asarray(MEAN), jnp.asarray(S)), jnp.asarray(Y)
    schedule = jax.jit(lambda step: beta_nll(dist, targets, beta=1 - step / 4))
    np.testing.assert_allclose(schedule(1), beta_nll(dist, targets, beta=0.75), rtol=1e-14)
    per_column = beta_nll(dist, targets, beta=jnp.array([[0.0, 1.0]]))
    np.testing.assert_allclose(
        per_column[:, 0], beta_nll(dist, targets, beta=0.0)[:, 0], rtol=1e-14
    )
    np.testing.assert_allclose(
        per_column[:, 1], beta_nll(dist, targets, beta=1.0)[:, 1], rtol=1e-14
    )


def test_beta_nll_weight_is_a_constant():
    """Without the stop the scale gradient would carry an extra beta * variance^beta * nll."""
    actual = gradients(beta_nll, beta=0.5)[1]
    expected_nll = -scipy.stats.norm(MEAN, np.exp(S / 2)).logpdf(Y)
    unstopped = VARIANCE**0.5 * ((1 - Z2) / 2 + 0.5 * expected_nll)
    assert np.abs(actual - unstopped).max() > 0.1


def trunk_gradients(loss, *, stops):
    """Gradients of a network with one shared layer and two heads, under the mean of a loss."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "trunk": jax.random.normal(keys[0], (3, 5)),
        "mean": jax.random.normal(keys[1], (5,)),
        "scale": jax.random.normal(keys[2], (5,)),
    }
    inputs, targets = jnp.asarray(RNG.normal(size=(11, 3))), jnp.linspace(-1, 1, 11)

    def total(params):
        features = jnp.tanh(inputs @ params["trunk"])
        scale_features = jax.lax.stop_gradient(features) if stops else features
        dist = Gaussian(features @ params["mean"], scale_features @ params["scale"])
        return loss(dist, targets).mean()

    return jax.grad(total)(params)


def test_faithful_and_unit_variance_take_identical_mean_steps():
    state = RNG.bit_generator.state
    reference = trunk_gradients(unit_variance, stops=False)
    RNG.bit_generator.state = state
    actual = trunk_gradients(faithful, stops=True)
    np.testing.assert_array_equal(actual["trunk"], reference["trunk"])
    np.testing.assert_array_equal(actual["mean"], reference["mean"])
    assert np.abs(actual["scale"]).min() > 0
    RNG.bit_generator.state = state
    shared = trunk_gradients(faithful, stops=False)
    np.testing.assert_array_equal(shared["mean"], reference["mean"])
    assert np.abs(shared["trunk"] - reference["trunk"]).max() > 1e-3


def test_nll_equals_the_formula_in_natural_parameters():
    eta1, eta2 = MEAN / VARIANCE, -0.5 / VARIANCE

    def literal(eta1, eta2):
        log_density = Y * eta1 + Y**2 * eta2 + eta1**2 / (4 * eta2) + 0.5 * jnp.log(-2 * eta2)
        return -(log_density - 0.5 * jnp.log(2 * jnp.pi))

    def through_the_loss(eta1, eta2):
        return nll(Gaussian(-eta1 / (2 * eta2), -jnp.log(-2 * eta2)), jnp.asarray(Y))

    np.testing.assert_allclose(through_the_loss(eta1, eta2), literal(eta1, eta2), rtol=1e-10)
    for loss in (literal, through_the_loss):
        by_eta1, by_eta2 = jax.grad(lambda *eta, loss=loss: loss(*eta).sum(), (0, 1))(eta1, eta2)
        np.testing.assert_allclose(by_eta1, MEAN - Y, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(by_eta2, MEAN**2 + VARIANCE - Y**2, rtol=1e-9, atol=1e-12)


def test_fisher8_without_normalisation_is_the_natural_gradient():
    plain = gradients(fisher8_nll, normalize=False)
    for actual, expected in zip(plain, gradients(natural_gradient), strict=True):
        np.testing.assert_array_equal(actual, expected)
    for actual, expected in zip(plain, (MEAN - Y, 1 - Z2), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_natural_gradient_moves_the_moments_towards_those_of_the_data():
    """One component of expectation maximisation: d mean = y - mean, d var = (y - mean)^2 - var."""
    step = 1e-6
    mean_gradient, scale_gradient = gradients(natural_gradient)
    moved = Gaussian(MEAN - step * mean_gradient, S - step * scale_gradient)
    np.testing.assert_allclose((moved.mean - MEAN) / step, Y - MEAN, atol=1e-8)
    np.testing.assert_allclose(
        (moved.variance - VARIANCE) / step, (Y - MEAN) ** 2 - VARIANCE, rtol=1e-4, atol=1e-4
    )


def test_fisher8_is_the_normalised_natural_gradient():
    natural = gradients(natural_gradient)
    for actual, vector in zip(gradients(fisher8_nll), natural, strict=True):
        np.testing.assert_allclose(actual, unit_columns(np.asarray(vector)), rtol=1e-12)
