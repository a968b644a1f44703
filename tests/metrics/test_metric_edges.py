"""One point, ties, non-finite predictions, masks, constant targets, and what a user gets wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import Gaussian, metrics
from fisher8_jax.families import MultivariateGaussian

NAMES = (
    "rmse",
    "mae",
    "nll",
    "crps",
    "ece",
    "quantile_calibration_error",
    "mean_z_squared",
    "sharpness",
    "coverage",
    "interval_width",
    "interval_score",
    "pit_histogram",
)


def fields(record):
    return {name: np.asarray(getattr(record, name)) for name in NAMES}


def assert_same(got, expected):
    for name, value in fields(expected).items():
        np.testing.assert_allclose(getattr(got, name), value, rtol=1e-12, err_msg=name)


def standard(n=24, targets=2, seed=0):
    # One shape for most tests, so that `evaluate` is compiled once.
    rng = np.random.default_rng(seed)
    dist = Gaussian(*jnp.asarray(rng.normal(size=(2, n, targets))))
    return dist, jnp.asarray(rng.normal(size=(n, targets)))


def test_one_point():
    record = metrics.evaluate(Gaussian(jnp.zeros(1), jnp.zeros(1)), jnp.array([0.05]))
    np.testing.assert_allclose(record.rmse, 0.05)
    np.testing.assert_allclose(record.ece, 0.9)  # one full bin, nine empty ones are left out
    np.testing.assert_array_equal(record.coverage, 1)
    assert record.count == 1


def test_single_prediction_without_batch_axis():
    value = metrics.rmse(Gaussian(jnp.asarray(1.0), jnp.asarray(0.0)), jnp.asarray(3.0), axis=())
    assert value == 2


def test_constant_targets_and_ties():
    """All PITs are exactly 1/2, the left end of the sixth bin."""
    dist = Gaussian(jnp.full(40, 3.0), jnp.zeros(40))
    record = metrics.evaluate(dist, jnp.full(40, 3.0))
    np.testing.assert_array_equal(record.pit_histogram, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(record.ece, 0.9)
    assert record.rmse == 0
    # Ten levels from 0.5 to 0.95 hold everything, nine below hold nothing.
    expected = np.mean([1 - p if p >= 0.5 else p for p in np.arange(1, 20) / 20])
    np.testing.assert_allclose(record.quantile_calibration_error, expected)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("field", ["mean", "log_variance"])
def test_diverged_model_does_not_look_good(bad, field):
    n = 40
    parameters = {"mean": jnp.zeros(n), "log_variance": jnp.zeros(n)} | {field: jnp.full(n, bad)}
    record = metrics.evaluate(Gaussian(**parameters), jnp.zeros(n))
    assert record.non_finite == n
    assert record.ece == 1
    assert record.quantile_calibration_error == pytest.approx(0.5)
    np.testing.assert_array_equal(record.coverage, 0)
    np.testing.assert_array_equal(record.pit_histogram, 0)
    for name in ("nll", "crps", "mean_z_squared", "sharpness"):
        assert np.isnan(getattr(record, name)), name
    assert np.isnan(record.interval_score).all()


def test_half_diverged_model_in_one_target_only():
    """Ten bins with share 1/20 each and half of the points in none: (10/20 + 1/2) / 11."""
    middles = (jnp.arange(10) + 0.5) / 10
    y = jax.scipy.special.ndtri(jnp.concatenate([middles, middles]))
    mean = jnp.zeros((20, 2)).at[10:, 1].set(jnp.nan)
    record = metrics.evaluate(Gaussian(mean, jnp.zeros((20, 2))), jnp.stack([y, y], axis=1))
    np.testing.assert_array_equal(record.non_finite, [0, 10])
    np.testing.assert_allclose(record.ece, [0, 1 / 11], atol=1e-12)
    np.testing.assert_array_equal(np.isnan(record.rmse), [False, True])
    np.testing.assert_allclose(record.coverage[1], record.coverage[0] / 2)


def test_masked_points_count_for_nothing():
    dist, y = standard()
    rng = np.random.default_rng(1)
    keep = jnp.asarray(rng.permuted(np.arange(24)[:, None] < [12, 12], axis=0))
    broken = Gaussian(jnp.where(keep, dist.mean, jnp.nan), jnp.where(keep, dist.log_variance, 1e9))
    record = metrics.evaluate(broken, jnp.where(keep, y, jnp.nan), where=keep)
    np.testing.assert_array_equal(record.count, keep.sum(axis=0))
    np.testing.assert_array_equal(record.non_finite, 0)
    for t in range(2):
        kept = np.asarray(keep[:, t])
        alone = Gaussian(dist.mean[kept, t], dist.log_variance[kept, t])
        expected = metrics.evaluate(alone, y[kept, t])
        assert_same(jax.tree.map(lambda leaf, t=t: leaf[t], record), expected)


def test_mask_broadcasts_over_axes_of_length_one():
    dist, y = standard()
    keep = jnp.arange(24)[:, None] < 12
    got = metrics.evaluate(dist, y, where=keep)
    assert_same(got, metrics.evaluate(jax.tree.map(lambda a: a[:12], dist), y[:12]))


def test_masked_nan_target_does_not_leak_into_the_gradient():
    keep = jnp.array([True, False])
    y = jnp.array([1.0, jnp.nan])

    def score(mean):
        return metrics.evaluate(Gaussian(mean, jnp.full(2, -300.0)), y, where=keep).crps

    np.testing.assert_allclose(jax.grad(score)(jnp.array([0.0, 1e6])), [-1, 0])


def test_empty_mask_gives_nan_and_a_count_of_zero():
    dist, y = standard()
    record = metrics.evaluate(
        dist,
        y,
        where=jnp.zeros((24, 2), bool),
        bootstrap=metrics.Bootstrap(jax.random.key(0), resamples=20),
    )
    np.testing.assert_array_equal(record.count, 0)
    for values in (record, record.lower, record.upper):
        for name, value in fields(values).items():
            assert np.isnan(value).all(), name


def test_empty_batch_gives_nan():
    record = metrics.evaluate(Gaussian(jnp.zeros((0, 2)), jnp.zeros((0, 2))), jnp.zeros((0, 2)))
    assert np.isnan(record.rmse).all()
    assert np.isnan(record.ece).all()


def test_unmasked_nan_target_is_loud():
    y = jnp.zeros(40).at[7].set(jnp.nan)
    record = metrics.evaluate(Gaussian(jnp.zeros(40), jnp.zeros(40)), y)
    assert record.non_finite == 0
    for name, value in fields(record).items():
        if name not in ("sharpness", "interval_width"):
            assert np.isnan(value).all(), name


def test_integer_targets_are_numbers():
    dist = Gaussian(jnp.zeros(24, jnp.float32), jnp.zeros(24, jnp.float32))
    y = jnp.arange(24) % 3
    keep = y < 2
    got = metrics.evaluate(dist, y, where=keep)
    assert_same(got, metrics.evaluate(dist, y.astype(jnp.float32), where=keep))


def test_several_axes_and_none():
    dist, y = standard()
    images = jax.tree.map(lambda a: a.reshape(4, 6, 2), (dist, y))
    flat = metrics.evaluate(dist, y)
    assert_same(metrics.evaluate(*images, axis=(0, 1)), flat)
    for axis in [(1, 0), (-2, -3)]:
        np.testing.assert_allclose(metrics.nll(*images, axis=axis), flat.nll, rtol=1e-12)
    np.testing.assert_allclose(metrics.nll(*images, axis=None), flat.nll.mean(), rtol=1e-12)
    assert metrics.evaluate(*images, axis=1).coverage.shape == (4, 2, 4)


def test_huge_and_tiny_numbers_in_float32():
    y = jnp.asarray([3e30, 4e30], jnp.float32)
    dist = Gaussian(jnp.zeros_like(y), jnp.full_like(y, -400.0))
    np.testing.assert_allclose(metrics.rmse(dist, y), np.sqrt(12.5) * 1e30, rtol=1e-6)
    np.testing.assert_allclose(metrics.evaluate(dist, y).crps, 3.5e30, rtol=1e-6)
    np.testing.assert_allclose(metrics.rmse(dist, 1e-60 * y), 0)
    wide = Gaussian(jnp.zeros_like(y), jnp.full_like(y, 2 * np.log(1e30)))
    np.testing.assert_allclose(metrics.evaluate(wide, y).sharpness, 1e30, rtol=1e-5)
    np.testing.assert_allclose(metrics.evaluate(wide, y).mean_z_squared, 12.5, rtol=1e-4)


def test_joint_distributions_are_rejected_by_metrics_of_a_cdf():
    zeros = jnp.zeros((4, 2))
    dist = MultivariateGaussian(zeros, zeros, jnp.zeros((4, 1)))
    y = jnp.ones((4, 2)).at[3].set(jnp.nan)
    keep = jnp.array([True, True, True, False])
    np.testing.assert_allclose(metrics.rmse(dist, y, where=keep), [1, 1])
    np.testing.assert_allclose(metrics.nll(dist, jnp.ones((4, 2)), constant=False), 1)
    with pytest.raises(ValueError, match=r"event shape \(2,\). .* `dist.marginals\(\)`"):
        metrics.evaluate(dist, y)
    crps = metrics.evaluate(dist.marginals(), jnp.ones((4, 2))).crps
    np.testing.assert_allclose(crps[0], 0.602442, 1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"targets": jnp.zeros(4)}, ValueError, r"shape of the predictions, \(4, 1\), got \(4,\)"),
        ({"axis": 2}, ValueError, r"`axis` 2 does not exist in predictions of shape \(4, 1\)"),
        ({"axis": (0, -2)}, ValueError, "names the same axis twice"),
        ({"where": jnp.ones((4, 1))}, TypeError, "`where` must be boolean"),
        ({"where": jnp.ones(4, bool)}, ValueError, "Add the missing axes"),
        ({"levels": (95,)}, ValueError, r"got 95(\.0)?\. A level of 95 % is written 0.95"),
        ({"levels": 0.9}, TypeError, r"`levels` must be a sequence, got 0.9. Pass `\(0.9,\)`"),
        ({"levels": ()}, ValueError, "at least one level"),
        ({"dist": (0, 1)}, TypeError, "must be a predicted distribution, .* got tuple"),
        ({"dist": Gaussian}, TypeError, "got the class Gaussian"),
        (
            {"bootstrap": metrics.Bootstrap(jax.random.key(0), resamples=0)},
            ValueError,
            "`bootstrap.resamples` must be a positive integer, got 0",
        ),
        (
            {"bootstrap": metrics.Bootstrap(jax.random.key(0), confidence=95)},
            ValueError,
            "`bootstrap.confidence` must lie strictly between 0 and 1, got 95",
        ),
    ],
)
def test_mistakes_are_explained(change, error, message):
    good = {"dist": Gaussian(jnp.zeros((4, 1)), jnp.zeros((4, 1))), "targets": jnp.zeros((4, 1))}
    with pytest.raises(error, match=message):
        metrics.evaluate(**(good | change))
