"""Trustable: clip forms against projection forms, natural targets, references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.machinery.losses.trustable import (
    gather_references,
    init_references,
    natural_target,
    project,
    refresh_references,
    trustable,
)
from fisher8_jax import Gaussian

RNG = np.random.default_rng(3)
MEAN, S, Y, MEAN0, S0 = RNG.normal(size=(5, 40))


def dist():
    return Gaussian(jnp.asarray(MEAN), jnp.asarray(S))


def reference():
    return Gaussian(jnp.asarray(MEAN0), jnp.asarray(S0))


def interpolated(mean, std, mean0, std0, mean_bound, scale_bound):
    """The projection as published: a point outside is moved along the line to the reference."""
    mean_distance = (mean - mean0) ** 2 / std0**2
    scale_distance = 1 + std**2 / std0**2 - 2 * std / std0
    w = np.where(mean_distance > mean_bound, np.sqrt(mean_distance / mean_bound) - 1, 0)
    e = np.where(scale_distance > scale_bound, np.sqrt(scale_distance / scale_bound) - 1, 0)
    return (mean + w * mean0) / (1 + w), (std + e * std0) / (1 + e)


BOUNDS = [(1.0, 1.0), (0.1, 0.01), (4.0, 0.25), (10.0, 100.0)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_clip_form_equals_projection_form(bounds):
    expected = interpolated(MEAN, np.exp(S / 2), MEAN0, np.exp(S0 / 2), *bounds)
    near = project(dist(), reference(), mean_bound=bounds[0], scale_bound=bounds[1])
    np.testing.assert_allclose(near.mean, expected[0], rtol=1e-12)
    np.testing.assert_allclose(near.std, expected[1], rtol=1e-12)
    if bounds[0] <= 4:
        assert (near.mean != MEAN).any(), "some points must lie outside"
    assert (near.mean == MEAN).any(), "some points must lie inside"


@pytest.mark.parametrize("bounds", BOUNDS)
def test_projection_lands_on_the_bound_and_is_idempotent(bounds):
    near = project(dist(), reference(), mean_bound=bounds[0], scale_bound=bounds[1])
    mean_distance = ((near.mean - MEAN0) / np.exp(S0 / 2)) ** 2
    scale_distance = (near.std / np.exp(S0 / 2) - 1) ** 2
    assert mean_distance.max() <= bounds[0] * (1 + 1e-12)
    assert scale_distance.max() <= bounds[1] * (1 + 1e-12)
    again = project(near, reference(), mean_bound=bounds[0], scale_bound=bounds[1])
    np.testing.assert_allclose(again.mean, near.mean, rtol=1e-12)
    np.testing.assert_allclose(again.log_variance, near.log_variance, rtol=1e-12, atol=1e-14)


def test_bounds_may_be_traced():
    """A sweep over bounds is one vmap."""
    mean_bounds, scale_bounds = jnp.array([1.0, 0.1, 4.0]), jnp.array([1.0, 0.01, 0.25])

    def one(mean_bound, scale_bound):
        return project(dist(), reference(), mean_bound=mean_bound, scale_bound=scale_bound)

    swept = jax.jit(jax.vmap(one))(mean_bounds, scale_bounds)
    for row, bounds in enumerate(BOUNDS[:3]):
        near = project(dist(), reference(), mean_bound=bounds[0], scale_bound=bounds[1])
        np.testing.assert_allclose(swept.mean[row], near.mean, rtol=1e-12)
        np.testing.assert_allclose(swept.log_variance[row], near.log_variance, rtol=1e-12)


def test_infinite_bounds_do_nothing():
    near = project(dist(), reference(), mean_bound=np.inf, scale_bound=np.inf)
    np.testing.assert_array_equal(near.mean, MEAN)
    np.testing.assert_allclose(near.log_variance, S, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("truncated", [True, False])
@pytest.mark.parametrize("scale_factor", [1.0, 2.0])
def test_natural_target(truncated, scale_factor):
    """Against gradients in local coordinates mean + std * delta, std * exp(m / 2), taken by JAX."""
    alpha = 0.3

    def nll(delta, m):
        moved = Gaussian(MEAN + np.exp(S / 2) * delta, S + m)
        return moved.nll(jnp.asarray(Y)).sum()

    by_delta, by_m = jax.grad(nll, (0, 1))(jnp.zeros(40), jnp.zeros(40))
    u = -alpha * scale_factor * by_m / 2
    grow = 1 + u + u**2 / 2 if truncated else np.exp(u)
    goal = natural_target(
        dist(), jnp.asarray(Y), step_size=alpha, scale_factor=scale_factor, truncated=truncated
    )
    np.testing.assert_allclose(goal.mean, MEAN - alpha * np.exp(S / 2) * by_delta, rtol=1e-10)
    np.testing.assert_allclose(goal.std, np.exp(S / 2) * grow, rtol=1e-12)


def test_natural_target_is_the_natural_gradient_step():
    """scale_factor=2 moves the log-variance by step_size (z^2 - 1), to first order."""
    step = 1e-7
    goal = natural_target(dist(), jnp.asarray(Y), step_size=step)
    z2 = (Y - MEAN) ** 2 / np.exp(S)
    np.testing.assert_allclose((goal.log_variance - S) / step, z2 - 1, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_loss_and_gradient_by_hand(bounds):
    alpha, std0 = 0.2, np.exp(S0 / 2)
    near_mean, near_std = interpolated(MEAN, np.exp(S / 2), MEAN0, std0, *bounds)
    u = -(alpha / 2) * (1 - (Y - near_mean) ** 2 / near_std**2)
    free = near_mean + alpha * (Y - near_mean), near_std * (1 + u + u**2 / 2)
    goal_mean, goal_std = interpolated(*free, MEAN0, std0, *bounds)

    def values(mean, s):
        return trustable(
            Gaussian(mean, s),
            jnp.asarray(Y),
            reference=reference(),
            step_size=alpha,
            mean_bound=bounds[0],
            scale_bound=bounds[1],
        )

    expected = (near_mean - goal_mean) ** 2 + (near_std - goal_std) ** 2
    np.testing.assert_allclose(
        values(dist().mean, dist().log_variance), expected, rtol=1e-9, atol=1e-25
    )
    by_mean, by_s = jax.grad(lambda *a: values(*a).sum(), (0, 1))(dist().mean, dist().log_variance)
    mean_is_inside = np.abs(MEAN - MEAN0) < np.sqrt(bounds[0]) * std0
    scale_is_inside = np.abs(np.exp(S / 2) / std0 - 1) < np.sqrt(bounds[1])
    by_mean_expected = np.where(mean_is_inside, 2 * (near_mean - goal_mean), 0)
    by_s_expected = np.where(scale_is_inside, (near_std - goal_std) * near_std, 0)
    np.testing.assert_allclose(by_mean, by_mean_expected, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(by_s, by_s_expected, rtol=1e-9, atol=1e-14)


def test_the_current_prediction_as_reference_always_has_a_gradient():
    def total(mean, s):
        here = Gaussian(mean, s)
        return trustable(here, jnp.asarray(Y), reference=jax.lax.stop_gradient(here)).sum()

    by_mean, by_s = jax.grad(total, (0, 1))(dist().mean, dist().log_variance)
    assert np.abs(by_mean).min() > 0
    assert np.abs(by_s).min() > 0


def test_no_gradient_reaches_the_reference():
    def total(mean0, s0):
        return trustable(dist(), jnp.asarray(Y), reference=Gaussian(mean0, s0)).sum()

    for gradient in jax.grad(total, (0, 1))(jnp.asarray(MEAN0), jnp.asarray(S0)):
        np.testing.assert_array_equal(gradient, 0)


def test_references_outside_the_mask_may_be_nan():
    where = jnp.arange(40) % 3 != 0
    broken = jax.tree.map(lambda leaf: jnp.where(where, leaf, jnp.nan), reference())

    def total(mean, s, reference):
        here = Gaussian(mean, s)
        return trustable(here, jnp.asarray(Y), reference=reference, where=where).sum()

    run = jax.value_and_grad(total, (0, 1))
    actual = run(dist().mean, dist().log_variance, broken)
    expected = run(dist().mean, dist().log_variance, reference())
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_scales_that_overflow_leave_finite_gradients():
    """Log-variances apart by 400: their ratio of scales is not a float32."""

    def total(s):
        here = Gaussian(jnp.zeros(2, jnp.float32), s)
        unit = Gaussian(jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.float32))
        return trustable(here, jnp.ones(2, jnp.float32), reference=unit).sum()

    value, gradient = jax.value_and_grad(total)(jnp.array([400.0, -400.0], jnp.float32))
    assert np.isfinite(value)
    np.testing.assert_array_equal(gradient, 0)


def test_references_are_gathered_and_refreshed():
    references = init_references(reference())
    indices = jnp.array([5, 0, 5])
    batch = gather_references(references, indices)
    np.testing.assert_array_equal(batch.mean, MEAN0[np.array([5, 0, 5])])
    fresh = refresh_references(references, dist(), mean_bound=0.5, scale_bound=0.04)
    expected = interpolated(MEAN, np.exp(S / 2), MEAN0, np.exp(S0 / 2), 0.5, 0.04)
    np.testing.assert_allclose(fresh.mean, expected[0], rtol=1e-12)
    np.testing.assert_allclose(fresh.std, expected[1], rtol=1e-12)
    assert jax.tree.structure(fresh) == jax.tree.structure(references)


def test_repeated_refreshes_reach_the_prediction():
    """Bounded steps, but not a bounded distance: a fixed prediction is reached in the end."""
    references = reference()
    for _ in range(60):
        references = refresh_references(references, dist(), mean_bound=0.25, scale_bound=0.04)
    np.testing.assert_allclose(references.mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(references.log_variance, S, rtol=1e-12)


def test_bad_references():
    with pytest.raises(TypeError, match=r"`predictions` must be a `Gaussian`"):
        init_references(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"`reference` must have the shape of the predictions"):
        refresh_references(reference(), Gaussian(jnp.zeros(3), jnp.zeros(3)))
