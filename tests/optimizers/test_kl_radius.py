"""The KL radius: what it measures, how far it moves, and what it does with bad updates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from fisher8_jax import Family, Gaussian
from fisher8_jax.families._contract import family
from fisher8_jax.optimizers import scale_by_kl_radius
from fisher8_jax.optimizers._kl_radius import KLRadiusState
from tests.optimizers.network import exact_kl, fisher8_gradients, make_batch, make_params, network


def radius_step(max_kl, updates, params, inputs, *, where=None, **options):
    """One update of the bare transformation."""
    radius = scale_by_kl_radius(max_kl, **options)
    return radius.update(
        updates, radius.init(params), params, predict=lambda p: network(p, inputs), where=where
    )


def dense_quadratic_kl(params, updates, inputs, weights=None):
    """`1/2 u' G u` with the full parameter Fisher `G = mean(J' F J)`, from Jacobians in NumPy."""
    flat, unravel = ravel_pytree(params)

    def outputs(flat):
        dist = network(unravel(flat), inputs)
        return jnp.stack([dist.mean, dist.log_variance], axis=-1)

    jacobian = np.asarray(jax.jacrev(outputs)(flat))  # (batch, 2, parameters)
    precision = np.exp(-np.asarray(network(params, inputs).log_variance))
    fisher = np.stack([np.diag([p, 0.5]) for p in precision])
    weights = np.ones(len(precision)) if weights is None else np.asarray(weights, float)
    metric = np.einsum("b,bip,bij,bjq->pq", weights, jacobian, fisher, jacobian) / weights.sum()
    u = np.asarray(ravel_pytree(updates)[0])
    return 0.5 * u @ metric @ u


@pytest.fixture(scope="module")
def problem():
    jax.config.update("jax_enable_x64", True)
    params = make_params()
    inputs, targets = make_batch()
    gradients = fisher8_gradients(params, inputs, targets)
    return params, inputs, jax.tree.map(jnp.negative, gradients)


def test_target_moves_the_dense_quadratic_kl(problem):
    params, inputs, updates = problem
    scaled, state = radius_step(0.3, updates, params, inputs)
    assert dense_quadratic_kl(params, scaled, inputs) == pytest.approx(0.3, rel=1e-10)
    expected = np.sqrt(0.3 / dense_quadratic_kl(params, updates, inputs))
    np.testing.assert_allclose(scaled["w1"], expected * updates["w1"], rtol=1e-10)
    assert float(state.scale) == pytest.approx(expected, rel=1e-6)  # measurements are float32
    assert float(state.quadratic_kl) == pytest.approx(0.3, rel=1e-6)


def test_masked_elements_do_not_count(problem):
    params, inputs, updates = problem
    where = jnp.array([True, True, False, True, False, True, True, True])
    # A prediction of nan at a masked element must not matter either.
    poisoned = inputs.at[2].set(jnp.nan)
    scaled, _ = radius_step(0.3, updates, params, poisoned, where=where)
    finite = jnp.where(where[:, None], inputs, 0)
    assert dense_quadratic_kl(params, scaled, finite, where) == pytest.approx(0.3, rel=1e-10)


def test_several_targets_count_as_elements(problem):
    params, inputs, updates = problem

    def predict(p):
        dist = network(p, inputs)
        return Gaussian(
            jnp.stack([dist.mean, 2 * dist.mean], -1), jnp.stack([dist.log_variance] * 2, -1)
        )

    radius = scale_by_kl_radius(0.3)
    scaled, _ = radius.update(updates, radius.init(params), params, predict=predict)
    _, change = jax.jvp(predict, (params,), (scaled,))
    values = 0.5 * predict(params).fisher_norm_sq(change)
    assert values.shape == (8, 2)
    assert float(values.mean()) == pytest.approx(0.3, rel=1e-10)


def test_target_moves_the_exact_kl_within_15_percent(problem):
    params, inputs, updates = problem
    scaled, _ = radius_step(0.01, updates, params, inputs)
    assert exact_kl(params, scaled, inputs) == pytest.approx(0.01, rel=0.15)


def test_target_does_not_depend_on_the_size_of_the_update(problem):
    params, inputs, updates = problem
    expected, _ = radius_step(0.3, updates, params, inputs)
    for factor in (1e-150, 1e200):
        rescaled, state = radius_step(
            0.3, jax.tree.map(lambda u, f=factor: f * u, updates), params, inputs
        )
        np.testing.assert_allclose(rescaled["w1"], expected["w1"], rtol=1e-10)
        assert int(state.skipped) == 0


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_float32_neither_overflows_nor_vanishes(factor):
    params, (inputs, _) = make_params(dtype=jnp.float32), make_batch(dtype=jnp.float32)
    updates = jax.tree.map(lambda p: jnp.float32(factor) * jnp.ones_like(p), params)
    scaled, state = radius_step(0.3, updates, params, inputs)
    assert dense_quadratic_kl(params, scaled, inputs) == pytest.approx(0.3, rel=1e-4)
    assert int(state.skipped) == 0


def test_cap_leaves_small_updates_untouched_and_shortens_large_ones(problem):
    params, inputs, updates = problem
    small = jax.tree.map(lambda u: 0.01 * u, updates)
    assert dense_quadratic_kl(params, small, inputs) < 0.1
    kept, state = radius_step(0.1, small, params, inputs, mode="cap")
    assert all(np.array_equal(kept[name], small[name]) for name in small)
    assert float(state.scale) == 1
    large = jax.tree.map(lambda u: 100 * u, updates)
    capped, state = radius_step(0.1, large, params, inputs, mode="cap")
    assert dense_quadratic_kl(params, capped, inputs) == pytest.approx(0.1, rel=1e-10)
    assert float(state.scale) < 1


@pytest.mark.parametrize("mode", ["target", "cap"])
@pytest.mark.parametrize("max_kl", [0.01, 1.0, 30.0])
def test_exact_corrects_where_the_quadratic_estimate_is_too_low(problem, mode, max_kl):
    params, inputs, _ = problem
    # Lower log-variances alone: by d, the KL is (exp(d) - 1 - d) / 2 against d^2 / 4.
    updates = jax.tree.map(jnp.zeros_like, params) | {"b2": jnp.array([0.0, -100.0])}
    quadratic, _ = radius_step(max_kl, updates, params, inputs, mode=mode)
    d = 2 * np.sqrt(max_kl)
    assert exact_kl(params, quadratic, inputs) == pytest.approx((np.expm1(d) - d) / 2, rel=1e-6)
    scaled, state = radius_step(max_kl, updates, params, inputs, mode=mode, exact=True)
    moved = exact_kl(params, scaled, inputs)
    assert 0.1 * max_kl < moved <= max_kl * (1 + 1e-9)
    assert float(state.exact_kl) == pytest.approx(moved, rel=1e-6)
    assert float(state.quadratic_kl) < max_kl


def test_exact_drops_a_step_that_stays_too_long(problem):
    params, inputs, updates = problem

    # A prediction that is nan wherever the parameters have moved at all can never be accepted.
    def fragile(p):
        dist = network(p, inputs)
        moved = sum(jnp.sum(jnp.abs(p[name] - params[name])) for name in p)
        return Gaussian(dist.mean, jnp.where(moved > 0, jnp.nan, dist.log_variance))

    radius = scale_by_kl_radius(0.1, exact=True)
    scaled, state = radius.update(updates, radius.init(params), params, predict=fragile)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(scaled))
    assert int(state.skipped) == 1
    assert float(state.exact_kl) == 0


@pytest.mark.parametrize("mode", ["target", "cap"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_bad_update_is_dropped_and_does_not_poison_the_state(problem, mode, exact, bad):
    params, inputs, updates = problem
    radius = scale_by_kl_radius(0.1, mode=mode, exact=exact)
    poisoned = updates | {"b2": updates["b2"].at[0].set(bad)}
    state = radius.init(params)
    dropped, state = radius.update(
        poisoned, state, params, predict=lambda p: network(p, inputs), unknown="tolerated"
    )
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(dropped))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    assert (int(state.count), int(state.skipped), float(state.scale)) == (1, 1, 0)
    scaled, state = radius.update(updates, state, params, predict=lambda p: network(p, inputs))
    assert float(jnp.abs(scaled["w1"]).max()) > 0
    assert (int(state.count), int(state.skipped)) == (2, 1)


def test_a_bad_prediction_is_dropped(problem):
    params, inputs, updates = problem
    scaled, state = radius_step(0.1, updates, params, inputs.at[0].set(jnp.nan))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(scaled))
    assert int(state.skipped) == 1


def test_an_update_without_effect_is_dropped_by_target_and_kept_by_cap(problem):
    params, inputs, updates = problem
    nothing = jnp.zeros(8, bool)
    dropped, state = radius_step(0.1, updates, params, inputs, where=nothing)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(dropped))
    assert int(state.skipped) == 1
    kept, state = radius_step(0.1, updates, params, inputs, where=nothing, mode="cap")
    assert all(np.array_equal(kept[name], updates[name]) for name in updates)
    assert int(state.skipped) == 0


@pytest.mark.parametrize("mode", ["target", "cap"])
def test_a_zero_update_stays_zero(problem, mode):
    params, inputs, updates = problem
    zeros = jax.tree.map(jnp.zeros_like, updates)
    scaled, state = radius_step(0.1, zeros, params, inputs, mode=mode, exact=True)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(scaled))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


def test_a_tiny_effect_gives_a_finite_update():
    # The derivative is 1e-22 in float32, so that q is 1e-44, next to the smallest number there is.
    def predict(params):
        return Gaussian(jnp.float32(1e-22) * params * jnp.ones(2, jnp.float32), jnp.zeros(2))

    radius = scale_by_kl_radius(0.1)
    params = jnp.float32(1)
    updates, state = radius.update(jnp.float32(1), radius.init(params), params, predict=predict)
    assert np.isfinite(updates)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


def test_an_update_too_large_for_float16_is_dropped():
    # Moving by max_kl needs a step of about 4e6, which float16 cannot hold.
    def predict(params):
        return Gaussian(1e-7 * params.astype(jnp.float32) * jnp.ones(2, jnp.float32), jnp.zeros(2))

    radius = scale_by_kl_radius(0.1)
    params = jnp.ones((), jnp.float16)
    updates, state = radius.update(params, radius.init(params), params, predict=predict)
    assert float(updates) == 0
    assert updates.dtype == jnp.float16
    assert int(state.skipped) == 1


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("update_dtype", [jnp.float32, None])
def test_half_precision_parameters(dtype, update_dtype):
    params, (inputs, targets) = make_params(dtype=dtype), make_batch(dtype=dtype)
    updates = jax.tree.map(
        lambda g: g.astype(update_dtype or dtype), fisher8_gradients(params, inputs, targets)
    )
    scaled, state = radius_step(0.1, updates, params, inputs)
    assert all(leaf.dtype == (update_dtype or dtype) for leaf in jax.tree.leaves(scaled))
    wide = [jax.tree.map(lambda x: x.astype(jnp.float64), tree) for tree in (params, scaled)]
    # bfloat16 has 8 bits: the pushed-forward tangent is right to about 1 %.
    measured = dense_quadratic_kl(*wide, inputs.astype(jnp.float64))
    assert measured == pytest.approx(0.1, rel=0.05)
    assert state.quadratic_kl.dtype == jnp.float32


def test_measurements_are_reached_by_name(problem):
    params, inputs, updates = problem
    optimizer = optax.chain(optax.adam(0.1), scale_by_kl_radius(0.2, exact=True))
    state = optimizer.init(params)
    _, state = optimizer.update(updates, state, params, predict=lambda p: network(p, inputs))
    for name in ("scale", "quadratic_kl", "exact_kl", "skipped"):
        assert np.isfinite(optax.tree_utils.tree_get(state, name))
    assert isinstance(state[-1], KLRadiusState)
    assert scale_by_kl_radius(0.2).init(params).exact_kl is None


@family
class Plane(Family):
    """Two coordinates of unit variance: one parameter field with an axis of its own."""

    mean: jax.Array

    @property
    def batch_shape(self):
        return self.mean.shape[:-1]

    @property
    def event_shape(self):
        return (2,)

    def fisher(self, tangent):
        return tangent

    def kl(self, other):
        return 0.5 * jnp.sum((self.mean - other.mean) ** 2, -1)

    nll = natural = cdf = quantile = draw = None


def test_a_family_whose_field_has_an_axis_of_its_own():
    params = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3))).at[1].set(jnp.nan)
    where = jnp.array([True, False, True, True, True])
    radius = scale_by_kl_radius(0.3, exact=True)
    updates, state = radius.update(
        jnp.ones_like(params),
        radius.init(params),
        params,
        predict=lambda p: Plane(inputs @ p),
        where=where,
    )
    # With unit variances the quadratic divergence is exact.
    moved = 0.5 * np.sum(np.asarray(inputs @ updates)[np.asarray(where)] ** 2, -1).mean()
    assert 0.28 < moved <= 0.3 * (1 + 1e-9)
    assert float(state.exact_kl) == pytest.approx(float(state.quadratic_kl), rel=1e-5)
