"""All solvers, the scale of the damping, momentum, and what is known about the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fisher8_jax import Gaussian, fisher8, fisher8_nll, network_curvature, network_gradient
from fisher8_jax.curvature import (
    Blocks,
    ConjugateGradients,
    Direct,
    FactoredScale,
    GradientState,
    SecondMoments,
    adjust_damping,
    precondition,
    reduction_ratio,
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


def random_scale(params, *, factored):
    rng = np.random.default_rng(5)

    def draw(leaf):
        if leaf.ndim < 2 or not factored:
            return jnp.asarray(rng.uniform(0.1, 5, leaf.shape))
        row, column = rng.uniform(0.1, 5, leaf.shape[:-1]), rng.uniform(0.1, 5, leaf.shape[-1])
        return FactoredScale(jnp.asarray(row), jnp.asarray(column))

    return jax.tree.map(draw, params)


@pytest.mark.parametrize(
    ("name", "factored", "solver"),
    [
        ("mlp", True, Direct()),
        ("mlp", False, Direct()),
        ("cnn", True, Direct()),
        pytest.param("attention", True, Direct(), marks=pytest.mark.slow),
        ("mlp", True, ConjugateGradients(max_iterations=80, tolerance=1e-13)),
    ],
)
def test_the_damping_may_have_a_scale(name, factored, solver):
    predict_one, params, inputs = NETWORKS[name]()
    scale = random_scale(params, factored=factored)

    def is_scale(node):
        return isinstance(node, FactoredScale)

    full = jax.tree.map(lambda s: s.full() if is_scale(s) else s, scale, is_leaf=is_scale)
    flat = ravel_pytree(full)[0]
    reference = dense_natural_gradient(predict_one, params, inputs, TARGETS, DAMPING, scale=flat)

    @jax.jit
    def scaled(params):
        options = {"damping": DAMPING, "damping_scale": scale, "solver": solver}
        curvature = network_curvature(predict_one, params, inputs, **options)

        def loss(params):
            dist = jax.vmap(predict_one, (None, 0))(params, inputs)
            return precondition(dist, curvature).nll(TARGETS).mean()

        return curvature.divide(jax.grad(loss)(params))

    assert relative_error(scaled(params), reference) < 1e-9


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
    state = GradientState.zeros(network[1], momentum=0.9, second_moments=True)
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


def test_second_moments_are_those_of_adafactor():
    """Against the means of squares written out, with the bias of the start taken out."""
    rng = np.random.default_rng(8)
    gradients = [{"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)} for _ in range(3)]
    moments = SecondMoments.zeros({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    np.testing.assert_array_equal(moments.damping_scale()["bias"], 1)
    for g in gradients:
        moments = moments.add(jax.tree.map(jnp.asarray, g), decay=0.9)
    moments = moments.add({"kernel": jnp.full((3, 2), jnp.nan), "bias": jnp.ones(2)}, decay=0.9)
    weights = 0.1 * 0.9 ** np.arange(2, -1, -1)
    weights /= weights.sum()
    squares = sum(w * g["kernel"] ** 2 for w, g in zip(weights, gradients, strict=True))
    row, column = squares.mean(1), squares.mean(0)
    expected = np.sqrt(np.outer(row / row.mean(), column))
    scale = moments.damping_scale()
    np.testing.assert_allclose(scale["kernel"].full(), expected, rtol=1e-6)
    squares = sum(w * g["bias"] ** 2 for w, g in zip(weights, gradients, strict=True))
    np.testing.assert_allclose(scale["bias"], np.sqrt(squares), rtol=1e-6)


def test_the_reduction_ratio_compares_with_the_quadratic_model():
    """A tiny step decreases the loss as its slope says, a long one as the formula says."""
    predict_one, params, inputs = network = NETWORKS["mlp"]()
    step = gradient(network)

    @jax.jit
    def value(scale):
        moved = jax.tree.map(lambda p, g: p - scale * g, params, step.gradient)
        return jax.vmap(predict_one, (None, 0))(moved, inputs).nll(TARGETS).mean()

    assert reduction_ratio(step, 1e-4, value(1e-4)) == pytest.approx(1, abs=1e-3)
    expected = (step.value - value(0.7)) / (0.7 * step.slope - 0.49 * step.step_kl)
    np.testing.assert_allclose(reduction_ratio(step, 0.7, value(0.7)), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="`step` must know how far it moves"):
        reduction_ratio(gradient(network, weights=jnp.ones(ROWS)), 0.7, value(0.7))


def test_damping_follows_the_ratio_within_its_bounds():
    ratios = jnp.array([0.9, 0.5, 0.1, -3.0, jnp.nan])
    adjusted = adjust_damping(jnp.full(5, 1.0), ratios, factor=2.0)
    np.testing.assert_allclose(adjusted, [0.5, 1, 2, 2, 2])
    assert adjust_damping(1e-3, jnp.asarray(1.0)) == pytest.approx(1e-3)
    assert adjust_damping(10.0, jnp.asarray(0.0)) == 10
    with pytest.raises(ValueError, match="`factor` must"):
        adjust_damping(0.1, jnp.asarray(1.0), factor=1.0)


MASK = jnp.ones(ROWS, bool).at[1].set(False)
LOSSES = {
    "nll": {},
    "mask and weights": {"where": MASK, "weights": jnp.linspace(0.5, 2.0, ROWS)},
    "a loss of one's own": {"loss": lambda dist, targets: dist.crps(targets)},
}


@pytest.mark.parametrize("case", LOSSES)
def test_moments_are_those_of_fisher8_gradients_and_scale_the_damping(case):
    """The same as one more backward pass, `SecondMoments.add` and `damping_scale` by hand."""
    options = LOSSES[case]
    predict_one, params, inputs = network = NETWORKS["mlp"]()
    del params["unused"]  # whose second moment is 0

    def loss(params):
        dist = jax.vmap(predict_one, (None, 0))(params, inputs)
        if "loss" in options:
            return options["loss"](fisher8(dist), TARGETS).mean()
        return fisher8_nll(dist, TARGETS, **options).mean()

    before = SecondMoments.zeros(params).add(jax.tree.map(jnp.ones_like, params))
    expected = before.add(jax.grad(loss)(params))
    step = gradient(network, state=GradientState(second_moments=before), **options)
    found = jax.tree.leaves(step.state.second_moments)
    for ours, theirs in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-15)
    for ours, theirs in zip(
        jax.tree.leaves(step.curvature.scale),
        jax.tree.leaves(expected.damping_scale()),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_moments_in_bfloat16_and_under_vmap():
    predict_one, params, inputs = NETWORKS["mlp"]()
    params, inputs, targets = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16), (params, inputs, TARGETS)
    )

    @jax.jit
    @jax.vmap
    def runs(damping):
        state = GradientState.zeros(params, second_moments=True)
        options = {"damping": damping, "state": state}
        step = network_gradient(predict_one, params, inputs, targets, **options)
        return step.gradient, step.state.second_moments

    steps, moments = runs(jnp.array([0.1, 10.0]))
    assert all(np.all(np.isfinite(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(steps))
    assert {leaf.dtype for leaf in jax.tree.leaves(moments)} == {jnp.dtype(jnp.float32)}
    for leaf in jax.tree.leaves(moments):  # the damping has no part in them
        np.testing.assert_array_equal(leaf[0], leaf[1])


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"first": 1.0}, TypeError, "`state` must be a `GradientState`, got dict"),
        (
            GradientState.zeros({"other": jnp.ones(2)}, second_moments=True),
            ValueError,
            "`state.second_moments` must be a tree like `params`",
        ),
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
