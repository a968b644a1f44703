"""What crosses between devices, read from the compiled program."""

import math

import jax
import jax.numpy as jnp
import pytest

from benchmarks.costs.scale_out import step_cost
from benchmarks.costs.scale_out_programs import PROGRAMS, collectives_of, read_collectives

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
