"""What crosses between devices, read from the compiled program."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from benchmarks.costs.scale_out import step_cost
from benchmarks.costs.scale_out_programs import PROGRAMS, collectives_of, read_collectives
from fisher8_jax import Gaussian, network_gradient
from fisher8_jax.curvature import Blocks, Direct

HIDDEN, FEATURES = (32, 24), 16
KERNELS = FEATURES * 32 + 32 * 24 + 24 * 2


@pytest.fixture(scope="module")
def programs():
    with jax.enable_x64(False):
        return {name: collectives_of(name, HIDDEN, FEATURES) for name in PROGRAMS}


def small(collectives):
    return [c for c in collectives if c.elements <= 8]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_cross_once_and_no_row_of_data_does(programs, name):
    large = [c for c in programs[name] if c.elements > 8]
    assert {c.kind for c in programs[name]} == {"all-reduce"}
    assert sum(c.elements for c in large) == KERNELS


def test_fisher8_adds_a_few_scalars(programs):
    plain, fisher8, radius = (sum(c.elements for c in small(programs[n])) for n in PROGRAMS)
    # The largest magnitude and the sum of squares of two columns; then the largest change of each
    # column and one mean KL.
    assert 0 < fisher8 - plain <= 4
    assert fisher8 < radius <= fisher8 + 3
    assert sum(c.bytes for c in small(programs["Fisher8, KL radius"])) <= 64


def network_collectives(solver, rows=64):
    """What `network_gradient` sends under `shard_map` over all devices."""
    params = {
        name: {"w": jnp.ones(shape, jnp.float32), "b": jnp.ones(shape[1], jnp.float32)}
        for name, shape in {"a": (FEATURES, 32), "b": (32, 24), "c": (24, 2)}.items()
    }

    def predict_one(params, x):
        for name in "ab":
            x = jnp.tanh(x @ params[name]["w"] + params[name]["b"])
        return Gaussian(*(x @ params["c"]["w"] + params["c"]["b"]))

    def gradient(params, x, y):
        return network_gradient(predict_one, params, x, y, axis_name="data", solver=solver)[:2]

    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = {"in_specs": (P(), P("data"), P("data")), "out_specs": P()}
    step = jax.jit(jax.shard_map(gradient, mesh=mesh, **specs))
    arrays = jnp.zeros((rows, FEATURES), jnp.float32), jnp.zeros(rows, jnp.float32)
    return read_collectives(step.lower(params, *arrays).compile().as_text())


def test_activations_and_deltas_are_gathered_once():
    """Rows of biases are deltas of their kernels, and are not sent again."""
    rows, outputs = 64, 2
    found = network_collectives(Direct(), rows)
    activations = [rows * width for width in (FEATURES, 32, 24)]
    deltas = [outputs * rows * width for width in (32, 24, 2)]
    whole = [outputs * rows, (outputs * rows) ** 2]  # right-hand side and Gram matrix
    gathered = [c.elements for c in found if c.kind == "all-gather"]
    assert sorted(gathered) == sorted(activations + deltas + whole)
    reduced = [c.elements for c in found if c.kind == "all-reduce" and c.elements > 1]
    assert sum(reduced) == KERNELS + 32 + 24 + 2
    assert len(found) == len(gathered) + len(reduced) + 2  # elements, and loss with slope


def test_blocks_send_the_gradient_alone():
    found = network_collectives(Blocks(8))
    assert {c.kind for c in found} == {"all-reduce"}
    assert sum(c.elements for c in found if c.elements > 1) == KERNELS + 32 + 24 + 2


def test_the_reader_sees_what_is_there():
    text = jax.jit(lambda x: x + 1).lower(jnp.zeros(3)).compile().as_text()
    assert read_collectives(text) == []
    line = "  %g = bf16[4,8]{1,0} all-gather-start(bf16[4,1]{1,0} %p), dimensions={1}"
    assert [(c.kind, c.bytes) for c in read_collectives(line)] == [("all-gather", 64)]


def test_the_cost_model_by_hand():
    gradients, extra = step_cost(
        16, gradient_bytes=1e8, extra_collectives=3, bandwidth=1e10, latency=1e-6
    )
    assert math.isclose(gradients, 2 * 15 / 16 * 1e-2 + 8e-6)
    assert math.isclose(extra, 3 * 8e-6)
