"""The same natural gradient however the step is wrapped, in float32."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fisher8_jax import Gaussian, network_curvature, network_gradient
from fisher8_jax.curvature import Blocks, ConjugateGradients, GradientState, precondition
from tests.curvature.dense import dense_natural_gradient, relative_error
from tests.problem import make_problem, predict

DAMPING = 0.1
ROWS = 16


@pytest.fixture(scope="module")
def problem():
    """Parameters, inputs, targets in float32, and the reference in float64."""
    params, x, y = make_problem(rows=ROWS)
    return params, x, y, dense_natural_gradient(predict, params, x, y, DAMPING)


def step(params, x, y, **options):
    """The step that a user writes by hand."""
    curvature = network_curvature(predict, params, x, damping=DAMPING, **options)

    def loss(params):
        return precondition(predict(params, x), curvature).nll(y).mean()

    return jax.grad(loss)(params)


def test_eager_and_jit(problem):
    params, x, y, reference = problem
    assert relative_error(step(params, x, y), reference) < 1e-4
    assert relative_error(jax.jit(step)(params, x, y), reference) < 1e-4


def test_a_curvature_may_cross_jit(problem):
    params, x, y, reference = problem
    curvature = jax.jit(functools.partial(network_curvature, predict, damping=DAMPING))(params, x)

    @jax.jit
    def gradient(params, curvature):
        return jax.grad(lambda p: precondition(predict(p, x), curvature).nll(y).mean())(params)

    assert relative_error(gradient(params, curvature), reference) < 1e-4


def test_vmap_over_seeds_and_scan_over_steps(problem):
    params, x, y, _ = problem
    factors = np.float32([1.0, 0.5, -1.2])
    runs = [jax.tree.map(lambda leaf, f=f: np.asarray(leaf) * f, params) for f in factors]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *runs)
    together = jax.jit(jax.vmap(step, (0, None, None)))(stacked, x, y)
    for index, run in enumerate(runs):
        reference = dense_natural_gradient(predict, run, x, y, DAMPING)
        one = jax.tree.map(lambda leaf, index=index: leaf[index], together)
        assert relative_error(one, reference) < 1e-4

    def body(params, _):
        gradient = step(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), gradient

    _, gradients = jax.jit(lambda p: jax.lax.scan(body, p, length=2))(params)
    moved = jax.tree.map(lambda p, g: p - 0.1 * g[0], params, gradients)
    reference = dense_natural_gradient(predict, moved, x, y, DAMPING)
    assert relative_error(jax.tree.map(lambda g: g[1], gradients), reference) < 1e-4


def mesh():
    return jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_sharded_batch_under_jit(problem, kind):
    """Axes of `jax.make_mesh` are Explicit by default: shapes then say where arrays lie."""
    params, x, y, reference = problem
    rows = NamedSharding(jax.make_mesh((8,), ("data",), axis_types=(kind,)), PartitionSpec("data"))
    x, y = jax.device_put((x, y), rows)

    gradient = jax.jit(functools.partial(network_gradient, predict, damping=DAMPING))
    assert relative_error(gradient(params, x, y).gradient, reference) < 1e-4
    if kind == AxisType.Auto:  # elsewhere JAX asks for the sharding of each backward product
        assert relative_error(jax.jit(step)(params, x, y), reference) < 1e-4


def test_gradients_of_sharded_parameters_lie_where_these_lie(problem):
    params, x, y, reference = problem
    devices = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    name, kernel = next((k, v) for k, v in params.items() if v.shape[0] % 8 == 0)
    placed = NamedSharding(devices, PartitionSpec("data"))
    sharded = params | {name: jax.device_put(kernel, placed)}
    step = jax.jit(functools.partial(network_gradient, predict, damping=DAMPING))
    gradient = step(sharded, *jax.device_put((x, y), placed)).gradient
    assert gradient[name].sharding.is_equivalent_to(placed, kernel.ndim)
    assert relative_error(gradient, reference) < 1e-4


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("solver", ["auto", Blocks(4), ConjugateGradients(tolerance=1e-5)])
def test_parameters_split_over_one_axis_and_rows_over_another(problem, kind, solver):
    """Tensor and data parallelism together give the step of one device."""
    params, x, y, _ = problem
    step = jax.jit(functools.partial(network_gradient, predict, damping=DAMPING, solver=solver))
    alone = step(params, x, y)
    devices = jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))

    def spec(leaf):
        return PartitionSpec("model") if leaf.shape[0] == 16 else PartitionSpec(None, "model")

    placed = {k: jax.device_put(v, NamedSharding(devices, spec(v))) for k, v in params.items()}
    rows = NamedSharding(devices, PartitionSpec("data"))
    split = step(placed, *jax.device_put((x, y), rows))
    assert relative_error(split.gradient, ravel_pytree(alone.gradient)[0]) < 1e-4
    assert np.allclose(split.value, alone.value, rtol=1e-5)
    for name, leaf in placed.items():
        assert split.gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)


def split(local, **options):
    everywhere, rows = PartitionSpec(), PartitionSpec("data")
    return jax.jit(
        jax.shard_map(
            local,
            mesh=mesh(),
            in_specs=(everywhere, rows, rows),
            out_specs=everywhere,
            **options,
        )
    )


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map_with_the_axis_name(problem, check_vma):
    """Both by hand and in one call; value and divergence are those of the whole batch."""
    params, x, y, reference = problem

    def by_hand(params, x, y):
        curvature = network_curvature(predict, params, x, damping=DAMPING, axis_name="data")

        def loss(params):
            return precondition(predict(params, x), curvature).nll(y).sum() / (2 * ROWS)

        gradient = jax.grad(loss)(params)
        # With the check on, JAX itself adds up the gradients of what all devices share.
        return gradient if check_vma else jax.lax.psum(gradient, "data")

    def in_one_call(params, x, y):
        result = network_gradient(predict, params, x, y, damping=DAMPING, axis_name="data")
        return result.gradient, result.value, result.step_kl

    gradient = split(by_hand, check_vma=check_vma)(params, x, y)
    assert relative_error(gradient, reference) < 1e-4
    gradient, value, step_kl = split(in_one_call, check_vma=check_vma)(params, x, y)
    assert relative_error(gradient, reference) < 1e-4
    alone = jax.jit(functools.partial(network_gradient, predict, damping=DAMPING))(params, x, y)
    np.testing.assert_allclose(value, alone.value, rtol=1e-5)
    np.testing.assert_allclose(step_kl, alone.step_kl, rtol=1e-4)


@pytest.mark.parametrize("solver", [Blocks(rows=2), ConjugateGradients(40, 1e-6)])
def test_other_solvers_under_shard_map(problem, solver):
    """Blocks of the rows of a device, without communication; iterations with global products."""
    params, x, y, reference = problem

    def local(params, x, y):
        options = {"damping": DAMPING, "axis_name": "data", "solver": solver}
        return network_gradient(predict, params, x, y, **options).gradient

    whole = functools.partial(network_gradient, predict, damping=DAMPING, solver=solver)
    alone = jax.jit(whole)(params, x, y).gradient
    gradient = split(local)(params, x, y)
    assert relative_error(gradient, np.asarray(ravel_pytree(alone)[0])) < 1e-4
    if isinstance(solver, ConjugateGradients):
        assert relative_error(gradient, reference) < 1e-3


def test_a_state_under_shard_map(problem):
    """Norms and gradients of the whole batch, equal on all devices."""
    params, x, y, _ = problem
    start = GradientState.zeros(params, momentum=0.9)

    def two_steps(params, x, y, **options):
        state = start
        for _ in range(2):
            step = network_gradient(predict, params, x, y, damping=DAMPING, state=state, **options)
            state = step.state
        return step.gradient, state

    alone = jax.jit(two_steps)(params, x, y)
    gradient, state = split(functools.partial(two_steps, axis_name="data"))(params, x, y)
    for ours, theirs in ((gradient, alone[0]), (state, alone[1])):
        assert relative_error(ours, np.asarray(ravel_pytree(theirs)[0])) < 1e-4


def _layer(activation):
    def predict_one(params, x):
        return Gaussian(*(activation(params, x) @ params["head"]))

    return predict_one


def _norm(x):
    return (x - x.mean()) / jnp.sqrt(x.var() + 1e-5)


def _recurrent(p, x):
    def cell(state, token):
        return jnp.tanh(token * p["gain"] + state), None

    return jax.lax.scan(cell, p["gain"], x[:, None] * jnp.ones((1, 4), x.dtype))[0]


NETWORKS = {
    "silu": _layer(lambda p, x: jax.nn.silu(x @ p["kernel"] + p["gain"])),
    "gelu": _layer(lambda p, x: jax.nn.gelu(x @ p["kernel"])),
    "relu": _layer(lambda p, x: jax.nn.relu(x @ p["kernel"])),
    "elu": _layer(lambda p, x: jax.nn.elu(x @ p["kernel"])),
    "softmax": _layer(lambda p, x: jax.nn.softmax(x @ p["kernel"])),
    "layer norm": _layer(lambda p, x: _norm(x @ p["kernel"]) * p["gain"]),
    "clip": _layer(lambda p, x: jnp.clip(x @ p["kernel"], -1, 1)),
    "scan": _layer(_recurrent),
    "literal": _layer(lambda p, x: 0.5 * jnp.tanh(2.0 * (x @ p["kernel"]))),
    "remat": _layer(lambda p, x: jax.checkpoint(jax.nn.softplus)(x @ p["kernel"])),
}


def test_ten_networks_under_shard_map():
    """In one program, by JAX's own check of what varies over the devices."""
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 4), "gain": (4,), "head": (4, 2)}
    params = {name: jnp.float32(rng.normal(size=shape)) for name, shape in shapes.items()}
    x = jnp.float32(rng.normal(size=(ROWS, 3)))
    y = jnp.float32(rng.normal(size=ROWS))

    def steps(params, x, y, axis_name=None):
        options = {"damping": DAMPING, "axis_name": axis_name}
        return {
            name: (
                network_gradient(one, params, x, y, **options).gradient,
                network_gradient(one, params, x, y, solver=Blocks(2), **options).gradient,
            )
            for name, one in NETWORKS.items()
        }

    together = split(functools.partial(steps, axis_name="data"))(params, x, y)
    alone = jax.jit(steps)(params, x, y)
    for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_vmap_with_an_axis_name(problem):
    """Two rows in each of eight parts are the batch of sixteen."""
    params, x, y, reference = problem
    local = functools.partial(network_gradient, predict, damping=DAMPING, axis_name="part")
    parts = jax.vmap(lambda x, y: local(params, x, y).gradient, axis_name="part")
    gradient = jax.jit(parts)(x.reshape(8, 2, 5), y.reshape(8, 2, 2))
    assert relative_error(jax.tree.map(lambda leaf: leaf[3], gradient), reference) < 1e-4


def test_bfloat16_activations_keep_the_direction(problem):
    """Eight bits of mantissa in activations and deltas: within 5 % of the float64 solve."""
    params, x, y, reference = problem

    def narrow(params, x):
        small = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        dist = predict(small, x.astype(jnp.bfloat16))
        return Gaussian(dist.mean.astype(jnp.float32), dist.log_variance.astype(jnp.float32))

    gradient = jax.jit(functools.partial(network_gradient, narrow, damping=DAMPING))(params, x, y)
    assert relative_error(gradient.gradient, reference) < 0.05
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradient.gradient))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_it_lowers_for_accelerators(problem, platform):
    params, x, y, _ = problem
    exported = jax.export.export(jax.jit(step), platforms=[platform])(params, x, y)
    assert exported.platforms == (platform,)


def test_it_is_traced_once(problem):
    params, x, y, _ = problem
    traces = []

    def counted(params, x):
        traces.append(None)
        return predict(params, x)

    gradient = jax.jit(functools.partial(network_gradient, counted, damping=DAMPING))
    gradient(params, x, y)
    first = len(traces)
    gradient(params, x + 1, y)
    assert len(traces) == first
