"""Calibrators against scikit-learn, SciPy and their own guarantees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
from sklearn.isotonic import IsotonicRegression

from fisher8_jax import Gaussian, metrics
from fisher8_jax._points import INTERVAL_LEVELS
from fisher8_jax.calibration import IsotonicPIT, SplitConformal, VarianceScaling
from fisher8_jax.families import Laplace, Poisson


def overconfident(n, targets=2, seed=0, dtype=jnp.float64, worst=3.0):
    """Errors of 1.5 and of `worst` predicted standard deviations in the first two targets."""
    rng = np.random.default_rng(seed)
    dist = Gaussian(*jnp.asarray(rng.normal(size=(2, n, targets)), dtype))
    excess = jnp.asarray(np.tile([1.5, worst], targets)[:targets], dtype)
    noise = jnp.asarray(rng.normal(size=(n, targets)), dtype) * excess[None]
    return dist, dist.mean + dist.std * noise


def poison(dist, y, keep):
    """Nan wherever the mask says that nobody looks."""
    hidden = jax.tree.map(lambda a: jnp.where(keep, a, jnp.nan), (dist, y))
    return {"dist": hidden[0], "targets": hidden[1], "where": keep}


CALIBRATORS = (VarianceScaling, IsotonicPIT, SplitConformal)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_targets_are_apart_and_masked_points_count_for_nothing(calibrator):
    dist, y = overconfident(60)
    keep = jnp.asarray(np.random.default_rng(1).random((60, 2)) < 0.7)
    fit = jax.jit(lambda d, t, m: calibrator.fit(d, t, where=m))
    got = fit(*poison(dist, y, keep).values())
    for t in range(2):
        kept = np.asarray(keep[:, t])
        alone = Gaussian(dist.mean[kept, t], dist.log_variance[kept, t])
        expected = jax.tree.leaves(jax.jit(calibrator.fit)(alone, y[kept, t]))[0]
        np.testing.assert_allclose(jax.tree.leaves(got)[0][:, t], expected, rtol=1e-12)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_batch_and_space_are_one_axis_and_vmap_maps(calibrator):
    dist, y = overconfident(24)
    images = jax.tree.map(lambda a: a.reshape(4, 6, 2), (dist, y))

    @jax.jit
    def run(dist, y, images):
        joint, separate = (calibrator.fit(*images, axis=axis) for axis in ((0, 1), 1))
        fitted = calibrator.fit(dist, y), joint, jax.vmap(calibrator.fit)(*images), separate
        return [jax.tree.leaves(f)[0] for f in fitted]

    flat, joint, mapped, separate = run(dist, y, images)
    np.testing.assert_allclose(joint[0], flat, rtol=1e-12)
    np.testing.assert_allclose(mapped, separate, rtol=1e-12)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrow_types(calibrator, dtype):
    dist, y = overconfident(1000, dtype=dtype, worst=1.0)
    wide = jax.tree.map(lambda a: a.astype(jnp.float64), dist)
    fit = jax.jit(calibrator.fit)
    got = jax.tree.leaves(fit(dist, y))[0]
    assert got.dtype == jnp.float32
    expected = jax.tree.leaves(fit(wide, y.astype(jnp.float64)))[0]
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
    applied = jax.tree.leaves(jax.jit(lambda d: fit(dist, y).apply(d))(dist))
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in applied)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_nothing_to_fit_and_broken_predictions_are_loud(calibrator):
    dist, y = overconfident(50, targets=1)
    fit = jax.jit(lambda d, t, m: calibrator.fit(d, t, where=m))
    empty = fit(dist, y, jnp.zeros((50, 1), bool))
    assert not np.isfinite(jax.tree.leaves(empty)[0]).any()
    diverged = dataclasses.replace(dist, mean=dist.mean * jnp.nan)
    broken = fit(diverged, y, jnp.ones((50, 1), bool))
    assert not np.isfinite(jax.tree.leaves(broken)[0]).any()


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_other_targets_than_fitted_are_refused(calibrator):
    fitted = jax.jit(calibrator.fit)(*overconfident(30, targets=2))
    with pytest.raises(ValueError, match="does not fit predictions of shape"):
        fitted.apply(overconfident(30, targets=3)[0])
    with pytest.raises(ValueError, match="Only the number of examples may differ"):
        fitted.apply(Gaussian(jnp.zeros(4), jnp.zeros(4)))


def test_variance_factor_minimises_the_nll():
    dist, y = overconfident(200, targets=1)

    @jax.jit
    def held_out_nll(log_factor):
        scaled = Gaussian(dist.mean, dist.log_variance + log_factor)
        return metrics.nll(scaled, y)[0]

    best = scipy.optimize.minimize_scalar(lambda x: float(held_out_nll(x)), tol=1e-10).x
    calibrator = VarianceScaling.fit(dist, y)
    np.testing.assert_allclose(calibrator.factor, [[np.exp(best)]], rtol=1e-6)
    after = calibrator.apply(dist)
    np.testing.assert_array_equal(after.mean, dist.mean)
    np.testing.assert_allclose(metrics.evaluate(after, y).mean_z_squared, 1, rtol=1e-12)


def test_variance_scaling_asks_the_family():
    _, y = overconfident(50, targets=1)
    dist = Laplace(jnp.full_like(y, 3.0), jnp.full_like(y, 0.5))
    calibrator = VarianceScaling.fit(dist, y)
    after = calibrator.apply(dist)
    np.testing.assert_allclose(after.mean, dist.mean, rtol=1e-12)
    np.testing.assert_allclose(after.variance, calibrator.factor * dist.variance, rtol=1e-12)
    counts = Poisson(jnp.zeros((50, 1)))
    with pytest.raises(TypeError, match=r"Poisson cannot have its variance scaled.*SplitConformal"):
        calibrator.apply(counts)


def test_isotonic_map_is_that_of_scikit_learn():
    """All n + 1 steps kept: the pairs (PIT, rank / (n + 1)) through both programs."""
    n = 60
    dist, y = overconfident(n, targets=1)
    pit = np.asarray(dist.cdf(y))[:, 0]
    pairs = np.concatenate([[0], pit, [1]])
    heights = np.concatenate([[0], scipy.stats.rankdata(pit) / (n + 1), [1]])
    reference = IsotonicRegression().fit(pairs, heights)
    new, z = overconfident(40, targets=1, seed=5)

    @jax.jit
    def run(dist, y, new, z):
        few = IsotonicPIT.fit(dist, y, bins=10).knots[0, 0]
        return IsotonicPIT.fit(dist, y, bins=n + 1).apply(new).cdf(z), few

    got, knots = run(dist, y, new, z)
    expected = reference.predict(np.asarray(new.cdf(z))[:, 0])
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-9, atol=1e-12)
    # Fewer steps agree at their own knots.
    np.testing.assert_allclose(reference.predict(knots), np.arange(11) / 10, atol=1e-12)


def recalibrated(bins=10):
    dist, y = overconfident(300, targets=1, seed=3)
    base = Gaussian(jnp.full((7, 1), 2.0), jnp.full((7, 1), 0.4))
    return jax.jit(lambda d, t, b: IsotonicPIT.fit(d, t, bins=bins).apply(b))(dist, y, base), base


def test_recalibrated_density_integrates_to_its_cdf_and_moments():
    law, base = recalibrated()
    one = jax.tree.map(lambda a: a[:1], law)
    breaks = np.asarray(base.quantile(law.knots[0, 0][None, 1:-1]))[0]
    grid = np.concatenate([[-12], breaks, [16]])
    nodes, weights = np.polynomial.legendre.leggauss(60)
    half = np.diff(grid)[:, None] / 2
    points = (grid[:-1, None] + half * (nodes + 1)).reshape(-1)
    weights = (half * weights).reshape(-1)
    density = (
        np.exp(-jax.jit(jax.vmap(one.nll))(jnp.asarray(points)[:, None, None]))[:, 0, 0] * weights
    )
    np.testing.assert_allclose(density.sum(), 1, rtol=1e-9)
    np.testing.assert_allclose(
        density[points < 2.5].sum(), one.cdf(jnp.full((1, 1), 2.5)), atol=0.02
    )
    mean = density @ points
    np.testing.assert_allclose(one.mean[0, 0], mean, rtol=1e-4)
    np.testing.assert_allclose(one.variance[0, 0], density @ (points - mean) ** 2, rtol=2e-4)


def test_recalibrated_quantile_inverts_the_cdf_and_crps_is_its_definition():
    law, _ = recalibrated()
    probability = jnp.asarray([[0.003], [0.1], [0.33], [0.5], [0.77], [0.9], [0.999]])
    grid = np.linspace(-14, 18, 40001)

    @jax.jit
    def ask(law, grid):
        y = law.quantile(probability)
        along_the_grid = jax.vmap(lambda t: law.cdf(jnp.full((7, 1), t))[0, 0])(grid)
        moments = law.mean[0, 0], law.variance[0, 0]
        return y, law.cdf(y), along_the_grid, law.crps(y), moments

    y, back, cdf, crps, (mean, variance) = jax.tree.map(np.asarray, ask(law, jnp.asarray(grid)))
    np.testing.assert_allclose(back, probability, rtol=1e-9)
    for row in (0, 3, 6):
        gap = (cdf - (grid >= float(y[row, 0]))) ** 2
        expected = scipy.integrate.trapezoid(gap, grid)
        np.testing.assert_allclose(crps[row, 0], expected, atol=1e-3)
    draws = np.asarray(jax.jit(lambda law: law.sample(jax.random.key(0), (4000,)))(law))
    assert draws.shape == (4000, 7, 1)
    error = np.sqrt(variance / 28_000)
    np.testing.assert_allclose(draws.mean(), mean, atol=4 * error)


def test_isotonic_and_scaling_repair_new_predictions():
    held_out, new = overconfident(2000, seed=1), overconfident(2000, seed=2)
    before = jax.jit(metrics.evaluate)(*new)
    for calibrator in (VarianceScaling, IsotonicPIT):

        @jax.jit
        def repair(held_out, new, calibrator=calibrator):
            fitted = calibrator.fit(*held_out)
            return metrics.evaluate(fitted.apply(new[0]), new[1])

        after = repair(held_out, new)
        assert (after.ece < 0.3 * before.ece).all()
        assert (after.nll < before.nll).all()
        # Two samples of 2000 points: a standard error of 0.015 at most, taken three times.
        np.testing.assert_allclose(after.coverage, [INTERVAL_LEVELS] * 2, atol=0.045)


def test_isotonic_with_ties_jumps_and_has_no_density_there():
    dist = Gaussian(jnp.zeros(10), jnp.zeros(10))
    fit = jax.jit(lambda d, t: IsotonicPIT.fit(d, t, bins=4).apply(d))
    law = fit(dist, jnp.zeros(10))  # every PIT is 1/2, and so are three of the five knots
    assert np.isnan(law.nll(jnp.zeros(10))).all()
    assert np.isfinite(law.nll(jnp.full(10, 0.1))).all()
    np.testing.assert_allclose(law.cdf(jnp.zeros(10)), 0.75)
    np.testing.assert_allclose(law.cdf(jnp.full(10, -1e-9)), 0.25, atol=1e-8)
    np.testing.assert_allclose(law.quantile(jnp.asarray(0.5)), 0, atol=1e-12)
    rising = law.cdf(jnp.linspace(-3, 3, 10))
    assert (jnp.diff(rising) >= 0).all()


def test_isotonic_of_one_point_is_a_distribution():
    fitted = IsotonicPIT.fit(Gaussian(jnp.zeros(1), jnp.zeros(1)), jnp.array([0.3]))
    assert fitted.knots[0, 0] == 0
    assert fitted.knots[0, -1] == 1
    assert (jnp.diff(fitted.knots) > 0).all()
    with pytest.raises(ValueError, match="`bins` must be a positive integer, got 0"):
        IsotonicPIT.fit(Gaussian(jnp.zeros(1), jnp.zeros(1)), jnp.zeros(1), bins=0)


def test_conformal_rank_is_exact():
    """For n = 9 and 90 % the rank is ceil(10 * 0.9) = 9, though 10 * 0.9 rounds up in float32."""
    y = jnp.arange(1.0, 10.0)
    fitted = SplitConformal.fit(Gaussian(jnp.zeros(9), jnp.zeros(9)), y, levels=(0.1, 0.9, 0.91))
    np.testing.assert_array_equal(fitted.radius, [[1, 9, np.inf]])


def test_conformal_intervals_cover_as_guaranteed():
    """Exchangeable and continuous: the coverage is ceil((n + 1) level) / (n + 1) exactly."""
    n, runs = 19, 20_000
    z = jnp.asarray(np.random.default_rng(0).standard_t(3, size=(n + 1, runs)))
    unit = Gaussian(jnp.zeros((n, runs)), jnp.zeros((n, runs)))
    fitted = SplitConformal.fit(unit, z[:n], levels=(0.5, 0.83, 0.95))
    new = Gaussian(jnp.zeros((1, runs)), jnp.zeros((1, runs)))
    covered = fitted.apply(new).contains(z[n:]).mean(axis=(0, 1))
    expected = np.array([10, 17, 19]) / 20
    np.testing.assert_allclose(covered, expected, atol=4 * np.sqrt(0.25 / runs))


def test_conformal_intervals_follow_the_predicted_scale_and_stay_loud():
    fitted = SplitConformal(jnp.array([[2.0, jnp.inf]]), levels=(0.9, 0.99))
    dist = Gaussian(jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 2 * np.log(3.0), jnp.inf]))
    interval = jax.jit(fitted.apply)(dist)
    np.testing.assert_allclose(interval.lower[:2], [[-1, -np.inf], [-6, -np.inf]])
    np.testing.assert_allclose(interval.upper[:2], [[3, np.inf], [6, np.inf]])
    assert np.isnan(interval.lower[2]).all()
    assert not interval.contains(jnp.zeros(3))[2].any()
    np.testing.assert_allclose(interval.width[0, 0], 4)


def test_non_finite_predictions_widen_conformal_intervals():
    """Two of nine predictions are nan, so the eighth and ninth smallest scores are infinite."""
    mean = jnp.zeros(9).at[:2].set(jnp.nan)
    fitted = SplitConformal.fit(
        Gaussian(mean, jnp.zeros(9)), jnp.arange(9.0), levels=(0.5, 0.7, 0.8)
    )
    np.testing.assert_array_equal(fitted.radius, [[6, 8, np.inf]])
