"""The regularised objective and its search line."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machinery.losses.wong_toi import wong_toi, wong_toi_penalty
from fisher8_jax import Gaussian
from fisher8_jax.losses import unit_variance

RNG = np.random.default_rng(5)
MEAN, S, Y = RNG.normal(size=(3, 12))
KERNELS = [RNG.normal(size=shape) for shape in ((3, 4), (4, 1), (2, 3, 3))]


def params(first, second):
    return {"first": {"kernel": first, "bias": jnp.ones(4)}, "second": (second, jnp.ones(()))}


def test_objective_by_hand():
    rho, gamma = 0.7, 0.2
    precision = np.exp(-S)
    data = np.mean(precision * (Y - MEAN) ** 2 - np.log(precision))
    squares = [np.sum(k**2) for k in KERNELS]
    expected = rho * data + (1 - rho) * (
        gamma * (squares[0] + squares[1]) + (1 - gamma) * squares[2]
    )
    values = wong_toi(Gaussian(jnp.asarray(MEAN), jnp.asarray(S)), jnp.asarray(Y), rho=rho)
    penalty = wong_toi_penalty(params(KERNELS[0], KERNELS[1]), [KERNELS[2]], rho=rho, gamma=gamma)
    np.testing.assert_allclose(values.mean() + penalty, expected, rtol=1e-12)


def test_gradients_by_hand():
    def total(mean, s):
        return wong_toi(Gaussian(mean, s), jnp.asarray(Y), rho=0.7).sum()

    by_mean, by_s = jax.grad(total, (0, 1))(jnp.asarray(MEAN), jnp.asarray(S))
    np.testing.assert_allclose(by_mean, 1.4 * np.exp(-S) * (MEAN - Y), rtol=1e-12)
    np.testing.assert_allclose(by_s, 0.7 * (1 - (Y - MEAN) ** 2 * np.exp(-S)), rtol=1e-11)


def test_biases_are_free():
    tree = params(jnp.asarray(KERNELS[0]), jnp.asarray(KERNELS[1]))
    gradient = jax.grad(lambda p: wong_toi_penalty(p, {}, rho=0.5, gamma=0.5))(tree)
    np.testing.assert_allclose(gradient["first"]["kernel"], 0.5 * KERNELS[0], rtol=1e-12)
    np.testing.assert_array_equal(gradient["first"]["bias"], 0)
    np.testing.assert_array_equal(gradient["second"][1], 0)


def test_penalties_relative_to_the_data_term():
    """Divided by rho: (1-rho) gamma / rho on the mean, (1-rho)(1-gamma) / rho on the precision."""
    rho, gamma = 0.8, 0.3
    mean_only = wong_toi_penalty([KERNELS[0]], {}, rho=rho, gamma=gamma) / rho
    precision_only = wong_toi_penalty({}, [KERNELS[0]], rho=rho, gamma=gamma) / rho
    squares = np.sum(KERNELS[0] ** 2)
    np.testing.assert_allclose(mean_only / squares, 0.075, rtol=1e-12)  # 0.2 * 0.3 / 0.8
    np.testing.assert_allclose(precision_only / squares, 0.175, rtol=1e-12)  # 0.2 * 0.7 / 0.8


def test_chosen_leaves_only():
    tree = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(3)}
    everything = wong_toi_penalty(tree, {}, rho=0.5, gamma=0.5, is_weight=lambda leaf: True)
    np.testing.assert_allclose(everything, 0.25 * 7)
    assert wong_toi_penalty({}, {}) == 0


def test_warm_up_is_unit_variance():
    """Precision 1: the data term is twice half the squared error, times rho."""
    warm = Gaussian(jnp.asarray(MEAN), jnp.zeros(12))
    np.testing.assert_allclose(
        wong_toi(warm, jnp.asarray(Y), rho=0.5), unit_variance(warm, jnp.asarray(Y)), rtol=1e-12
    )


def test_jit_with_traced_strengths():
    tree = [jnp.asarray(KERNELS[0])]
    function = jax.jit(lambda gamma: wong_toi_penalty(tree, tree, rho=1 - gamma, gamma=gamma))
    np.testing.assert_allclose(
        function(0.3), wong_toi_penalty(tree, tree, rho=0.7, gamma=0.3), rtol=1e-12
    )
    for dtype in (jnp.float32, jnp.bfloat16):
        narrow = wong_toi_penalty([jnp.ones((2, 2), dtype)], {}, rho=0.5, gamma=0.5)
        assert narrow.dtype == dtype
        assert narrow == 1
