"""The scaler against NumPy, and what happens to densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.machinery.networks import stack_members
from fisher8_jax import Gaussian
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.ensembles import Mixture

TARGETS = np.random.default_rng(0).normal([10.0, -3.0], [2.0, 0.1], (50, 2))


def test_fit_takes_mean_and_population_std():
    scaler = TargetScaler.fit(TARGETS)
    np.testing.assert_allclose(scaler.shift, TARGETS.mean(0), rtol=1e-14)
    np.testing.assert_allclose(scaler.scale, TARGETS.std(0), rtol=1e-12)
    scaled = scaler.transform(jnp.asarray(TARGETS))
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(scaler.inverse_transform(scaled), TARGETS, rtol=1e-12)


def test_missing_targets_and_weights_count_as_they_should():
    where = np.random.default_rng(1).random(TARGETS.shape) < 0.7
    weights = np.random.default_rng(2).integers(0, 4, len(TARGETS))
    scaler = TargetScaler.fit(np.where(where, TARGETS, np.nan), where=where, weights=weights)
    for k in range(2):
        repeated = np.repeat(TARGETS[:, k], weights * where[:, k])
        np.testing.assert_allclose(scaler.shift[k], repeated.mean(), rtol=1e-12)
        np.testing.assert_allclose(scaler.scale[k], repeated.std(), rtol=1e-10)


def test_a_constant_column_keeps_scale_1():
    assert TargetScaler.fit(np.full(7, 0.1)).scale == 1
    assert TargetScaler.fit(np.zeros(7)).scale == 1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_prediction_goes_back_with_its_variance(dtype):
    scaler = TargetScaler.fit(TARGETS)
    dist = Gaussian(jnp.ones((3, 2), dtype), jnp.zeros((3, 2), dtype))
    back = jax.jit(lambda d: scaler.unscale(d))(dist)
    assert back.mean.dtype == dtype
    np.testing.assert_allclose(
        back.mean[0].astype(float), TARGETS.mean(0) + TARGETS.std(0), rtol=1e-2
    )
    np.testing.assert_allclose(back.std[0].astype(float), TARGETS.std(0), rtol=2e-2)


def test_the_likelihood_changes_by_the_scale_alone():
    scaler = TargetScaler.fit(TARGETS)
    dist = Gaussian(jnp.zeros((50, 2)), jnp.full((50, 2), 0.3))
    expected = -stats.norm.logpdf(TARGETS, scaler.shift, scaler.scale * np.exp(0.15))
    np.testing.assert_allclose(scaler.unscale(dist).nll(jnp.asarray(TARGETS)), expected, rtol=1e-10)


def test_a_mixture_goes_back_member_by_member():
    scaler = TargetScaler.fit(TARGETS)
    members = [Gaussian(jnp.full((3, 2), float(m)), jnp.zeros((3, 2))) for m in range(2)]
    back = scaler.unscale(Mixture(stack_members(members)))
    np.testing.assert_allclose(back.member(1).mean, scaler.unscale(members[1]).mean)
    np.testing.assert_allclose(back.epistemic[0], 0.25 * TARGETS.var(0))


def test_mistakes_are_named():
    scaler = TargetScaler.fit(TARGETS)
    with pytest.raises(TypeError, match="`targets` must be a floating-point array, got dtype int"):
        TargetScaler.fit(np.arange(3))
    with pytest.raises(ValueError, match="at least one row"):
        TargetScaler.fit(np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"rows of shape \(2,\), got values of shape \(5,\)"):
        scaler.transform(jnp.zeros(5))
    with pytest.raises(TypeError, match=r"a predicted distribution.*got float"):
        scaler.unscale(1.0)
    with pytest.raises(ValueError, match=r"`weights` must hold one number per row, shape \(50,\)"):
        TargetScaler.fit(TARGETS, weights=np.ones(3))
    with pytest.raises(ValueError, match="`where` must have the shape of the predictions"):
        TargetScaler.fit(TARGETS, where=np.ones(50, bool))


def test_nan_is_refused_or_masked_and_never_a_scale():
    targets = np.array([[1.0, 5.0], [3.0, np.nan], [5.0, 9.0]])
    with pytest.raises(ValueError, match=r"must be finite, got nan at \(1, 1\) and 1 such"):
        TargetScaler.fit(targets)
    scaler = TargetScaler.fit(targets, skip_nan=True)
    np.testing.assert_allclose(scaler.shift, [3.0, 7.0])
    np.testing.assert_allclose(scaler.scale, [np.std([1, 3, 5]), 2.0])
    by_mask = TargetScaler.fit(targets, where=~np.isnan(targets))
    np.testing.assert_array_equal(by_mask.scale, scaler.scale)
    empty = TargetScaler.fit(np.full((3, 1), np.nan), skip_nan=True)
    np.testing.assert_array_equal(empty.scale, [1.0])
    with pytest.raises(ValueError, match="got inf at"):
        TargetScaler.fit(np.array([1.0, np.inf]), skip_nan=True)
    for bad in (np.array([1.0, np.nan]), np.array([1.0, -1.0])):
        with pytest.raises(ValueError, match="`weights` must be finite and not negative"):
            TargetScaler.fit(np.ones(2), weights=bad)
    with pytest.raises(TypeError, match="`weights` must be real numbers, got dtype bool"):
        TargetScaler.fit(np.ones(2), weights=np.ones(2, bool))


def test_scale_alone_is_the_root_mean_square():
    scaler = TargetScaler.fit(np.array([3.0, 4.0]), shift=False)
    assert scaler.shift is None
    np.testing.assert_allclose(scaler.scale, np.sqrt(12.5))
    values = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(values)), values)
    assert TargetScaler.fit(np.zeros(3), shift=False).scale == 1
