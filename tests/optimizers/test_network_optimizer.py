"""The default optimizer of parameter-space gradients: a known movement, the guard."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import network_gradient
from fisher8_jax.optimizers import (
    network_max_kl,
    network_optimizer,
    scale_by_kl_radius,
)
from tests.problem import make_problem, predict

PARAMS, X, Y = make_problem(rows=8)


@functools.cache
def first_step():
    return jax.jit(lambda p: network_gradient(predict, p, X, Y, damping=0.1))(PARAMS)


def test_a_known_movement_gives_the_step_that_is_measured():
    step = first_step()
    optimizer = optax.chain(optax.scale(-1.0), scale_by_kl_radius(0.02))
    update = functools.partial(optimizer.update, step.gradient, optimizer.init(PARAMS), PARAMS)
    known, state = update(step_kl=step.step_kl)
    measured, other = update(predict=lambda p: predict(p, X))
    for ours, theirs in zip(jax.tree.leaves(known), jax.tree.leaves(measured), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)
    for name in ("scale", "quadratic_kl"):
        ours, theirs = (optax.tree_utils.tree_get(s, name) for s in (state, other))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_exact_shortens_a_step_whose_movement_is_known():
    step = first_step()
    optimizer = network_optimizer(10, max_kl=0.5, exact=True)
    _, state = optimizer.update(
        step.gradient,
        optimizer.init(PARAMS),
        PARAMS,
        step_kl=step.step_kl,
        predict=lambda p: predict(p, X),
    )
    assert 0 < optax.tree_utils.tree_get(state, "exact_kl") <= 0.5


def test_the_radius_drops_what_is_not_finite():
    optimizer = network_optimizer(10)
    state = optimizer.init(PARAMS)
    broken = jax.tree.map(jnp.ones_like, PARAMS)
    first, *rest = jax.tree.leaves(broken)
    broken = jax.tree.unflatten(jax.tree.structure(broken), [first.at[0].set(jnp.inf), *rest])
    updates, state = optimizer.update(broken, state, PARAMS, step_kl=jnp.asarray(0.5))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(updates))
    assert optax.tree_utils.tree_get(state, "skipped") == 1
    average = optax.tree_utils.tree_get(state, "average")
    for ours, theirs in zip(jax.tree.leaves(average), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def move(optimizer, params, steps=3):
    """Steps along a gradient of ones, with a movement of half a nat; all parameters on the way."""
    state, visited = optimizer.init(params), []
    for _ in range(steps):
        ones = jax.tree.map(jnp.ones_like, params)
        updates, state = optimizer.update(ones, state, params, step_kl=jnp.asarray(0.5))
        params = optax.apply_updates(params, updates)
        visited.append(params)
    return state, visited


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_it_averages_over_a_tenth_of_its_steps(dtype):
    """The average of the visited parameters with weights that fall by 1 - 1 / (30 / 10) a step."""
    params = {"kernel": jnp.arange(6.0, dtype=dtype).reshape(2, 3)}
    state, visited = move(network_optimizer(30), params)
    average = optax.tree_utils.tree_get(state, "average")["kernel"]
    weights = (2 / 3) ** np.array([2.0, 1.0, 0.0])
    stacked = np.stack([np.asarray(v["kernel"], np.float64) for v in visited])
    assert average.dtype == jnp.float32
    np.testing.assert_allclose(average, np.average(stacked, axis=0, weights=weights), rtol=1e-6)


def test_the_average_may_be_left_out_and_never_changes_a_step():
    params = {"kernel": jnp.ones((2, 3))}
    state, visited = move(network_optimizer(30, average=None), params)
    assert optax.tree_utils.tree_get(state, "average") is None
    _, others = move(network_optimizer(30, average=0.5), params)
    np.testing.assert_array_equal(visited[-1]["kernel"], others[-1]["kernel"])


def test_budgets_known_only_to_the_program_have_averages_of_their_own():
    params = {"kernel": jnp.ones((2, 3))}

    @jax.jit
    @jax.vmap
    def averages(steps):
        state, _ = move(network_optimizer(steps), params)
        return optax.tree_utils.tree_get(state, "average")

    together = averages(jnp.array([5, 30]))["kernel"]
    for steps, ours in zip((5, 30), together, strict=True):
        state, _ = move(network_optimizer(steps), params)
        alone = optax.tree_utils.tree_get(state, "average")["kernel"]
        np.testing.assert_allclose(ours, alone, rtol=1e-6)


def test_the_radius_falls_with_the_budget():
    assert network_max_kl(100) == 1.0
    assert network_max_kl(20_000) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: network_optimizer(0), "`num_steps` must be a positive integer"),
        (lambda: network_optimizer(10, max_kl=0.0), "`max_kl` must be positive"),
        (lambda: network_optimizer(10, average=1.0), "`average` must"),
        (
            lambda: network_optimizer(10).update(
                PARAMS, network_optimizer(10).init(PARAMS), PARAMS
            ),
            "`network_optimizer` needs `step_kl`.*step_kl=step.step_kl",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_cap_never_lengthens_the_natural_gradient():
    optimizer = network_optimizer(10, max_kl=0.5, mode="cap")
    gradient = jax.tree.map(jnp.ones_like, PARAMS)
    for step_kl, factor in ((0.02, 1.0), (2.0, 0.5)):  # half the radius' root
        updates, _ = optimizer.update(
            gradient, optimizer.init(PARAMS), PARAMS, step_kl=jnp.asarray(step_kl)
        )
        for leaf in jax.tree.leaves(updates):
            np.testing.assert_allclose(leaf, -factor, rtol=1e-6)
