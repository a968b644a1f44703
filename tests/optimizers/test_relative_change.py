"""How far a step may move the parameters in units of their size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from fisher8_jax import Gaussian
from fisher8_jax.optimizers import default_max_change, fisher8_optimizer, scale_by_kl_radius
from fisher8_jax.optimizers._relative_change import relative_change, typical_size
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network

INPUTS, TARGETS = make_batch(size=16)
predict = functools.partial(network, inputs=INPUTS)


def rms(leaf):
    return np.sqrt(np.mean(np.square(np.asarray(leaf, np.float64))))


def by_hand(updates, params, typical):
    pairs = zip(jax.tree.leaves(updates), jax.tree.leaves(params), strict=True)
    return max(rms(u) / max(rms(p), typical) for u, p in pairs)


def test_the_typical_size_is_the_geometric_mean_of_matrices():
    params = {"w": jnp.full((2, 3), 0.1), "v": jnp.full((3, 1), -0.4), "b": jnp.full(3, 7.0)}
    assert float(typical_size(params)) == pytest.approx(0.2)
    assert float(typical_size(params | {"zero": jnp.zeros((4, 4))})) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "params",
    [{"w": jnp.zeros((2, 2)), "b": jnp.full(3, 0.5)}, {"w": jnp.zeros((0, 3))}, jnp.zeros(2), {}],
)
def test_without_a_matrix_that_is_not_zero_one_is_typical(params):
    assert float(typical_size(params)) == 1


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_changes_neither_overflow_nor_vanish(size):
    params = {"w": jnp.full((2, 2), size, jnp.float32)}
    updates = {"w": jnp.full((2, 2), 0.25 * size, jnp.float32)}
    assert float(relative_change(updates, params, typical_size(params))) == pytest.approx(0.25)


def test_small_arrays_count_as_large_as_a_typical_one():
    params = {"w": jnp.full((2, 2), 0.5), "b": jnp.zeros(2), "s": jnp.array(1e-6)}
    updates = {"w": jnp.full((2, 2), 0.01), "b": jnp.full(2, 0.1), "s": jnp.array(0.2)}
    change = float(relative_change(updates, params, jnp.array(0.5)))
    assert change == pytest.approx(0.4)  # the scalar's, not 200,000


@functools.cache
def updated(max_change, max_kl=0.3, mode="target", exact=False):
    """A step along the gradient from the same start, and its state."""
    radius = scale_by_kl_radius(max_kl, max_change=max_change, mode=mode, exact=exact)
    params = make_params()
    updates = jax.tree.map(jnp.negative, fisher8_gradients(params, INPUTS, TARGETS))
    update = jax.jit(functools.partial(radius.update, predict=predict))
    return params, updates, *update(updates, radius.init(params), params)


def test_the_whole_step_is_shortened_and_keeps_its_direction():
    params, updates, free, _ = updated(None)
    _, _, bounded, state = updated(0.01)
    typical = np.sqrt(rms(params["w1"]) * rms(params["w2"]))
    assert by_hand(free, params, typical) > 0.1
    assert by_hand(bounded, params, typical) == pytest.approx(0.01, rel=1e-5)
    ratios = jax.tree.map(lambda a, b: np.asarray(a / b), bounded, updates)
    for ratio in jax.tree.leaves(ratios):
        np.testing.assert_allclose(ratio, np.ravel(ratios["w1"])[0], rtol=1e-5)
    assert float(state.change) == pytest.approx(0.01, rel=1e-5)
    assert float(state.wanted_change) == pytest.approx(by_hand(free, params, typical), rel=1e-5)


def test_measurements_are_those_of_the_step_that_was_taken():
    """The quadratic form falls with the square of the step."""
    _, _, _, state = updated(0.01)
    factor = float(state.change / state.wanted_change)
    assert float(state.quadratic_kl) == pytest.approx(0.3 * factor**2, rel=1e-5)


def test_a_loose_bound_changes_no_bit():
    _, _, free, _ = updated(None)
    _, _, bounded, state = updated(1e9)
    jax.tree.map(np.testing.assert_array_equal, bounded, free)
    assert float(state.change) == float(state.wanted_change)


def test_cap_and_exact_know_the_bound():
    _, updates, capped, _ = updated(1e-9, max_kl=1e9, mode="cap")
    assert rms(capped["w1"]) < rms(updates["w1"])
    _, _, _, state = updated(0.01, exact=True)
    assert float(state.exact_kl) == pytest.approx(float(state.quadratic_kl), rel=0.1)
    assert float(state.change) == pytest.approx(0.01, rel=1e-5)


def test_predictions_that_hardly_answer_do_not_stretch_the_step():
    """What the bound is for: with dead units the radius alone would leave the range of numbers."""
    params = {"w": jnp.full((3, 3), 0.5, jnp.float32)}

    def insensitive(params):
        return Gaussian(1e-25 * params["w"].sum() * jnp.ones(4), jnp.zeros(4))

    def step(max_change):
        radius = scale_by_kl_radius(0.3, max_change=max_change)
        return radius.update(params, radius.init(params), params, predict=insensitive)

    free, _ = step(None)
    bounded, state = step(0.1)
    assert np.abs(free["w"]).max() > 1e20
    np.testing.assert_allclose(bounded["w"], 0.05, rtol=1e-5)
    assert float(state.wanted_change) > 1e20
    assert np.isfinite(state.wanted_change)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_dtypes(dtype):
    params = make_params(dtype=dtype)
    gradients = jax.tree.map(jnp.ones_like, params)
    narrow = functools.partial(network, inputs=INPUTS.astype(dtype))
    optimizer = fisher8_optimizer(10, max_change=0.02)
    updates, state = optimizer.update(gradients, optimizer.init(params), params, predict=narrow)
    assert {leaf.dtype for leaf in jax.tree.leaves(updates)} == {jnp.dtype(dtype)}
    assert 0 < float(optax.tree_utils.tree_get(state, "change")) <= 0.0201


def test_scan_and_vmap_over_runs():
    """Every run has a bound of its own; the schedule is followed."""
    optimizer = fisher8_optimizer(5)

    def run(params):
        def step(carry, _):
            params, state = carry
            gradients = fisher8_gradients(params, INPUTS, TARGETS)
            updates, state = optimizer.update(gradients, state, params, predict=predict)
            return (optax.apply_updates(params, updates), state), optax.tree_utils.tree_get(
                state, "change"
            )

        return lax.scan(step, (params, optimizer.init(params)), length=5)[1]

    runs = [make_params(seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    changes = jax.jit(jax.vmap(run))(stacked)
    bounds = np.tile(default_max_change(np.arange(5)), (2, 1))
    assert np.all(np.asarray(changes) <= bounds * (1 + 1e-5))
    np.testing.assert_allclose(changes[1], jax.jit(run)(runs[1]), rtol=1e-4)


def test_without_a_matrix_there_is_no_bound():
    """No hidden units can die, and few parameters may have far to go."""
    params = {"log_scale": jnp.zeros(()), "bias": jnp.zeros(3)}

    def constant(params):
        return Gaussian(params["bias"], jnp.broadcast_to(params["log_scale"], (3,)))

    def step(max_change):
        optimizer = fisher8_optimizer(10, max_change=max_change)
        gradients = jax.tree.map(jnp.ones_like, params)
        return optimizer.update(gradients, optimizer.init(params), params, predict=constant)[0]

    jax.tree.map(np.testing.assert_array_equal, step(1e-6), step(None))


def test_errors():
    with pytest.raises(ValueError, match=r"`max_change` must be positive, got -0\.1"):
        scale_by_kl_radius(0.3, max_change=-0.1)
    with pytest.raises(TypeError, match="`max_change` must be a number, got"):
        fisher8_optimizer(10, max_change="0.1")
