"""One loop trains every method: no method has a loop of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.machinery.losses.objective import LOSSES, make_objective
from fisher8_jax import Gaussian

NUM_POINTS, BATCH, EPOCHS, HIDDEN = 48, 12, 30, 8
STEPS_PER_EPOCH = NUM_POINTS // BATCH

# A head and hyper-parameters per method are data; the loop does not look at the name.
HEADS = {"nll": Gaussian.from_natural}
HYPERPARAMETERS = {
    "collier": {"temperature": 0.1, "num_samples": 32},
    "wong_toi": {"rho": 0.99, "gamma": 0.01},
    "trustable": {"step_size": 0.3, "mean_bound": 1.0, "scale_bound": 0.25},
}


def init_network(rng):
    arrays = {
        "in": rng.normal(size=(1, HIDDEN)),
        "bias": np.zeros(HIDDEN),
        "out": 0.1 * rng.normal(size=(HIDDEN, 1)),
    }
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), arrays)


def init_seed(seed):
    """Parameters, the order of the points in every epoch, and a key per step."""
    rng = np.random.default_rng(seed)
    params = {"mean": init_network(rng), "scale": init_network(rng)}
    order = np.stack([rng.permutation(NUM_POINTS) for _ in range(EPOCHS)])
    keys = jax.random.split(jax.random.key(seed), (EPOCHS, STEPS_PER_EPOCH))
    return params, jnp.asarray(order.reshape(EPOCHS, STEPS_PER_EPOCH, BATCH)), keys


def apply_network(params, x):
    hidden = jnp.tanh(x @ params["in"] + params["bias"][None])
    return (hidden @ params["out"])[:, 0]


def train(objective, head, x, y, params, order, keys):
    """Trains two small networks; returns the final and the initial predictions and the state."""
    optimizer = optax.adam(0.03)

    def predict(params, x):
        return head(apply_network(params["mean"], x), apply_network(params["scale"], x))

    def loss_of(params, state, indices, key):
        dist = predict(params, x[indices])
        values = objective.values(state, dist, y[indices], indices=indices, key=key)
        return values.mean() + objective.penalty(params["mean"], params["scale"])

    def step(carry, inputs):
        params, optimizer_state, state = carry
        gradients = jax.grad(loss_of)(params, state, *inputs)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        return (optax.apply_updates(params, updates), optimizer_state, state), None

    def epoch(carry, batches):
        params, optimizer_state, state = carry
        state = objective.refresh(state, predict(params, x))
        return jax.lax.scan(step, (params, optimizer_state, state), batches)

    carry = params, optimizer.init(params), objective.init(predict(params, x))
    (trained, _, state), _ = jax.lax.scan(epoch, carry, (order, keys))
    return predict(trained, x), predict(params, x), state


@pytest.mark.parametrize("name", LOSSES)
def test_every_method_trains_in_the_same_loop(name):
    """Under jit, mapped over two seeds: the mean is fitted, the noise level found."""
    rng = np.random.default_rng(8)
    x = jnp.asarray(rng.uniform(-2, 2, size=(NUM_POINTS, 1)), jnp.float32)
    y = x[:, 0] + 0.3 * jnp.asarray(rng.normal(size=NUM_POINTS), jnp.float32)
    objective = make_objective(name, **HYPERPARAMETERS.get(name, {}))
    head = HEADS.get(name, Gaussian)
    seeds = jax.tree.map(lambda *leaves: jnp.stack(leaves), init_seed(0), init_seed(1))
    run = jax.jit(jax.vmap(lambda *seed: train(objective, head, x, y, *seed)))
    final, initial, state = run(*seeds)

    rmse = jnp.sqrt(jnp.mean(jnp.square(final.mean - y[None]), axis=1))
    # The noise has standard deviation 0.3, the targets about 1.2.
    assert (rmse < 0.6).all(), rmse
    assert (rmse > 0.15).all(), rmse
    assert np.isfinite(final.log_variance).all()
    if name != "unit_variance":
        nll = jnp.mean(final.nll(jnp.stack([y, y])), axis=1)
        assert (nll < jnp.mean(initial.nll(jnp.stack([y, y])), axis=1) - 0.2).all(), nll
    expected_state = 2 if name == "trustable" else 0
    assert len(jax.tree.leaves(state)) == expected_state
