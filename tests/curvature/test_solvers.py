"""All solvers, momentum, and what is known about the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fisher8_jax import Gaussian, network_gradient
from fisher8_jax.curvature import (
    Blocks,
    ConjugateGradients,
    Direct,
    GradientState,
)
from tests.curvature.dense import cast_floats, dense_natural_gradient, relative_error
from tests.curvature.networks import NETWORKS, ROWS

DAMPING = 0.1
TARGETS = jnp.asarray(np.random.default_rng(9).normal(size=ROWS))


def gradient(network, *, targets=TARGETS, **options):
    predict_one, params, inputs = network
    options = {"damping": DAMPING} | options
    return jax.jit(
        lambda params: network_gradient(predict_one, params, inputs, targets, **options)
    )(params)


def test_conjugate_gradients_converge_to_the_direct_solution():
    network = NETWORKS["mlp"]()
    exact = ravel_pytree(gradient(network).gradient)[0]
    solver = ConjugateGradients(max_iterations=60, tolerance=1e-12)
    iterated = gradient(network, solver=solver)
    assert relative_error(iterated.gradient, exact) < 1e-9
    assert iterated.residual < 1e-11
    short = gradient(network, solver=ConjugateGradients(max_iterations=2, tolerance=1e-12, rank=0))
    assert 1e-6 < relative_error(short.gradient, exact) < 1
    assert short.residual > 1e-6


@pytest.mark.parametrize("rank", [0, 32])
def test_small_variances_converge_with_the_preconditioner(rank):
    """Float32, log-variance -6, 256 unknowns: 60 iterations suffice, and only with it."""
    rng = np.random.default_rng(0)
    shapes = {"first": (4, 20), "second": (20, 20), "head": (20, 2)}
    params = {k: jnp.float32(rng.normal(size=s) / s[0] ** 0.5) for k, s in shapes.items()}

    def predict_one(params, x):
        hidden = jax.nn.silu(jax.nn.silu(x @ params["first"]) @ params["second"])
        mean, log_variance = hidden @ params["head"]
        return Gaussian(mean, log_variance - 6)

    inputs = jnp.float32(rng.normal(size=(128, 4)))
    network, targets = (predict_one, params, inputs), jnp.float32(rng.normal(size=128))
    reference = dense_natural_gradient(predict_one, params, inputs, targets, 0.01)
    solver = ConjugateGradients(max_iterations=60, rank=rank)
    step = gradient(network, targets=targets, damping=0.01, solver=solver)
    assert (relative_error(step.gradient, reference) < 0.01) == (rank > 0)
    assert (step.residual < 0.01) == (rank > 0)


def test_the_error_of_float32_grows_as_damping_falls():
    """Duplicated rows of different targets: about 3e-8 over the damping, which the page states."""
    predict_one, params, inputs = NETWORKS["mlp"]()
    inputs = jnp.repeat(inputs[:2], 3, axis=0)
    small = cast_floats((params, inputs, TARGETS), jnp.float32)
    for damping in (1e-2, 1e-4, 1e-6):
        reference = dense_natural_gradient(predict_one, *small, damping)
        step = gradient((predict_one, *small[:2]), targets=small[2], damping=damping)
        assert relative_error(step.gradient, reference) < 1e-7 / damping + 1e-6


def test_blocks_average_the_steps_of_their_batches():
    """Six rows in blocks of four: the second block has two rows and a third of the weight."""
    predict_one, params, inputs = network = NETWORKS["mlp"]()
    where = jnp.ones(ROWS, bool).at[1].set(False)
    parts = [(slice(0, 4), 3 / 5), (slice(4, 6), 2 / 5)]
    reference = sum(
        share
        * dense_natural_gradient(
            predict_one, params, inputs[part], TARGETS[part], DAMPING, where=where[part]
        )
        for part, share in parts
    )
    step = gradient(network, solver=Blocks(rows=4), where=where)
    assert relative_error(step.gradient, reference) < 1e-9
    assert step.residual is None  # the blocks do not see each other
    whole = gradient(network, solver=Blocks(rows=ROWS, outputs=2)).gradient
    assert relative_error(whole, ravel_pytree(gradient(network).gradient)[0]) < 1e-12


def with_momentum(params, momentum, decay=0.5):
    """A state whose decayed momentum is `momentum`."""
    state = GradientState.zeros(params, momentum=decay)
    return state._replace(momentum=jax.tree.map(lambda leaf: leaf / decay, momentum))


def test_momentum_is_completed_by_the_solve():
    """The gradient minimises the damped quadratic around the momentum: solve with the rest."""
    predict_one, params, inputs = network = NETWORKS["mlp"]()
    rng = np.random.default_rng(6)
    momentum = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), params)
    flat = np.asarray(ravel_pytree(momentum)[0])
    # (G + damping) d = g - G momentum, with g = (G + damping) n from a dense solve.
    dense = dense_natural_gradient(predict_one, params, inputs, TARGETS, DAMPING)
    matrix = dense_natural_gradient(
        predict_one, params, inputs, TARGETS, DAMPING, return_matrix=True
    )
    curved = matrix - DAMPING * np.eye(flat.size)
    reference = flat + np.linalg.solve(matrix, matrix @ dense - curved @ flat)
    step = gradient(network, state=with_momentum(params, momentum))
    assert relative_error(step.gradient, reference) < 1e-9
    assert relative_error(step.state.momentum, reference) < 1e-9


def test_a_gradient_that_is_not_finite_leaves_the_state_alone():
    network = NETWORKS["mlp"]()
    state = GradientState.zeros(network[1], momentum=0.9)
    state = gradient(network, state=state).state
    after = gradient(network, state=state, targets=TARGETS.at[0].set(jnp.nan)).state
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("has_momentum", "solver"), [(False, Direct()), (True, Direct()), (True, Blocks(rows=4))]
)
def test_slope_and_divergence_are_those_of_the_step(has_momentum, solver):
    predict_one, params, inputs = network = NETWORKS["mlp"]()
    where = jnp.ones(ROWS, bool).at[1].set(False)
    state = None
    if has_momentum:
        state = with_momentum(params, jax.tree.map(jnp.ones_like, params))
    step = gradient(network, state=state, where=where, solver=solver)

    def predict(params):
        return jax.vmap(predict_one, (None, 0))(params, inputs)

    def loss(params):
        return jnp.mean(predict(params).nll(TARGETS), where=where)

    @jax.jit
    def along(total):
        value, slope = jax.jvp(loss, (params,), (total,))
        dist, tangent = jax.jvp(predict, (params,), (total,))
        return value, slope, jnp.mean(0.5 * dist.fisher_norm_sq(tangent), where=where)

    value, slope, divergence = along(step.gradient)
    np.testing.assert_allclose(step.value, value, rtol=1e-12)
    np.testing.assert_allclose(step.slope, slope, rtol=1e-9)
    np.testing.assert_allclose(step.step_kl, divergence, rtol=1e-9)
    assert gradient(network, weights=jnp.full(ROWS, 2.0)).step_kl is None


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"first": 1.0}, TypeError, "`state` must be a `GradientState`, got dict"),
        (
            GradientState.zeros({"other": jnp.ones(2)}, momentum=0.9),
            ValueError,
            "`state.momentum` must be a tree like `params`",
        ),
    ],
)
def test_mistakes_with_states_are_named(state, error, message):
    with pytest.raises(error, match=message):
        gradient(NETWORKS["mlp"](), state=state)


def test_a_momentum_of_one_is_refused():
    with pytest.raises(ValueError, match="`momentum` must"):
        GradientState.zeros(jnp.ones(2), momentum=1.0)
