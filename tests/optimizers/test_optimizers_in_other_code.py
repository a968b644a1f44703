"""The default optimizers as others use them: wrapped, past their budget, with wrong trees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import Gaussian, network_optimizer
from fisher8_jax.optimizers import fisher8_optimizer, scale_by_kl_radius
from tests.optimizers.network import exact_kl, fisher8_gradients, make_batch, make_params, network

INPUTS, TARGETS = make_batch(size=16)
predict = functools.partial(network, inputs=INPUTS)
OPTIMIZERS = {"first order": fisher8_optimizer, "whole network": network_optimizer}


@functools.cache
def gradients():
    return fisher8_gradients(make_params(), INPUTS, TARGETS)


def run(optimizer, steps):
    """Parameters after some steps along the same gradient, the last update and the state."""
    params, found = make_params(), gradients()

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(found, state, params, predict=predict)
        return optax.apply_updates(params, updates), updates, state

    state = optimizer.init(params)
    for _ in range(steps):
        params, updates, state = step(params, state)
    return params, updates, state


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_updates_are_exactly_zero_after_the_budget(make):
    _, last, _ = run(make(3), 3)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(last))
    for steps in (4, 7):
        _, after, state = run(make(3), steps)
        assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(after))
        assert int(optax.tree_utils.tree_get(state, "skipped")) == 0


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_inject_hyperparams(make):
    """All numbers become arrays that may be changed between steps, also the budget."""
    plain, _, _ = run(make(10), 3)
    injected, _, state = run(optax.inject_hyperparams(make)(10), 3)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), injected, plain)
    assert int(state.hyperparams["num_steps"]) == 10
    assert ("momentum" in state.hyperparams) == (make is fisher8_optimizer)
    optimizer = optax.inject_hyperparams(make)(10, max_kl=0.3)
    params, state = make_params(), optimizer.init(make_params())
    state.hyperparams["max_kl"] = jnp.array(0.3e-4)
    updates, state = optimizer.update(gradients(), state, params, predict=predict)
    assert float(optax.tree_utils.tree_get(state, "quadratic_kl")) <= 0.301e-4
    assert np.abs(updates["w1"]).max() > 0


def test_an_equinox_model_is_no_tree_of_arrays():
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(3, 2, 8, 1, activation=jax.nn.relu, key=jax.random.key(0))
    with pytest.raises(TypeError, match=r"leaf \.activation is .*eqx\.partition\(model"):
        fisher8_optimizer(10).init(model)
    fisher8_optimizer(10).init(eqx.filter(model, eqx.is_inexact_array))


def test_gradients_of_another_structure_are_named():
    optimizer, params = fisher8_optimizer(10), make_params()
    state = optimizer.init(params)
    with pytest.raises(ValueError, match="`updates` and `params` must be trees of the same struct"):
        optimizer.update(jax.tree.leaves(gradients()), state, params, predict=predict)
    with pytest.raises(TypeError, match=r"its leaf \[0\] is 'weights'"):
        optimizer.init(["weights"])


@pytest.mark.parametrize("max_kl", [1e-3, 1e-5, 1e-7])
def test_exact_is_right_at_tiny_radii_in_float32(max_kl):
    """The measured divergence, and that of the step taken, recomputed in float64."""
    params, (inputs, targets) = make_params(dtype=jnp.float32), make_batch(dtype=jnp.float32)
    narrow = functools.partial(network, inputs=inputs)
    updates = jax.tree.map(jnp.negative, fisher8_gradients(params, inputs, targets))
    radius = scale_by_kl_radius(max_kl, exact=True)
    update = jax.jit(functools.partial(radius.update, predict=narrow))
    scaled, state = update(updates, radius.init(params), params)
    moved = optax.apply_updates(params, scaled)  # as float32 rounds it
    wide, step = (jax.tree.map(lambda x: np.asarray(x, np.float64), t) for t in (params, moved))
    taken = jax.tree.map(np.subtract, step, wide)
    true = exact_kl(wide, taken, np.asarray(inputs, np.float64))
    assert float(state.exact_kl) == pytest.approx(true, rel=0.01)
    assert 0.5 * max_kl < true <= 1.01 * max_kl
    assert int(state.skipped) == 0


def test_a_constant_network_has_nothing_to_measure():
    """Every step is dropped and counted instead of being stretched."""
    optimizer, params = fisher8_optimizer(10), make_params()

    def dead(p):
        return Gaussian(jnp.zeros(16), 0 * p["b2"].sum() * jnp.ones(16))

    updates, state = optimizer.update(gradients(), optimizer.init(params), params, predict=dead)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(updates))
    assert int(optax.tree_utils.tree_get(state, "skipped")) == 1
