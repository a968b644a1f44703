"""Micro-batches give the gradient of the full batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from fisher8_jax import Gaussian, fisher8, fisher8_nll, microbatched_value_and_grad
from tests.problem import ROWS, gradient, make_problem, predict


def assert_same(ours, expected, rtol=1e-6):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max())


@pytest.mark.parametrize("size", [1, 3, 7, 8, ROWS, 100])
def test_equals_the_full_batch(size):
    params, x, y = make_problem()
    value_and_grad = jax.jit(microbatched_value_and_grad(predict, microbatch_size=size))
    value, ours = value_and_grad(params, x, y)
    assert_same(ours, gradient("fused", params, x, y))
    np.testing.assert_allclose(value, predict(params, x).nll(y).mean(), rtol=1e-6)


def test_mask_and_weights():
    params, x, y = make_problem()
    rng = np.random.default_rng(0)
    where = jnp.asarray(rng.random(y.shape) < 0.7)
    weights = jnp.asarray(rng.uniform(0.5, 2, (ROWS, 1)), jnp.float32)
    y = jnp.where(where, y, jnp.nan)
    value, ours = microbatched_value_and_grad(predict, microbatch_size=5)(
        params, x, y, where=where, weights=weights
    )

    def loss(params):
        return fisher8_nll(predict(params, x), y, where=where, weights=weights).sum()

    expected_value, expected = jax.value_and_grad(loss)(params)
    assert_same(ours, expected)
    np.testing.assert_allclose(value, expected_value / where.sum(), rtol=1e-6)


def test_another_loss():
    params, x, y = make_problem()

    def loss(dist, targets):
        return dist.variance**0.5 * dist.nll(targets)

    _, ours = microbatched_value_and_grad(predict, microbatch_size=6, loss=loss)(params, x, y)
    expected = jax.grad(lambda p: loss(fisher8(predict(p, x)), y).mean())(params)
    assert_same(ours, expected)


def test_norms_over_space():
    """A dense output (batch, length) with one norm over both axes."""
    rng = np.random.default_rng(1)
    x, y = jnp.asarray(rng.normal(size=(2, 10, 6)), jnp.float32)
    params = {"a": jnp.float32(0.3), "b": jnp.float32(-0.2)}

    def dense(params, x):
        return Gaussian(params["a"] * x, params["b"] * x)

    _, ours = microbatched_value_and_grad(dense, microbatch_size=4, axis=(0, 1))(params, x, y)
    expected = jax.grad(lambda p: fisher8(dense(p, x), axis=(0, 1)).nll(y).mean())(params)
    assert_same(ours, expected)


def test_inside_a_mapped_axis():
    """Data-parallel devices, each with micro-batches of its own rows."""
    params, x, y = make_problem()
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    value_and_grad = microbatched_value_and_grad(predict, microbatch_size=3, axis_name="data")

    def local(params, x, y):
        return jax.lax.psum(value_and_grad(params, x, y)[1], "data")

    for check_vma in (True, False):
        step = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(P(), P("data"), P("data")),
            out_specs=P(),
            check_vma=check_vma,
        )
        assert_same(jax.jit(step)(params, x, y), gradient("fused", params, x, y))


def test_bfloat16_parameters_accumulate_in_float32():
    params, x, y = jax.tree.map(lambda a: a.astype(jnp.bfloat16), make_problem())
    value, ours = microbatched_value_and_grad(predict, microbatch_size=4)(params, x, y)
    expected = gradient("fused", params, x, y)
    assert value.dtype == jnp.float32
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert a.dtype == jnp.bfloat16
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-2 * np.abs(b).max())


def test_vmap_over_runs():
    params, x, y = make_problem()
    stacked = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), params)
    value_and_grad = microbatched_value_and_grad(predict, microbatch_size=7)
    _, runs = jax.jit(jax.vmap(value_and_grad, in_axes=(0, None, None)))(stacked, x, y)
    second = jax.tree.map(lambda g: g[1], runs)
    assert_same(second, gradient("fused", jax.tree.map(lambda p: 2 * p, params), x, y))


def test_accumulating_normalised_gradients_is_something_else():
    """`optax.MultiSteps` averages gradients of micro-batches that each have norms of their own."""
    params, x, y = make_problem()
    optimizer = optax.MultiSteps(optax.sgd(1.0), every_k_schedule=4)
    state = optimizer.init(params)
    moved = params
    for rows in np.split(np.arange(ROWS), 4):
        updates, state = optimizer.update(gradient("fused", params, x[rows], y[rows]), state, moved)
        moved = optax.apply_updates(moved, updates)
    accumulated = jax.tree.map(lambda new, old: old - new, moved, params)["mean"]
    exact = gradient("fused", params, x, y)["mean"]
    ratio = np.linalg.norm(accumulated) / np.linalg.norm(exact)
    cosine = np.vdot(accumulated, exact) / np.linalg.norm(accumulated) / np.linalg.norm(exact)
    assert abs(ratio - 1) > 0.05 or cosine < 0.999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": jnp.zeros((31, 5))}, "`inputs` must have 32 rows"),
        ({"y": jnp.zeros((0, 2))}, "at least one row"),
        ({"y": jnp.zeros((32,))}, "`targets` must have the shape of the predictions"),
        ({"where": jnp.ones((32, 2))}, "`where` must be boolean"),
        ({"weights": jnp.ones(32)}, "`weights` must have the shape of the predictions"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    params, x, y = make_problem()
    value_and_grad = microbatched_value_and_grad(predict, microbatch_size=4)
    options = {k: v for k, v in arguments.items() if k in ("where", "weights")}
    with pytest.raises((ValueError, TypeError), match=message):
        value_and_grad(params, arguments.get("x", x), arguments.get("y", y), **options)


def test_errors_of_the_set_up():
    params, x, y = make_problem()
    with pytest.raises(ValueError, match="`microbatch_size` must be a positive integer, got 0"):
        microbatched_value_and_grad(predict, microbatch_size=0)
    raw = microbatched_value_and_grad(lambda p, x: x @ p["hidden"], microbatch_size=4)
    with pytest.raises(TypeError, match="result of `predict` must be a distribution"):
        raw(params, x, y)
    with pytest.raises(ValueError, match="must contain the batch axis 0"):
        microbatched_value_and_grad(predict, microbatch_size=4, axis=1)(params, x, y)
    with pytest.raises(ValueError, match="'data' is not bound"):
        microbatched_value_and_grad(predict, microbatch_size=4, axis_name="data")(params, x, y)


def test_memory_is_that_of_one_microbatch():
    """The compiled program holds far less than the full batch's activations."""
    rng = np.random.default_rng(2)
    width, rows = 64, 4096
    params = {"hidden": rng.normal(size=(5, width)), "mean": rng.normal(size=(width, 1))}
    params["log_variance"] = 0 * params["mean"]
    x, y = rng.normal(size=(rows, 5)), rng.normal(size=(rows, 1))
    problem = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (params, x, y))

    def temporary_bytes(step):
        return jax.jit(step).lower(*problem).compile().memory_analysis().temp_size_in_bytes

    full = temporary_bytes(functools.partial(gradient, "fused"))
    small = temporary_bytes(microbatched_value_and_grad(predict, microbatch_size=64))
    assert small < full / 4
