"""Every odd network against a dense float64 solve: alone, under vmap, shard_map and donation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from fisher8_jax import network_gradient
from tests.curvature.dense import cast_floats, dense_natural_gradient, relative_error
from tests.curvature.networks import NETWORKS, ROWS
from tests.curvature.zoo import ZOO

DAMPING = 0.1
TARGETS = jnp.asarray(np.random.default_rng(9).normal(size=ROWS))


def step_of(predict_one, **options):
    return lambda *args: network_gradient(predict_one, *args, damping=DAMPING, **options).gradient


@functools.cache
def case(name):
    predict_one, params, inputs = ZOO[name]()
    reference = dense_natural_gradient(predict_one, params, inputs, TARGETS, DAMPING)
    return predict_one, params, inputs, reference


@pytest.mark.parametrize("name", [name for name in ZOO if name not in NETWORKS])
def test_alone(name):
    predict_one, params, inputs, reference = case(name)
    step = jax.jit(step_of(predict_one))
    assert relative_error(step(params, inputs, TARGETS), reference) < 1e-9
    small = cast_floats((params, inputs, TARGETS), jnp.float32)
    assert relative_error(step(*small), reference) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_under_vmap(name):
    """Two copies of the parameters, of which one is moved, beside each other."""
    predict_one, params, inputs, reference = case(name)
    stacked = jax.tree.map(lambda leaf: jnp.stack([1.1 * leaf, leaf]), params)
    steps = jax.jit(jax.vmap(step_of(predict_one), (0, None, None)))(stacked, inputs, TARGETS)
    assert relative_error(jax.tree.map(lambda leaf: leaf[1], steps), reference) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_under_shard_map(name):
    """Three rows on each of two devices, with JAX's own check of what varies."""
    predict_one, params, inputs, reference = case(name)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    rows = PartitionSpec("data")
    step = jax.shard_map(
        step_of(predict_one, axis_name="data"),
        mesh=mesh,
        in_specs=(PartitionSpec(), rows, rows),
        out_specs=PartitionSpec(),
    )
    assert relative_error(jax.jit(step)(params, inputs, TARGETS), reference) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_under_donation(name):
    """The step that a training loop compiles: parameters are given away and come back moved."""
    predict_one, params, inputs, reference = case(name)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(params):
        gradient = step_of(predict_one)(params, inputs, TARGETS)
        return jax.tree.map(lambda p, g: p - g, params, gradient)

    given = jax.tree.map(jnp.copy, params)
    moved = train(given)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given) if leaf.size)
    gradient = jax.tree.map(lambda p, m: p - m, params, moved)
    assert relative_error(gradient, reference) < 1e-8
