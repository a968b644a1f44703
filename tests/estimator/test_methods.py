"""The estimator's ways to train, step by step beside the functions they are made of."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import Gaussian
from fisher8_jax.curvature import GradientState, network_gradient
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.estimator._methods import METHODS, Settings, make_task
from fisher8_jax.estimator._network import Network, link_of
from fisher8_jax.optimizers import descend_within, scale_by_kl_radius
from fisher8_jax.training import Batch, Lane, Leaves, update

STEPS = 4


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(STEPS, 16, 3)).astype(np.float32)
    return [Batch(jnp.asarray(x), jnp.asarray(x[:, 0] + 0.1 * x[:, 1])) for x in inputs]


@pytest.mark.parametrize("factored", [False, True])
def test_the_whole_network_s_steps_are_those_of_its_gradient(batches, factored):
    """The second moments of a step reach the next one through the optimiser's state."""
    method = METHODS["network_factored" if factored else "network_damped"]
    network = Network((4,), link_of(Gaussian), ())
    params = network.init(np.random.default_rng(1), 3, {})
    settings = Settings(jnp.float32(method.size), jnp.float32(method.damping), jnp.float32(10))
    task = make_task(network, method, average=1.0)
    optimizer = task.full_optimizer(settings)
    leaves = Leaves(params, None, optimizer.init(params))
    lane = Lane(settings, jax.random.key(0))
    for step, batch in enumerate(batches):
        leaves, _ = update(task, leaves, lane, batch, jnp.asarray(step))

    radius = scale_by_kl_radius(lambda count: method.size * (1 - count / 10) ** 2)
    by_hand = descend_within(radius, 0.0, None)
    state = by_hand.init(params)
    remembered = GradientState.zeros(params, second_moments=factored)
    for batch in batches:
        found = network_gradient(
            network.predict,
            params,
            batch.inputs,
            batch.targets,
            damping=method.damping,
            state=remembered,
        )
        remembered = found.state
        updates, state = by_hand.update(found.gradient, state, params, step_kl=found.step_kl)
        params = optax.apply_updates(params, updates)
    chex.assert_trees_all_close(leaves.params, params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_learns(name):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (150, 2))
    targets = 3 * inputs[:, 0] + 0.1 * rng.normal(size=150)
    model = Fisher8Regressor(
        methods=name, n_members=1, hidden_layer_sizes=(8,), max_steps=2000, random_state=0
    )
    assert model.fit(inputs, targets).score(inputs, targets) > 0.9
    assert model.method_ == name
