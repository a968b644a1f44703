"""Never a nan in float32: singular, duplicated, single and masked rows, tiny damping, any variance.

And the mistakes of users, each with an error that says what to do.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fisher8_jax import Gaussian, network_curvature, network_gradient
from fisher8_jax.curvature import Blocks, ConjugateGradients, precondition
from fisher8_jax.families import Categorical, LowRankGaussian, Poisson
from fisher8_jax.optimizers import scale_by_kl_radius
from tests.curvature.dense import dense_natural_gradient, relative_error

ROWS = 8
RNG = np.random.default_rng(2)
PARAMS = {
    "hidden": jnp.asarray(RNG.normal(size=(3, 6)), jnp.float32),
    "head": jnp.asarray(RNG.normal(size=(6, 2)), jnp.float32),
}
INPUTS = jnp.asarray(RNG.normal(size=(ROWS, 3)), jnp.float32)
TARGETS = jnp.asarray(RNG.normal(size=ROWS), jnp.float32)


def predict_one(params, x, shift=0.0):
    mean, log_variance = jnp.tanh(x @ params["hidden"]) @ params["head"]
    return Gaussian(mean, log_variance + shift)


@functools.partial(jax.jit, static_argnames=("solver",))
def gradient(inputs, damping, where, shifts, solver="auto"):
    def one(params, example):
        return predict_one(params, *example)

    step = network_gradient(
        one, PARAMS, (inputs, shifts), TARGETS, damping=damping, where=where, solver=solver
    )
    return step.gradient, step.step_kl


@jax.jit
def radius_update(step, step_kl):
    radius = scale_by_kl_radius(0.1)
    update, _ = radius.update(step, radius.init(PARAMS), PARAMS, step_kl=step_kl)
    return jax.tree.leaves(update)


EVERY = jnp.ones(ROWS, bool)
LEVEL = jnp.zeros(ROWS, jnp.float32)
WIDE = jnp.linspace(-30, 30, ROWS, dtype=jnp.float32)
CASES = {
    "all inputs zero, so that the Gram matrix is singular": (0 * INPUTS, 0.1, EVERY, LEVEL),
    "duplicated rows": (INPUTS[jnp.zeros(ROWS, int)], 1e-7, EVERY, LEVEL),
    "one row counts": (INPUTS, 0.1, EVERY.at[1:].set(False), LEVEL),
    "none counts": (INPUTS, 0.1, ~EVERY, LEVEL),
    "damping 1e-12": (INPUTS, 1e-12, EVERY, LEVEL),
    "damping 1e12": (INPUTS, 1e12, EVERY, LEVEL),
    "variances from e^-30 to e^30": (INPUTS, 0.1, EVERY, WIDE),
    "variances of e^-30": (INPUTS, 1e-6, EVERY, LEVEL - 30),
    "variances of e^30": (INPUTS, 1e-6, EVERY, LEVEL + 30),
    "everything at once": (INPUTS[jnp.zeros(ROWS, int)], 1e-12, EVERY.at[2].set(False), WIDE),
}


EVERY_SOLVER = pytest.mark.parametrize("solver", ["auto", Blocks(rows=3), ConjugateGradients()])


@pytest.mark.parametrize("case", CASES)
@EVERY_SOLVER
def test_never_a_nan(case, solver):
    """The gradient is finite, and so is the update that a radius makes of it.

    The divergence of a step of 1e13 standard deviations is mostly rounding in float32 and may
    overflow; the radius then stands still.
    """
    step, step_kl = gradient(*CASES[case], solver=solver)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(step))
    if step_kl is not None:
        assert step_kl >= 0
        assert all(np.all(np.isfinite(leaf)) for leaf in radius_update(step, step_kl))


@EVERY_SOLVER
def test_a_step_remains_where_its_squares_overflow(solver):
    """The whitened gradient is about e^50, and no solver may take its square for the end."""
    step, _ = gradient(INPUTS, 1e-6, EVERY, LEVEL - 50, solver=solver)
    for leaf in jax.tree.leaves(step):
        assert np.all(np.isfinite(leaf))
        assert np.abs(leaf).max() > 1e20


def test_variances_from_e_minus_30_to_e_30_are_solved_in_float32():
    """Against least squares in float64, whose condition is the root of that of the dense solve.

    The step minimises |A d - b|^2 + damping |d|^2 with A = L' J / sqrt(n) and b = sqrt(n) L^-1 g.
    """
    inputs, damping, _, shifts = CASES["variances from e^-30 to e^30"]
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (PARAMS, inputs, shifts, TARGETS))
    flat, unravel = ravel_pytree(wide[0])

    @jax.jit
    def pieces(flat):
        def outputs(flat):
            dist = jax.vmap(predict_one, (None, 0, 0))(unravel(flat), *wide[1:3])
            return jnp.stack([dist.mean, dist.log_variance])

        return outputs(flat), jax.jacobian(outputs)(flat)

    (mean, log_variance), jacobian = map(np.asarray, pieces(flat))
    root = np.stack([np.exp(-0.5 * log_variance), np.full(ROWS, 0.5**0.5)])
    z = (mean - wide[3]) * root[0]
    b = np.concatenate([z, (1 - z**2) * 0.5**0.5]) / np.sqrt(ROWS)
    a = (root[..., None] * jacobian).reshape(2 * ROWS, -1) / np.sqrt(ROWS)
    both = np.concatenate([a, np.sqrt(damping) * np.eye(flat.size)])
    reference = np.linalg.lstsq(both, np.concatenate([b, np.zeros(flat.size)]), rcond=None)[0]
    step, _ = gradient(inputs, damping, EVERY, shifts)
    assert relative_error(step, reference) < 1e-3


def test_one_row_alone():
    one = jax.jit(functools.partial(network_gradient, predict_one, damping=0.1))
    step = one(PARAMS, INPUTS[:1], TARGETS[:1])
    reference = dense_natural_gradient(predict_one, PARAMS, INPUTS[:1], TARGETS[:1], 0.1)
    assert relative_error(step.gradient, reference) < 1e-4


def test_a_large_damping_leaves_the_gradient():
    """(G + damping)^-1 g tends to g / damping."""

    @jax.jit
    @jax.grad
    def nll_gradient(params):
        return jax.vmap(predict_one, (None, 0))(params, INPUTS).nll(TARGETS).mean()

    plain = nll_gradient(PARAMS)
    step, _ = gradient(INPUTS, 1e6, EVERY, LEVEL)
    for ours, theirs in zip(jax.tree.leaves(step), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(1e6 * ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "sizes", "targets"),
    [
        (Categorical, [(3,)], jnp.arange(ROWS) % 3),
        (LowRankGaussian, [(3,), (3, 2), (3,)], jnp.ones((ROWS, 3))),
    ],
)
def test_families_with_a_singular_information(family, sizes, targets):
    total = sum(int(np.prod(size)) for size in sizes)
    params = {"head": jnp.asarray(RNG.normal(size=(3, total)), jnp.float32)}

    def one(params, x):
        parts = jnp.split(x @ params["head"], np.cumsum([np.prod(s) for s in sizes])[:-1])
        return family(*(part.reshape(size) for part, size in zip(parts, sizes, strict=True)))

    @jax.jit
    def descend(params):
        def nll(params):
            return jax.vmap(one, (None, 0))(params, INPUTS).nll(targets).mean()

        gradient = network_gradient(one, params, INPUTS, targets, damping=0.1).gradient
        moved = {"head": params["head"] - 0.05 * gradient["head"]}
        return gradient["head"], nll(params), nll(moved)

    gradient, before, after = descend(params)
    assert np.all(np.isfinite(gradient))
    assert after < before


def loop(params, x):
    return Gaussian(jax.lax.while_loop(lambda v: v < 0, lambda v: v + params["w"], x[0]), x[0])


def collective(params, x):
    return Gaussian(jax.lax.pmean(x[0] * params["w"], "batch"), x[0])


def loops(params, x):
    def double(carry):
        return carry[0] * params["hidden"][:, 0], carry[1] + 1

    return predict_one(params, jax.lax.while_loop(lambda c: c[1] < 3, double, (x, 0))[0])


def normalises_its_batch(params, x):
    batch = x[None] @ params["hidden"]
    centred = batch - batch.mean(0, keepdims=True)
    normed = centred / jnp.sqrt(jnp.square(centred).mean(0, keepdims=True) + 1e-5)
    return Gaussian(*(normed @ params["head"])[0])


def test_negative_weights_known_only_to_the_program_give_nan_throughout():
    step = jax.jit(
        lambda w: network_gradient(predict_one, PARAMS, INPUTS, TARGETS, weights=w, damping=0.1)
    )(jnp.ones(ROWS, jnp.float32).at[1].set(-1))
    assert np.isnan(step.value)
    assert all(np.all(np.isnan(leaf)) for leaf in jax.tree.leaves(step.gradient))


def test_leaves_of_integers_have_a_gradient_of_zeros():
    """So that `optax.apply_updates` leaves them alone."""
    params = PARAMS | {"steps": jnp.arange(3)}
    for solver in ("auto", ConjugateGradients()):
        step = network_gradient(predict_one, params, INPUTS, TARGETS, solver=solver)
        np.testing.assert_array_equal(step.gradient["steps"], 0)
        assert step.gradient["steps"].dtype == params["steps"].dtype


ERRORS = {
    "a loop of unknown length": (
        lambda: network_curvature(loop, {"w": jnp.ones((), jnp.float32)}, INPUTS, damping=0.1),
        "The parameters `w` of `predict_one` cannot be followed through the operation `while`",
    ),
    "a collective": (
        lambda: jax.vmap(
            lambda x: network_curvature(collective, {"w": jnp.ones(())}, x, damping=0.1).prepared,
            axis_name="batch",
        )(INPUTS[None]),
        "one example on its own, but it contains the collective",
    ),
    "no parameter": (
        lambda: network_curvature(
            lambda p, x: Gaussian(x[0], x[1]), {"w": jnp.ones(())}, INPUTS, damping=0.1
        ),
        "No parameter reaches the predictions",
    ),
    "not a distribution": (
        lambda: network_curvature(lambda p, x: x @ p["hidden"], PARAMS, INPUTS, damping=0.1),
        "the result of `predict_one` must be a distribution",
    ),
    "no rows": (
        lambda: network_gradient(predict_one, PARAMS, INPUTS[:0], TARGETS[:0]),
        r"`inputs` must have at least one row, got shapes \[\(0, 3\)\]",
    ),
    "a solver by name": (
        lambda: network_gradient(predict_one, PARAMS, INPUTS, TARGETS, solver="cg"),
        "`solver` must be 'auto', `Auto",
    ),
    "blocks of no rows": (
        lambda: network_gradient(predict_one, PARAMS, INPUTS, TARGETS, solver=Blocks(0)),
        "`Blocks.rows` must be a positive integer, got 0",
    ),
    "a vector of dampings": (
        lambda: network_gradient(predict_one, PARAMS, INPUTS, TARGETS, damping=jnp.ones(3)),
        r"`damping` must be a number or a scalar array, got shape \(3,\)",
    ),
    "negative weights": (
        lambda: network_gradient(predict_one, PARAMS, INPUTS, TARGETS, weights=-EVERY.astype(int)),
        "`weights` must not be negative",
    ),
    "a complex parameter": (
        lambda: network_gradient(
            predict_one, PARAMS | {"phase": jnp.ones(2, jnp.complex64)}, INPUTS, TARGETS
        ),
        "The parameter `phase` is complex",
    ),
    "a loop of unknown length with conjugate gradients": (
        lambda: network_gradient(loops, PARAMS, INPUTS, TARGETS, solver=ConjugateGradients()),
        "without reverse-mode derivative, such as `jax.lax.while_loop`",
    ),
    "batch statistics": (
        lambda: network_gradient(normalises_its_batch, PARAMS, INPUTS, TARGETS),
        "subtracts from a value its own mean over axes of length 1",
    ),
    "no damping": (
        lambda: network_curvature(predict_one, PARAMS, INPUTS, damping=0.0),
        "`damping` must be positive",
    ),
    "inputs of different lengths": (
        lambda: network_curvature(
            lambda p, x: predict_one(p, x[0]), PARAMS, (INPUTS, TARGETS[1:]), damping=0.1
        ),
        "`inputs` must be arrays that share their first axis",
    ),
    "an axis that is not bound": (
        lambda: network_curvature(predict_one, PARAMS, INPUTS, damping=0.1, axis_name="data"),
        "`axis_name` 'data' is not bound here",
    ),
    "the curvature of another batch": (
        lambda: precondition(
            jax.vmap(predict_one, (None, 0))(PARAMS, INPUTS[1:]),
            network_curvature(predict_one, PARAMS, INPUTS, damping=0.1),
        ),
        r"`curvature` belongs to predictions `Gaussian` of shape \(8,\)",
    ),
    "the curvature of another family": (
        lambda: precondition(
            Poisson(TARGETS), network_curvature(predict_one, PARAMS, INPUTS, damping=0.1)
        ),
        "but `dist` is `Poisson`",
    ),
}


@pytest.mark.parametrize("mistake", ERRORS)
def test_mistakes_are_named(mistake):
    call, message = ERRORS[mistake]
    with pytest.raises((ValueError, TypeError), match=message):
        call()
