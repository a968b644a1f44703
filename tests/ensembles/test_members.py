"""Members side by side: independent of each other, and equal to a member that trains alone."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fisher8_jax import fisher8
from fisher8_jax.ensembles import init_members, mc_dropout, predict_members, train_members
from fisher8_jax.ensembles._members import stack_members, take_member
from fisher8_jax.heads.linen import DistributionHead

OPTIMIZER = optax.adam(0.01)


class Network(nn.Module):
    dropout: float = 0.0

    @nn.compact
    def __call__(self, inputs, *, deterministic=True):
        features = nn.silu(nn.Dense(8)(inputs))
        features = nn.Dropout(self.dropout, deterministic=deterministic)(features)
        return DistributionHead()(features)


def problem():
    keys = jax.random.split(jax.random.key(0), 2)
    inputs = jax.random.normal(keys[0], (20, 16, 3), jnp.float32)
    targets = inputs[..., 0] + 0.1 * jax.random.normal(keys[1], (20, 16), jnp.float32)
    return inputs, targets


def init(key):
    params = Network().init(key, jnp.zeros((1, 3), jnp.float32))
    return params, OPTIMIZER.init(params)


def step(state, batch):
    params, optimizer = state
    inputs, targets = batch

    def loss_of(params):
        return fisher8(Network().apply(params, inputs)).nll(targets).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, optimizer = OPTIMIZER.update(gradients, optimizer, params)
    return (optax.apply_updates(params, updates), optimizer), loss


TRAIN = jax.jit(functools.partial(train_members, step))


@functools.cache
def trained(members):
    return TRAIN(init_members(init, jax.random.key(1), members), problem())


def test_an_ensemble_of_one_trains_as_that_member_to_the_bit():
    state = take_member(init_members(init, jax.random.key(1), 1), 0)
    alone, losses = jax.jit(lambda s, b: jax.lax.scan(step, s, b))(state, problem())
    (params, _), seen = trained(1)
    jax.tree.map(np.testing.assert_array_equal, take_member(params, 0), alone[0])
    np.testing.assert_array_equal(seen[:, 0], losses)


def test_members_do_not_depend_on_each_other():
    states = init_members(init, jax.random.key(1), 3)
    (params, _), seen = trained(3)
    assert seen.shape == (20, 3)
    assert (seen[-1] < seen[0]).all()
    for index in range(3):
        alone = stack_members([take_member(states, index)])
        (expected, _), _ = TRAIN(alone, problem())
        ours, theirs = take_member(params, index), take_member(expected, 0)
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), ours, theirs
        )


def test_members_may_have_batches_of_their_own():
    inputs, targets = problem()
    states = init_members(init, jax.random.key(1), 2)
    own = (jnp.stack([inputs, inputs[::-1]], 1), jnp.stack([targets, targets[::-1]], 1))
    _, losses = train_members(step, states, own, shared_batches=False)
    _, shared = train_members(step, states, (inputs, targets))
    np.testing.assert_allclose(losses[:, 0], shared[:, 0], rtol=1e-3)
    assert np.abs(losses[:, 1] - shared[:, 1]).max() > 1e-2


def test_predictions_of_members_are_a_mixture():
    (params, _), _ = trained(3)
    inputs = problem()[0][0]
    mixture = predict_members(Network().apply, params, inputs)
    assert (mixture.size, mixture.batch_shape) == (3, (16,))
    first = Network().apply(take_member(params, 0), inputs)
    np.testing.assert_allclose(mixture.member(0).mean, first.mean, rtol=1e-5, atol=1e-6)
    assert (mixture.epistemic > 0).all()


def test_mc_dropout_is_a_mixture_of_passes():
    network = Network(dropout=0.5)
    inputs = problem()[0][0]
    params = network.init(jax.random.key(0), inputs)

    def predict(key):
        return network.apply(params, inputs, deterministic=False, rngs={"dropout": key})

    mixture = jax.jit(lambda key: mc_dropout(predict, key, 50))(jax.random.key(2))
    assert mixture.size == 50
    assert (mixture.epistemic > 0).all()
    # Inverted dropout leaves the expected output of the linear head unchanged; the tolerance is
    # four standard errors of 50 passes.
    plain = network.apply(params, inputs)
    error = 4 * np.sqrt(np.asarray(mixture.epistemic) / 50)
    assert (np.abs(mixture.mean - plain.mean) < error).all()


def test_mistakes_are_named():
    for bad in (0, 2.0, True):
        with pytest.raises(ValueError, match="`members` must be a positive integer"):
            init_members(init, jax.random.key(0), bad)
    with pytest.raises(ValueError, match="at least one member, got none"):
        stack_members([])
