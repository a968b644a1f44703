"""The KL radius under jit, vmap, scan, shard_map, sharded batches and micro-batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fisher8_jax.optimizers import scale_by_kl_radius
from tests.optimizers.network import fisher8_gradients, make_batch, make_params, network

OPTIONS = [{}, {"exact": True}]


def make_step(axis_name=None, **options):
    """A training step `(params, state, inputs, targets, where) -> (params, state)`."""
    radius = scale_by_kl_radius(0.3, axis_name=axis_name, **options)
    optimizer = optax.chain(optax.sgd(1.0, momentum=0.9), radius)

    def step(params, state, inputs, targets, where=None):
        gradients = fisher8_gradients(params, inputs, targets, where, axis_name)
        predict = functools.partial(network, inputs=inputs)
        updates, state = optimizer.update(gradients, state, params, predict=predict, where=where)
        return optax.apply_updates(params, updates), state

    return optimizer, step


def assert_trees_close(a, b, rtol=1e-9):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=1e-12), a, b)


@pytest.mark.parametrize("options", OPTIONS)
def test_jit_does_not_change_the_step_and_compiles_once(options):
    optimizer, step = make_step(**options)
    params, batch = make_params(), make_batch()
    state = optimizer.init(params)
    compiled = jax.jit(step)
    expected = step(params, state, *batch)
    got = compiled(params, state, *batch)
    assert_trees_close(got, expected)
    for seed in range(3):
        got = compiled(*got, *make_batch(seed))
    assert compiled._cache_size() == 1


@pytest.mark.parametrize("options", OPTIONS)
def test_vmap_over_runs_inside_scan_equals_a_loop(options):
    optimizer, step = make_step(**options)
    batches = jax.tree.map(lambda *x: jnp.stack(x), *[make_batch(seed) for seed in range(4)])
    runs = jax.tree.map(lambda *x: jnp.stack(x), *[make_params(seed) for seed in range(3)])

    @jax.jit
    @jax.vmap
    def train(params):
        def body(carry, batch):
            return step(*carry, *batch), None

        return lax.scan(body, (params, optimizer.init(params)), batches)[0]

    trained = train(runs)
    compiled = jax.jit(step)
    for run in range(3):
        params = make_params(run)
        state = optimizer.init(params)
        for seed in range(4):
            params, state = compiled(params, state, *make_batch(seed))
        assert_trees_close(jax.tree.map(lambda x, run=run: x[run], trained), (params, state))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_axis_name_of_vmap_equals_the_full_batch(options, masked):
    params, (inputs, targets) = make_params(), make_batch()
    # Unequal numbers of valid elements per part: a mean of means would be wrong.
    where = jnp.array([True, True, False, True, True, True, False, False]) if masked else None
    optimizer, step = make_step(**options)
    expected = step(params, optimizer.init(params), inputs, targets, where)
    optimizer, step = make_step(axis_name="batch", **options)

    @functools.partial(jax.vmap, axis_name="batch", in_axes=(None, None, 0, 0, 0))
    def mapped(params, state, inputs, targets, where):
        # Gradients of the parts are summed: the rule has normalised over all of them.
        gradients = lax.psum(fisher8_gradients(params, inputs, targets, where, "batch"), "batch")
        predict = functools.partial(network, inputs=inputs)
        updates, state = optimizer.update(gradients, state, params, predict=predict, where=where)
        return optax.apply_updates(params, updates), state

    parts = [None if x is None else x.reshape(2, 4, *x.shape[1:]) for x in (inputs, targets, where)]
    got = mapped(params, optimizer.init(params), *parts)
    for part in range(2):
        assert_trees_close(jax.tree.map(lambda x, part=part: x[part], got), expected, rtol=1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_shard_map_equals_the_full_batch(options):
    params, batch = make_params(), make_batch()
    optimizer, step = make_step(**options)
    expected = step(params, optimizer.init(params), *batch)
    optimizer, step = make_step(axis_name="batch", **options)
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    replicated, split = PartitionSpec(), PartitionSpec("batch")
    sharded = jax.shard_map(
        step, mesh=mesh, in_specs=(replicated, replicated, split, split), out_specs=replicated
    )
    assert_trees_close(jax.jit(sharded)(params, optimizer.init(params), *batch), expected, 1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_sharded_batch_under_jit_equals_the_full_batch(options):
    params, batch = make_params(), make_batch()
    optimizer, step = make_step(**options)
    expected = step(params, optimizer.init(params), *batch)
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("batch")))
    params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    got = jax.jit(step)(params, optimizer.init(params), *batch)
    assert_trees_close(got, expected, 1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_micro_batches_equal_the_full_batch(options):
    params, (inputs, targets) = make_params(), make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    radius = scale_by_kl_radius(0.3, **options)

    @jax.jit
    def scale(micro_batches):
        # Forward mode needs no stored activations: one micro-batch is in memory at a time.
        def predict(params):
            return lax.map(functools.partial(network, params), micro_batches)

        return radius.update(gradients, radius.init(params), params, predict=predict)

    assert_trees_close(scale(inputs.reshape(4, 2, 3)), scale(inputs[None]), 1e-6)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_divergence_from_one_linearization_gives_the_same_step(options):
    params, (inputs, targets) = make_params(), make_batch()
    predict = functools.partial(network, inputs=inputs)
    gradients = fisher8_gradients(params, inputs, targets)
    radius = scale_by_kl_radius(0.3, **options)
    state = radius.init(params)
    dist, push_forward = jax.linearize(predict, params)
    step_kl = 0.5 * dist.fisher_norm_sq(push_forward(gradients)).mean()
    expected = radius.update(gradients, state, params, predict=predict)
    got = radius.update(gradients, state, params, predict=predict, step_kl=step_kl)
    assert_trees_close(got, expected, 1e-5)


def test_axis_name_must_be_bound():
    optimizer, _ = make_step(axis_name="batch")
    params, (inputs, targets) = make_params(), make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    with pytest.raises(ValueError, match="`axis_name` 'batch' is not bound"):
        optimizer.update(
            gradients, optimizer.init(params), params, predict=lambda p: network(p, inputs)
        )
