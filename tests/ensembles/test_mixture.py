"""The predictive mixture against SciPy and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from benchmarks.machinery.networks import stack_members
from fisher8_jax import Gaussian, metrics
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Poisson, VonMises

MEANS = np.array([[-1.0, 0.0, 2.0, 5.0], [0.5, 0.0, 2.5, -5.0], [0.2, 0.1, 9.0, 0.0]])
STDS = np.array([[0.5, 1.0, 0.2, 1.0], [1.5, 1.0, 0.1, 2.0], [0.7, 1.1, 3.0, 0.1]])
TARGETS = jnp.array([0.3, -2.0, 2.2, 1.0])


def mixture(means=MEANS, stds=STDS, dtype=jnp.float64):
    return Mixture(Gaussian.from_std(jnp.asarray(means, dtype), jnp.asarray(stds, dtype)))


def density(x, column):
    return stats.norm.pdf(x, MEANS[:, column], STDS[:, column]).mean()


def test_nll_and_cdf_are_those_of_the_mixture():
    expected = [-np.log(density(float(t), k)) for k, t in enumerate(TARGETS)]
    np.testing.assert_allclose(jax.jit(Mixture.nll)(mixture(), TARGETS), expected, rtol=1e-12)
    without = mixture().nll(TARGETS, constant=False)
    np.testing.assert_allclose(without, np.array(expected) - 0.5 * np.log(2 * np.pi), rtol=1e-12)
    cdf = [stats.norm.cdf(float(t), MEANS[:, k], STDS[:, k]).mean() for k, t in enumerate(TARGETS)]
    np.testing.assert_allclose(mixture().cdf(TARGETS), cdf, rtol=1e-12)


def test_nll_stays_finite_where_the_density_underflows():
    far = jnp.full(4, 1e4)
    assert np.isfinite(mixture().nll(far)).all()
    best = jax.vmap(lambda dist: dist.nll(far))(mixture().members).min(axis=0)
    assert (mixture().nll(far) <= best + np.log(3)).all()


@pytest.mark.parametrize("column", range(4))
def test_moments_are_those_of_the_density(column):
    points = np.sort(MEANS[:, column])
    low, high = points[0] - 40, points[-1] + 40

    def moment(function):
        value, _ = integrate.quad(
            lambda x: function(x) * density(x, column), low, high, points=points, limit=500
        )
        return value

    mean = moment(lambda x: x)
    np.testing.assert_allclose(mixture().mean[column], mean, atol=1e-8)
    variance = moment(lambda x: (x - mean) ** 2)
    np.testing.assert_allclose(mixture().variance[column], variance, rtol=1e-7)


def test_the_variance_is_split_in_two():
    m = mixture()
    np.testing.assert_allclose(m.aleatoric, (STDS**2).mean(0), rtol=1e-12)
    np.testing.assert_allclose(m.epistemic, MEANS.var(0), rtol=1e-12)
    np.testing.assert_allclose(m.std**2, m.aleatoric + m.epistemic, rtol=1e-12)


@pytest.mark.parametrize("probability", [0.001, 0.3, 0.5, 0.95])
def test_quantiles_invert_the_cdf(probability):
    found = jax.jit(Mixture.quantile)(mixture(), probability)
    expected = [
        optimize.brentq(
            lambda x, k=k: stats.norm.cdf(x, MEANS[:, k], STDS[:, k]).mean() - probability,
            -50,
            50,
            xtol=1e-13,
        )
        for k in range(4)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    narrow = mixture(dtype=jnp.float32).quantile(probability)
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, expected, rtol=2e-4, atol=2e-5)


def test_quantiles_of_several_levels_and_the_ends():
    levels = jnp.array([[0.1], [0.9]])
    with jax.numpy_rank_promotion("allow"):
        both = mixture().quantile(levels)
    assert both.shape == (2, 4)
    np.testing.assert_allclose(both[1], mixture().quantile(0.9), rtol=1e-12)
    assert (mixture().quantile(0.0) == -jnp.inf).all()
    assert (mixture().quantile(1.0) == jnp.inf).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.bfloat16])
def test_one_member_equals_that_member_to_the_bit(dtype):
    dist = Gaussian(jnp.asarray(MEANS[0], dtype), jnp.asarray(np.log(STDS[0]), dtype))
    one, targets = Mixture(stack_members([dist])), TARGETS.astype(dtype)
    pairs = [
        (one.nll(targets), dist.nll(targets)),
        (one.cdf(targets), dist.cdf(targets)),
        (one.quantile(0.2), dist.quantile(0.2)),
        (one.mean, dist.mean),
        (one.variance, dist.variance),
        (one.std, dist.std),
        (one.member(0).mean, dist.mean),
    ]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert (one.epistemic == 0).all()


def test_samples_follow_the_mixture():
    draws = np.asarray(mixture().sample(jax.random.key(0), (4000,)))
    assert draws.shape == (4000, 4)
    for k in range(4):
        cdf = lambda x, k=k: stats.norm.cdf(x[:, None], MEANS[:, k], STDS[:, k]).mean(axis=1)  # noqa: E731
        assert stats.kstest(draws[:, k], cdf).pvalue > 1e-3


def test_a_mixture_is_a_pytree_under_vmap():
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), mixture())
    values = jax.vmap(lambda m: m.nll(TARGETS))(stacked)
    np.testing.assert_array_equal(values[1], jax.vmap(lambda m: m.nll(TARGETS))(stacked)[0])


def test_mistakes_are_named():
    with pytest.raises(TypeError, match=r"`members` must be one distribution .* got list"):
        _ = Mixture([1.0]).mean
    with pytest.raises(ValueError, match="got a distribution of scalars"):
        _ = Mixture(Gaussian(jnp.array(0.0), jnp.array(0.0))).mean
    with pytest.raises(ValueError, match="at least one member"):
        _ = Mixture(Gaussian(jnp.zeros((0, 2)), jnp.zeros((0, 2)))).mean
    with pytest.raises(ValueError, match=r"`probability` must lie between 0 and 1, got 1.5"):
        mixture().quantile(1.5)
    with pytest.raises(ValueError, match="`targets` must have the shape of the predictions"):
        mixture().nll(jnp.zeros(3))


def test_metrics_score_a_mixture():
    ours = metrics.nll(mixture(), TARGETS)
    np.testing.assert_allclose(ours, mixture().nll(TARGETS).mean(), rtol=1e-12)
    errors = np.asarray(TARGETS) - MEANS.mean(0)
    np.testing.assert_allclose(metrics.rmse(mixture(), TARGETS), np.sqrt((errors**2).mean()))


def mean_distance(shift, variance):
    """The mean of |X| for a Gaussian X."""
    std = np.sqrt(variance)
    z = shift / std
    return 2 * std * stats.norm.pdf(z) + shift * (2 * stats.norm.cdf(z) - 1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("log_range", [0.0, 3.0, 12.0])
def test_crps_of_gaussians_in_closed_form(dtype, log_range):
    """Grimit et al. 2006, eq. 3: members alike, and far apart in place and in width."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 5)) * np.exp(log_range * rng.uniform(-1, 1, 5))
    log_variances = log_range * rng.uniform(-1, 1, (3, 5))
    targets = rng.normal(size=5)
    variances = np.exp(log_variances)
    expected = mean_distance(targets - means, variances).mean(0) - 0.5 * mean_distance(
        means[:, None] - means, variances[:, None] + variances
    ).mean((0, 1))
    dist = Mixture(Gaussian(jnp.asarray(means, dtype), jnp.asarray(log_variances, dtype)))
    values = jax.jit(dist.crps)(jnp.asarray(targets, dtype))
    assert values.dtype == dtype
    tolerance = 1e-10 if dtype == jnp.float64 else 2e-5
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=0)


def test_moments_of_angles_are_those_of_directions():
    members = VonMises(jnp.array([[3.0], [-3.0]]), jnp.full((2, 1), 4.0))
    mixture = Mixture(members)
    np.testing.assert_allclose(jnp.cos(mixture.mean), -1, rtol=1e-12)  # and not 0, between them
    certain = 1 - members.variance[0]
    np.testing.assert_allclose(mixture.variance, 1 + np.cos(3.0) * certain, rtol=1e-9)
    np.testing.assert_allclose(mixture.epistemic, certain * (1 + np.cos(3.0)), rtol=1e-6)
    np.testing.assert_allclose(mixture.residual(mixture.mean + 6.2), 6.2 - 2 * np.pi, rtol=1e-9)


@pytest.mark.parametrize("question", ["quantile", "crps"])
def test_members_may_be_numpy_arrays(question):
    """JAX refuses them as constants of a loop around a function with derivatives of its own."""
    rates = np.log([[0.5, 3.0], [2.0, 4.0]])
    answers = [
        getattr(Mixture(Poisson(members)), question)(np.array([0.3, 0.8]))
        for members in (rates, jnp.asarray(rates))
    ]
    np.testing.assert_array_equal(*answers)
