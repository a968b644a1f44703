"""The same gradient whatever the step is wrapped in."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.costs.scale_out_programs import read_collectives
from fisher8_jax import Gaussian, fisher8, fisher8_nll
from tests.problem import ROWS, gradient, make_problem, predict

AXIS_NAME = "batch"
RTOL = 1e-6


def assert_same(ours, expected):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        scale = np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=RTOL * scale)


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.fixture(scope="module", params=["identity", "fused"])
def path(request):
    return request.param


@pytest.fixture(scope="module")
def expected(problem, path):
    return gradient(path, *problem)


def mesh():
    return jax.make_mesh((8,), (AXIS_NAME,), axis_types=(jax.sharding.AxisType.Auto,))


def test_jit(problem, path, expected):
    assert_same(jax.jit(functools.partial(gradient, path))(*problem), expected)


def test_vmap_over_training_runs(problem, path, expected):
    """Twenty runs, each with its batch inside: nothing may leak from one run to another."""
    params, x, y = problem
    stacked = jax.tree.map(lambda p: jnp.stack([p * (1 + 0.1 * i) for i in range(20)]), params)
    runs = jax.jit(jax.vmap(functools.partial(gradient, path), in_axes=(0, None, None)))(
        stacked, x, y
    )
    assert_same(jax.tree.map(lambda g: g[0], runs), expected)
    last = jax.tree.map(lambda p: p[19], stacked)
    assert_same(jax.tree.map(lambda g: g[19], runs), gradient(path, last, x, y))


def per_example_gradients(path, problem, **options):
    params, x, y = problem
    one = functools.partial(gradient, path, axis=(), axis_name=AXIS_NAME, **options)
    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0), axis_name=AXIS_NAME))(params, x, y)


def test_per_example_vmap(problem, path, expected):
    summed = jax.tree.map(lambda g: g.sum(0), per_example_gradients(path, problem))
    assert_same(summed, expected)


def test_per_example_vmap_with_averaged_gradients(problem, path, expected):
    gradients = per_example_gradients(path, problem, gradients_averaged=True)
    assert_same(jax.tree.map(lambda g: g.mean(0), gradients), expected)


def test_jit_with_a_sharded_batch(problem, path, expected):
    params, x, y = problem
    rows = NamedSharding(mesh(), P(AXIS_NAME))
    x, y = jax.device_put(x, rows), jax.device_put(y, rows)
    assert_same(jax.jit(functools.partial(gradient, path))(params, x, y), expected)


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(problem, path, expected, check_vma):
    def local(params, x, y):
        # check_vma=True sums the gradient of replicated parameters by itself.
        result = gradient(path, params, x, y, axis_name=AXIS_NAME)
        return result if check_vma else jax.lax.psum(result, AXIS_NAME)

    step = jax.shard_map(
        local,
        mesh=mesh(),
        in_specs=(P(), P(AXIS_NAME), P(AXIS_NAME)),
        out_specs=P(),
        check_vma=check_vma,
    )
    assert_same(jax.jit(step)(*problem), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_pmap(problem, path, expected, reduce):
    params, x, y = problem
    averaged = reduce == "mean"

    def local(params, x, y):
        result = gradient(path, params, x, y, axis_name=AXIS_NAME, gradients_averaged=averaged)
        return (jax.lax.pmean if averaged else jax.lax.psum)(result, AXIS_NAME)

    split = jax.tree.map(lambda a: a.reshape(8, ROWS // 8, *a.shape[1:]), (x, y))
    result = jax.pmap(local, axis_name=AXIS_NAME, in_axes=(None, 0, 0))(params, *split)
    assert_same(jax.tree.map(lambda g: g[0], result), expected)


def test_scan(problem, path):
    """Ten steps in a scan end where ten single steps end."""
    params, x, y = problem

    def step(params, _):
        update = gradient(path, params, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, update), None

    scanned, _ = jax.jit(lambda p: jax.lax.scan(step, p, length=10))(params)
    one = jax.jit(lambda p: step(p, None)[0])
    for _ in range(10):
        params = one(params)
    assert_same(scanned, params)


def test_checkpoint(problem, path, expected):
    rematerialised = jax.checkpoint(predict)
    assert_same(
        jax.jit(functools.partial(gradient, path, model=rematerialised))(*problem), expected
    )
    whole = jax.checkpoint(functools.partial(gradient, path))
    assert_same(jax.jit(whole)(*problem), expected)


def test_map_over_checkpointed_microbatches_then_the_rule(problem, path, expected):
    """Accumulation without any new machinery: the rule sees the stacked outputs."""

    def mapped(params, x):
        body = jax.checkpoint(functools.partial(predict, params))
        outputs = jax.lax.map(body, x.reshape(8, ROWS // 8, *x.shape[1:]))
        return jax.tree.map(lambda a: a.reshape(ROWS, *a.shape[2:]), outputs)

    assert_same(jax.jit(functools.partial(gradient, path, model=mapped))(*problem), expected)


@pytest.mark.parametrize("wrapped", ["vmap", "shard_map", "shard_map_unchecked"])
def test_one_log_variance_for_all_examples(wrapped, path):
    """A shared output does not vary over the mapped axis; its cotangent must not be pre-summed."""
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(2, 16)))
    params = {"slope": jnp.array(0.5), "log_variance": jnp.array(0.3)}

    def loss(params, x, y, **options):
        mean = params["slope"] * x
        dist = Gaussian(mean, jnp.broadcast_to(params["log_variance"], mean.shape))
        if path == "fused":
            return fisher8_nll(dist, y, **options).sum()
        return fisher8(dist, **options).nll(y).sum()

    expected = jax.grad(loss)(params, x, y)
    if wrapped == "vmap":
        one = functools.partial(jax.grad(loss), axis=(), axis_name=AXIS_NAME)
        runs = jax.jit(jax.vmap(one, in_axes=(None, 0, 0), axis_name=AXIS_NAME))(params, x, y)
        assert_same(jax.tree.map(lambda g: g.sum(0), runs), expected)
        return
    checked = wrapped == "shard_map"

    def local(params, x, y):
        result = jax.grad(functools.partial(loss, axis_name=AXIS_NAME))(params, x, y)
        return result if checked else jax.lax.psum(result, AXIS_NAME)

    step = jax.shard_map(
        local,
        mesh=mesh(),
        in_specs=(P(), P(AXIS_NAME), P(AXIS_NAME)),
        out_specs=P(),
        check_vma=checked,
    )
    assert_same(jax.jit(step)(params, x, y), expected)


def test_the_sharded_step_communicates_a_few_scalars_more(problem):
    """Beyond the gradients that NLL reduces too: a maximum and a sum per parameter and target."""
    params, x, y = problem
    rows = NamedSharding(mesh(), P(AXIS_NAME))
    x, y = jax.device_put(x, rows), jax.device_put(y, rows)

    def reduced_elements(path):
        text = jax.jit(functools.partial(gradient, path)).lower(params, x, y).compile().as_text()
        return sum(collective.elements for collective in read_collectives(text))

    extra = reduced_elements("fused") - reduced_elements("nll")
    targets_per_row = y.shape[1]
    assert 0 < extra <= 2 * 2 * targets_per_row


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_lowers_for_every_platform(problem, path, platform):
    step = jax.jit(functools.partial(gradient, path))
    exported = jax.export.export(step, platforms=[platform])(*problem)
    assert exported.platforms == (platform,)
    assert exported.mlir_module_serialized


def test_forward_mode_is_refused(problem):
    params, x, y = problem
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(
            lambda p: fisher8(predict(p, x)).nll(y).sum(),
            (params,),
            (jax.tree.map(jnp.ones_like, params),),
        )


def test_second_call_does_not_retrace(problem, path):
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(params, x, y):
        return gradient(path, params, x, y)

    params, x, y = problem
    step(params, x, y)
    step(jax.tree.map(lambda p: 2 * p, params), x + 1, y - 1)
