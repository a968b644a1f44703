"""The rule itself: cotangents against a dense solve, and the laws that follow from it."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from fisher8_jax import Gaussian, fisher8, fisher8_nll
from tests.dense import dense_fisher8, dense_natural, gaussian_gradient

# A few shapes, so that few programs are compiled; magnitudes and values vary freely.
SHAPES = st.sampled_from([(1,), (2,), (33,), (7, 1), (1, 4), (6, 3), (4, 2, 3)])


@st.composite
def batches(draw):
    """Means, log-variances and targets of one shape, over many orders of magnitude."""
    shape = draw(SHAPES)
    seed = draw(st.integers(0, 2**32 - 1))
    scale = 10.0 ** draw(st.integers(-6, 6))
    spread = draw(st.sampled_from([0.1, 1.0, 5.0]))
    rng = np.random.default_rng(seed)
    mean, targets = scale * rng.normal(size=(2, *shape))
    log_variance = spread * rng.normal(size=shape) + 2 * np.log(scale)
    return mean, log_variance, targets


def through_identity(dist, targets, **options):
    return fisher8(dist, **options).nll(targets).mean()


def through_fused(dist, targets, **options):
    return fisher8_nll(dist, targets, **options).mean()


SCALED_PATHS = {
    path: functools.partial(lambda path, dist, targets, factor: factor * path(dist, targets), path)
    for path in (through_identity, through_fused)
}

PATHS = pytest.mark.parametrize("path", [through_identity, through_fused])


def cotangents(path, mean, log_variance, targets, dtype=jnp.float64, **options):
    arrays = {name: options.pop(name) for name in ("where", "weights") if name in options}
    dist = Gaussian(jnp.asarray(mean, dtype), jnp.asarray(log_variance, dtype))
    static = tuple(options.items())
    gradient = _gradient(path, static, dist, jnp.asarray(targets, dtype), arrays)
    return gradient.mean, gradient.log_variance


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gradient(path, static, dist, targets, arrays):
    return jax.grad(lambda d: path(d, targets, **dict(static), **arrays))(dist)


@PATHS
@given(batch=batches())
def test_equals_dense_solve_in_float64(path, batch):
    for ours, dense in zip(cotangents(path, *batch), dense_fisher8(*batch), strict=True):
        np.testing.assert_allclose(ours, dense, rtol=1e-12, atol=1e-12)


@PATHS
@given(batch=batches())
def test_equals_dense_solve_in_float32(path, batch):
    # The reference is computed from the rounded numbers, which are what the rule is given.
    rounded = [x.astype(np.float32).astype(np.float64) for x in batch]
    mean, log_variance = cotangents(path, *rounded, dtype=jnp.float32)
    assert mean.dtype == log_variance.dtype == jnp.float32
    dense_mean, dense_log_variance = dense_fisher8(*rounded)
    np.testing.assert_allclose(mean, dense_mean, rtol=1e-5, atol=1e-6)
    # 1 - z^2 cancels near z = 1: the error is relative to the largest term, not to the result.
    z_sq = np.exp(-rounded[1]) * (rounded[0] - rounded[2]) ** 2
    norm = np.sqrt(np.sum((1 - z_sq) ** 2, axis=0, keepdims=True))
    tolerance = 1e-6 * (1 + np.max(np.maximum(1, z_sq) / np.maximum(norm, 1e-30), axis=0))
    assert np.all(np.abs(log_variance - dense_log_variance) <= tolerance)


@PATHS
def test_typical_float32_batches_agree_to_one_millionth(path):
    rng = np.random.default_rng(1)
    batch = rng.normal(size=(3, 64, 3)).astype(np.float32).astype(np.float64)
    for ours, dense in zip(
        cotangents(path, *batch, dtype=jnp.float32), dense_fisher8(*batch), strict=True
    ):
        np.testing.assert_allclose(ours, dense, rtol=0, atol=1e-6 * np.abs(dense).max())


@PATHS
def test_without_normalisation_it_is_the_natural_gradient(path):
    rng = np.random.default_rng(2)
    mean, log_variance, targets = rng.normal(size=(3, 10))
    # A sum, because the mean's 1/n is not normalised away here.
    ours = cotangents(
        lambda d, t, **o: path(d, t, **o) * 10, mean, log_variance, targets, normalize=False
    )
    gradient = gaussian_gradient(mean, log_variance, targets)
    for a, b in zip(ours, dense_natural(mean, log_variance, *gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@given(batch=batches())
def test_forward_is_the_identity_to_the_bit(batch):
    mean, log_variance, _ = (jnp.asarray(x, jnp.float32) for x in batch)
    dist = fisher8(Gaussian(mean, log_variance))
    assert np.array_equal(dist.mean, mean)
    assert np.array_equal(dist.log_variance, log_variance)


def test_fused_value_is_the_nll():
    rng = np.random.default_rng(3)
    mean, log_variance, targets = jnp.asarray(rng.normal(size=(3, 9)))
    dist = Gaussian(mean, log_variance)
    np.testing.assert_array_equal(fisher8_nll(dist, targets), dist.nll(targets))


@PATHS
@given(batch=batches(), factor=st.sampled_from([1e-8, 0.3, 7.0, 1e8]))
def test_a_factor_on_the_loss_has_no_effect(path, batch, factor):
    plain = cotangents(path, *batch)
    scaled = cotangents(SCALED_PATHS[path], *batch, factor=factor)
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@PATHS
@given(batch=batches())
def test_every_coordinate_has_unit_norm(path, batch):
    for column in cotangents(path, *batch):
        norms = np.linalg.norm(column, axis=0)
        np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-12)


@PATHS
def test_rescaled_targets_leave_the_direction_unchanged(path):
    rng = np.random.default_rng(4)
    mean, log_variance, targets = rng.normal(size=(3, 12))
    plain = cotangents(path, mean, log_variance, targets)
    for c in (1e-3, 50.0):
        scaled = cotangents(path, c * mean, log_variance + 2 * np.log(c), c * targets)
        for a, b in zip(plain, scaled, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)


@PATHS
def test_permuted_rows_permute_the_cotangents(path):
    rng = np.random.default_rng(5)
    batch = rng.normal(size=(3, 11, 2))
    order = rng.permutation(11)
    for a, b in zip(
        cotangents(path, *batch), cotangents(path, *(x[order] for x in batch)), strict=True
    ):
        np.testing.assert_allclose(a[order], b, rtol=1e-12)


@PATHS
def test_a_batch_given_twice_is_divided_by_the_square_root_of_two(path):
    rng = np.random.default_rng(6)
    batch = rng.normal(size=(3, 11))
    twice = cotangents(path, *(np.concatenate([x, x]) for x in batch))
    for a, b in zip(cotangents(path, *batch), twice, strict=True):
        np.testing.assert_allclose(b, np.concatenate([a, a]) / np.sqrt(2), rtol=1e-12)


@PATHS
def test_several_axes_share_one_norm(path):
    rng = np.random.default_rng(7)
    batch = rng.normal(size=(3, 4, 5, 6, 2))  # batch, height, width, targets
    for axis in [(0, 1, 2), (0, 2), 1, -1, (0, -1)]:
        for ours, dense in zip(
            cotangents(path, *batch, axis=axis), dense_fisher8(*batch, axis=axis), strict=True
        ):
            np.testing.assert_allclose(ours, dense, rtol=1e-12)


@PATHS
def test_masked_rows_count_for_nothing(path):
    rng = np.random.default_rng(8)
    mean, log_variance, targets = rng.normal(size=(3, 10, 2))
    where = rng.random((10, 2)) < 0.6
    broken = [np.where(where, x, bad) for x, bad in ((mean, 1e9), (targets, np.nan))]
    ours = cotangents(path, broken[0], log_variance, broken[1], where=jnp.asarray(where))
    for column in range(2):
        keep = where[:, column]
        dense = dense_fisher8(*(x[keep, column] for x in (mean, log_variance, targets)))
        for a, b in zip(ours, dense, strict=True):
            np.testing.assert_allclose(a[keep, column], b, rtol=1e-12)
            np.testing.assert_array_equal(a[~keep, column], 0)


def test_masked_nan_never_reaches_a_computation():
    """Under the nan checker, which looks at every intermediate result."""
    targets = jnp.array([1.0, jnp.nan, 2.0])
    dist = Gaussian(jnp.array([0.0, 5.0, 1.0]), jnp.zeros(3))
    where = jnp.array([True, False, True])
    with jax.debug_nans(True):
        values, gradient = jax.value_and_grad(lambda d: fisher8_nll(d, targets, where=where).sum())(
            dist
        )
    assert np.isfinite(values)
    assert gradient.mean[1] == 0


@PATHS
def test_mask_of_rows_broadcasts_over_targets(path):
    rng = np.random.default_rng(9)
    batch = rng.normal(size=(3, 6, 2))
    rows = np.array([1, 0, 1, 1, 0, 1], bool)
    narrow = cotangents(path, *batch, where=jnp.asarray(rows[:, None]))
    wide = cotangents(path, *batch, where=jnp.asarray(np.repeat(rows[:, None], 2, axis=1)))
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_act_before_the_norm():
    rng = np.random.default_rng(10)
    mean, log_variance, targets = rng.normal(size=(3, 8))
    weights = rng.uniform(0.1, 3, size=8)
    ours = cotangents(through_fused, mean, log_variance, targets, weights=jnp.asarray(weights))
    gradient = [weights * g for g in gaussian_gradient(mean, log_variance, targets)]
    for a, natural in zip(ours, dense_natural(mean, log_variance, *gradient), strict=True):
        np.testing.assert_allclose(a, natural / np.linalg.norm(natural), rtol=1e-12)
    dist = Gaussian(jnp.asarray(mean), jnp.asarray(log_variance))
    values = fisher8_nll(dist, jnp.asarray(targets), weights=jnp.asarray(weights))
    np.testing.assert_allclose(values, weights * dist.nll(jnp.asarray(targets)), rtol=1e-12)


def test_any_other_loss_is_preconditioned_too():
    rng = np.random.default_rng(11)
    mean, log_variance, targets = rng.normal(size=(3, 8))

    def loss(dist, targets):
        dist = fisher8(dist)
        return jnp.sum(jnp.abs(dist.mean - targets) + jnp.cos(dist.log_variance))

    ours = cotangents(loss, mean, log_variance, targets)
    natural = dense_natural(mean, log_variance, np.sign(mean - targets), -np.sin(log_variance))
    for a, b in zip(ours, natural, strict=True):
        np.testing.assert_allclose(a, b / np.linalg.norm(b), rtol=1e-12)


def test_targets_weights_and_mask_receive_no_gradient():
    dist = Gaussian(jnp.zeros(3), jnp.zeros(3))

    def loss(targets, weights):
        return fisher8_nll(dist, targets, weights=weights).sum()

    gradient = jax.grad(loss, argnums=(0, 1))(jnp.arange(3.0), jnp.ones(3))
    for part in gradient:
        np.testing.assert_array_equal(part, 0)


def test_network_parameters_follow_the_batched_rule():
    """A hand-written back-propagation of the unit-norm cotangents through a linear model."""
    rng = np.random.default_rng(12)
    x, targets = rng.normal(size=(20, 4)), rng.normal(size=20)
    weights = {"mean": rng.normal(size=4), "log_variance": 0.1 * rng.normal(size=4)}

    def loss(w):
        dist = fisher8(Gaussian(jnp.asarray(x) @ w["mean"], jnp.asarray(x) @ w["log_variance"]))
        return dist.nll(jnp.asarray(targets)).mean()

    gradient = jax.grad(loss)(jax.tree.map(jnp.asarray, weights))
    unit = dense_fisher8(x @ weights["mean"], x @ weights["log_variance"], targets)
    np.testing.assert_allclose(gradient["mean"], x.T @ unit[0], rtol=1e-11)
    np.testing.assert_allclose(gradient["log_variance"], x.T @ unit[1], rtol=1e-11)


@pytest.mark.parametrize("learning_rate", [1e-4, 1e-2, 0.5])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_paper_s_bound_on_the_batch_kl_of_a_step(learning_rate, spread):
    """`rate^2 (exp(-min log_variance)/2 + 1/4)`, reached if all variances are equal."""
    rng = np.random.default_rng(0)
    mean, s, targets = (jnp.asarray(rng.normal(size=16)) for _ in range(3))
    dist = Gaussian(mean, spread * s)
    step = jax.grad(lambda d: fisher8_nll(d, targets).sum())(dist)
    step = jax.tree.map(lambda g: -learning_rate * g, step)
    quadratic = 0.5 * dist.fisher_norm_sq(step).sum()
    bound = learning_rate**2 * (np.exp(-np.min(dist.log_variance)) / 2 + 0.25)
    assert quadratic <= bound * (1 + 1e-12)
    if spread == 0:
        np.testing.assert_allclose(quadratic, bound)
    if learning_rate < 1e-3:
        np.testing.assert_allclose(
            dist.kl(jax.tree.map(jnp.add, dist, step)).sum(), quadratic, rtol=1e-2
        )
