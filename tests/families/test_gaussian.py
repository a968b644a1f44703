"""The Gaussian against SciPy, quadrature and its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from fisher8_jax import Gaussian

RNG = np.random.default_rng(0)
MEAN, LOG_VARIANCE, TARGETS = RNG.normal(size=(3, 4, 5))


def gaussian():
    return Gaussian(jnp.asarray(MEAN), jnp.asarray(LOG_VARIANCE))


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(jnp.float64, 1e-12), (jnp.float32, 1e-5), (jnp.bfloat16, 1e-5)]
)
def test_equals_scipy(dtype, rtol):
    """Half precision is answered in float32, except for moments, which keep the dtype."""
    mean, log_variance, targets = (
        np.asarray(jnp.asarray(x, dtype), np.float64) for x in (MEAN, LOG_VARIANCE, TARGETS)
    )
    exact = scipy.stats.norm(mean, np.exp(log_variance / 2))
    dist = Gaussian(jnp.asarray(mean, dtype), jnp.asarray(log_variance, dtype))
    y = jnp.asarray(targets, dtype)
    for ours, theirs in [
        (dist.nll(y), -exact.logpdf(targets)),
        (dist.nll(y, constant=False), -exact.logpdf(targets) - 0.5 * np.log(2 * np.pi)),
        (dist.cdf(y), exact.cdf(targets)),
        (dist.quantile(jnp.asarray(0.9, dtype)), exact.ppf(float(jnp.asarray(0.9, dtype)))),
        (dist.standardize(y), (targets - mean) / exact.std()),
    ]:
        assert ours.dtype == jnp.promote_types(dtype, jnp.float32)
        np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=rtol, atol=rtol)
    rtol = 0.05 if dtype == jnp.bfloat16 else rtol
    for ours, theirs in [(dist.variance, exact.var()), (dist.std, exact.std())]:
        assert ours.dtype == dtype
        np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=rtol, atol=rtol)


def test_fisher_information_is_the_variance_of_the_score():
    """By Gauss-Hermite quadrature, exact for polynomials of the score's degree."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    for mean, s in [(0.3, -1.0), (-2.0, 2.5)]:
        y = jnp.asarray(mean + np.exp(s / 2) * nodes)

        def nll(theta, y=y):
            return Gaussian(
                jnp.broadcast_to(theta[0], y.shape), jnp.broadcast_to(theta[1], y.shape)
            ).nll(y)

        score = jax.jacobian(nll)(jnp.array([mean, s]))
        fisher = np.einsum("n,ni,nj->ij", weights, score, score)
        np.testing.assert_allclose(fisher, np.diag([np.exp(-s), 0.5]), atol=1e-12)
        dist = Gaussian(jnp.array(mean), jnp.array(s))
        for tangent in np.eye(2):
            natural = dist.natural(Gaussian(*jnp.asarray(fisher @ tangent)))
            np.testing.assert_allclose([natural.mean, natural.log_variance], tangent, atol=1e-12)
        step = np.array([0.7, -0.4])
        ours = dist.fisher_norm_sq(Gaussian(*jnp.asarray(step)))
        np.testing.assert_allclose(ours, step @ fisher @ step, rtol=1e-12)


def test_kl_equals_numerical_integration():
    p, q = Gaussian(jnp.array(0.2), jnp.array(-0.5)), Gaussian(jnp.array(-0.4), jnp.array(0.8))

    def integrand(y):
        return jnp.exp(-p.nll(y)) * (q.nll(y) - p.nll(y))

    grid = np.linspace(-12, 12, 4001)
    numeric = scipy.integrate.simpson(jax.vmap(integrand)(jnp.asarray(grid)), x=grid)
    np.testing.assert_allclose(p.kl(q), numeric, rtol=1e-9)


def test_kl_of_close_distributions_keeps_its_digits():
    """Half the Fisher quadratic form; the textbook formula would lose all digits in float32."""
    p = Gaussian(jnp.float32(1.0), jnp.float32(0.5))
    q = Gaussian(jnp.float32(1.0), jnp.float32(0.5 + 2**-12))
    np.testing.assert_allclose(p.kl(q), 0.25 * 2.0**-24, rtol=1e-3)
    assert p.kl(p) == 0


def test_small_steps_cost_half_their_fisher_norm():
    p = gaussian()
    step = Gaussian(*(jnp.asarray(1e-4 * RNG.normal(size=(4, 5))) for _ in range(2)))
    q = jax.tree.map(jnp.add, p, step)
    np.testing.assert_allclose(p.kl(q), 0.5 * p.fisher_norm_sq(step), rtol=1e-3)


def test_natural_score_is_the_natural_gradient():
    p, y = gaussian(), jnp.asarray(TARGETS)
    natural = p.natural(jax.grad(lambda d: d.nll(y).sum())(p))
    score = p.natural_score(y)
    for name in ("mean", "log_variance"):
        ours = score[name].value * jnp.exp(score[name].log_scale)
        np.testing.assert_allclose(ours, getattr(natural, name), rtol=1e-11)


def test_cdf_and_quantile_are_inverse():
    p = gaussian()
    y = jnp.asarray(TARGETS)
    np.testing.assert_allclose(p.quantile(p.cdf(y)), y, rtol=1e-9)


def test_quantiles_of_several_levels_come_along_a_new_axis():
    p = gaussian()
    levels = jnp.array([0.1, 0.5, 0.9]).reshape(3, 1, 1)
    quantiles = p.quantile(levels)
    assert quantiles.shape == (3, 4, 5)
    np.testing.assert_allclose(quantiles[1], MEAN, atol=1e-12)


def test_sample_moments():
    draws = gaussian().sample(jax.random.key(0), (20_000,))
    assert draws.shape == (20_000, 4, 5)
    standard_error = np.exp(LOG_VARIANCE / 2) / np.sqrt(20_000)
    assert np.all(np.abs(draws.mean(0) - MEAN) < 4.5 * standard_error)
    np.testing.assert_allclose(draws.var(0), np.exp(LOG_VARIANCE), rtol=4.5 * np.sqrt(2 / 20_000))


@pytest.mark.parametrize("raw", [-1e30, -1000.0, -90.0, -3.0, 0.0, 3.0, 90.0, 1e30])
@pytest.mark.parametrize("head", ["from_softplus_std", "from_softplus_variance"])
def test_softplus_heads_are_finite_for_any_raw_output(raw, head):
    def log_variance(raw):
        return getattr(Gaussian, head)(jnp.float32(0), raw).log_variance

    value, slope = jax.value_and_grad(log_variance)(jnp.float32(raw))
    assert np.isfinite(value)
    assert np.isfinite(slope)
    if abs(raw) < 100:
        power = 2 if head == "from_softplus_std" else 1
        exact = power * np.log(np.logaddexp(0, np.float64(raw)))
        np.testing.assert_allclose(value, exact, rtol=1e-5)


def test_other_heads():
    raw = jnp.asarray(RNG.normal(size=6))
    zero = jnp.zeros(6)
    np.testing.assert_allclose(Gaussian.from_log_std(zero, raw).std, np.exp(raw), rtol=1e-12)
    np.testing.assert_allclose(Gaussian.from_std(zero, jnp.exp(raw)).log_variance, 2 * raw)
    floored = Gaussian.from_softplus_variance(zero, raw, min_variance=0.25)
    np.testing.assert_allclose(floored.variance, np.logaddexp(0, raw) + 0.25, rtol=1e-12)


def test_unscale_moves_mean_and_variance_together():
    standard = gaussian()
    original = standard.unscale(shift=jnp.asarray(3.0), scale=jnp.asarray(-2.5))
    y = jnp.asarray(TARGETS)
    # A density of y becomes one of -2.5 y + 3, lower by the logarithm of the scale.
    np.testing.assert_allclose(original.nll(-2.5 * y + 3), standard.nll(y) + np.log(2.5), rtol=1e-9)


def test_jit_vmap_and_tree_structure():
    p, y = gaussian(), jnp.asarray(TARGETS)
    np.testing.assert_allclose(jax.jit(lambda d: d.nll(y))(p), p.nll(y), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(lambda d, t: d.nll(t))(p, y), p.nll(y), rtol=1e-12)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(p)]
    assert paths == [".mean", ".log_variance"]
    with pytest.raises(AttributeError):
        p.mean = y


def test_negative_spreads_are_refused():
    with pytest.raises(ValueError, match="`std` must not be negative, got -2"):
        Gaussian.from_std(jnp.zeros(2), jnp.array([1.0, -2.0]))
    with pytest.raises(ValueError, match="`variance` must not be negative, got -1"):
        Gaussian.from_variance(jnp.zeros(2), jnp.array([1.0, -1.0]))
    assert jnp.isnan(jax.jit(Gaussian.from_std)(jnp.zeros(1), -jnp.ones(1)).log_variance).all()
