"""What crosses between devices, read from the compiled program."""

import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchmarks.costs.scale_out import step_cost
from benchmarks.costs.scale_out_network import Hardware, blocks_step, direct_step, model_rows
from benchmarks.costs.scale_out_programs import (
    PROGRAMS,
    collectives_of,
    network_program,
    read_collectives,
)
from fisher8_jax.curvature import Blocks, Direct

HIDDEN, FEATURES = (32, 24), 16
WIDTHS = (FEATURES, *HIDDEN, 2)
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


@functools.cache
def network(solver, rows=64, *, is_mapped=True):
    """`network_gradient` over all devices."""
    with jax.enable_x64(False):
        return network_program(WIDTHS, rows, solver, is_mapped=is_mapped)


def network_collectives(solver, rows=64):
    return read_collectives(network(solver, rows).as_text())


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
    assert len(found) == len(gathered) + len(reduced) + 3  # elements, loss, divergence


def test_blocks_send_the_gradient_alone():
    found = network_collectives(Blocks(8))
    assert {c.kind for c in found} == {"all-reduce"}
    assert sum(c.elements for c in found if c.elements > 1) == KERNELS + 32 + 24 + 2


@pytest.mark.parametrize(("solver", "model"), [(Direct(), direct_step), (Blocks(8), blocks_step)])
def test_the_model_counts_what_the_program_sends(solver, model):
    found = network_collectives(solver)
    step = model(WIDTHS, 64, 8)
    gathered = sum(c.elements for c in found if c.kind == "all-gather")
    reduced = sum(c.elements for c in found if c.kind == "all-reduce" and c.elements > 1)
    assert gathered == step.gathered
    assert reduced == step.reduced


WIDE = (16, 256, 192, 2)


@pytest.mark.parametrize(
    ("solver", "model", "is_mapped"),
    [
        (Direct(), direct_step, True),
        (Direct(), direct_step, False),
        (Blocks(16), functools.partial(blocks_step, block=16), True),
    ],
)
def test_the_model_counts_what_a_device_computes(solver, model, is_mapped):
    """Also under `jit` with sharded arrays, where every device once computed all of the matrix.

    XLA counts elementwise operations as well, and none of LAPACK. Under `jit` it computes the
    products of equal deltas, of a kernel and of its bias, twice.
    """
    with jax.enable_x64(False):
        program = network_program(WIDE, 256, solver, is_mapped=is_mapped)
    counted = program.cost_analysis()["flops"]
    expected = model(WIDE, 256, 8).operations
    assert expected < counted < (1.15 if is_mapped else 1.5) * expected


def test_the_model_by_hand():
    """Two kernels, 3 x 4 and 4 x 2, 16 rows on 8 devices."""
    step = direct_step((3, 4, 2), 16, 8)
    assert step.gathered == 16 * (3 + 4) + 32 * (4 + 2) + 32 + 32**2
    assert step.reduced == 12 + 8 + 4 + 2
    products = 2 * 2 * (12 + 8) + 2 * 2 * (12 + 8) + 2 * 2 * 2 * 8
    assert step.operations == products + 2 * 2 * 16 * 7 + 2 * 4 * 32 * 6
    assert math.isclose(step.solve, 32**3 / 3)
    hardware = Hardware(operations=1e9, bandwidth=1e6, latency=1e-5)
    sent = 4 * 7 / 8 * (step.gathered + 2 * step.reduced) / 1e6 + 9e-5
    seconds = (step.operations + step.solve) / 1e9 + sent
    assert math.isclose(step.seconds(8, hardware), seconds)


def test_the_page_shows_the_model():
    """With the rates that the options of the command begin with."""
    page = (Path(__file__).parents[2] / "docs" / "many_devices.md").read_text()
    rows = model_rows(Hardware(operations=20e12, bandwidth=50e9, latency=5e-6))
    assert all(f"| {' | '.join(row)} |" in page for row in rows)


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
