"""The table of families that the conformance suite runs over.

Every row holds a batch of distributions in double precision, the same distributions in SciPy, and
nodes with probabilities that turn an expectation under the model into a sum. The nodes come from
SciPy's quantiles or masses, never from the code under test.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
import scoringrules

from fisher8_jax import families as f8

RNG = np.random.default_rng(7)
BATCH = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """One family: parameters, SciPy's version of it, and an exact way to take expectations."""

    name: str
    dist: f8.Family
    log_prob: Callable[[np.ndarray], np.ndarray]  # of targets (..., batch) + event
    nodes: np.ndarray  # (nodes, batch) + event
    probabilities: np.ndarray  # (nodes, batch)
    targets: np.ndarray  # batch + event
    cdf: Callable[[np.ndarray], np.ndarray] | None = None
    mean: Any = None
    variance: Any = None
    crps: Callable[[np.ndarray], Any] | None = None
    discrete: bool = False
    smooth: bool = True  # whether minus the mean Hessian is the information
    complete_data: bool = False  # whether the information is that of unseen components as well
    extreme: float = 60.0


def from_scipy(name: str, dist: f8.Family, frozen: Any, **kwargs: Any) -> Case:
    """A row for a continuous scalar family: double-exponential nodes on each side of the median.

    Two halves, because a likelihood may have a kink at its median.
    """
    t, step = np.linspace(-4.2, 3.4, 320, retstep=True)
    half = 0.5 * math.pi * np.sinh(t[:, None])
    tail = 0.5 / (1 + np.exp(-2 * half))
    weight = step * 0.125 * math.pi * np.cosh(t[:, None]) / np.cosh(half) ** 2
    nodes = np.concatenate([frozen.ppf(tail), frozen.isf(tail)])
    if np.all(frozen.support()[1] == 1):  # no float lies between 1 - 1e-17 and 1
        nodes = np.minimum(nodes, np.nextafter(1, 0))
    probabilities = np.broadcast_to(np.concatenate([weight, weight]), nodes.shape)
    return Case(
        name=name,
        dist=dist,
        log_prob=frozen.logpdf,
        nodes=nodes,
        probabilities=probabilities,
        targets=frozen.rvs(random_state=RNG, size=BATCH),
        **({"cdf": frozen.cdf, "mean": frozen.mean(), "variance": frozen.var()} | kwargs),
    )


def from_masses(name: str, dist: f8.Family, masses: Callable, count: int, **kwargs: Any) -> Case:
    """A row for a family of whole numbers, by exact sums below `count`."""
    nodes = np.broadcast_to(np.arange(count, dtype=float)[:, None], (count, BATCH))
    p = masses(nodes)
    assert np.all(p.sum(0) > 1 - 1e-13), name
    mean = (p * nodes).sum(0)
    # Targets from the lower to the upper tail.
    levels = (0.2, 0.5, 0.7, 0.95)
    targets = np.array([np.searchsorted(np.cumsum(p[:, i]), x) for i, x in enumerate(levels)])

    def cdf(y: np.ndarray) -> np.ndarray:
        return np.where(nodes <= y, p, 0).sum(0)

    return Case(
        name=name,
        dist=dist,
        log_prob=lambda y: np.log(masses(y)),
        nodes=nodes,
        probabilities=p,
        targets=targets.astype(float),
        discrete=True,
        cdf=cdf,
        mean=mean,
        variance=(p * (nodes - mean) ** 2).sum(0),
        **kwargs,
    )


def arrays(*rows: list[float]) -> list[np.ndarray]:
    """NumPy arrays, because 64-bit JAX arrays exist only once a test has begun."""
    return [np.asarray(row, np.float64) for row in rows]


LOCATION = [0.3, -1.2, 2.0, 0.0]
LOG = [-0.7, 0.4, 1.1, 0.0]


def _gaussian() -> Case:
    dist = f8.Gaussian(*arrays(LOCATION, LOG))
    return from_scipy("Gaussian", dist, scipy.stats.norm(LOCATION, np.exp(np.array(LOG) / 2)))


def _laplace() -> Case:
    scale = np.exp(LOG)
    return from_scipy(
        "Laplace",
        f8.Laplace(*arrays(LOCATION, LOG)),
        scipy.stats.laplace(LOCATION, scale),
        smooth=False,
        crps=lambda y: scoringrules.crps_laplace(y, LOCATION, scale),
    )


def _student_t() -> Case:
    scale = np.exp(LOG)
    return from_scipy(
        "StudentT",
        f8.StudentT(*arrays(LOCATION, LOG), df=5.5),
        scipy.stats.t(5.5, LOCATION, scale),
        crps=lambda y: scoringrules.crps_t(y, 5.5, np.array(LOCATION), scale),
    )


def _student_t_learned_df() -> Case:
    log_df = np.log([4.5, 7.0, 30.0, 12.0])
    return from_scipy(
        "StudentTLearnedDf",
        f8.StudentTLearnedDf(*arrays(LOCATION, LOG, list(log_df))),
        scipy.stats.t(np.exp(log_df), LOCATION, np.exp(LOG)),
    )


def _log_normal() -> Case:
    log_variance = [-1.5, -0.5, 0.2, -3.0]
    std = np.exp(np.array(log_variance) / 2)
    return from_scipy(
        "LogNormal",
        f8.LogNormal(*arrays(LOCATION, log_variance)),
        scipy.stats.lognorm(std, scale=np.exp(LOCATION)),
        crps=lambda y: scoringrules.crps_lognormal(y, np.array(LOCATION), std),
    )


def _gamma() -> Case:
    k = np.array([0.4, 2.0, 30.0, 1.0])
    scale = np.exp(LOG) / k
    return from_scipy(
        "Gamma",
        f8.Gamma(*arrays(LOG, list(np.log(k)))),
        scipy.stats.gamma(k, scale=scale),
        crps=lambda y: scoringrules.crps_gamma(y, k, 1 / scale),
    )


def _weibull() -> Case:
    k = np.array([0.8, 2.0, 5.0, 1.0])
    return from_scipy(
        "Weibull",
        f8.Weibull(*arrays(LOG, list(np.log(k)))),
        scipy.stats.weibull_min(k, scale=np.exp(LOG)),
    )


def _beta() -> Case:
    m, c = scipy.special.expit(LOCATION), np.array([1.5, 8.0, 60.0, 2.0])
    return from_scipy(
        "Beta",
        f8.Beta(*arrays(LOCATION, list(np.log(c)))),
        scipy.stats.beta(m * c, (1 - m) * c),
        crps=lambda y: scoringrules.crps_beta(y, m * c, (1 - m) * c),
    )


def _poisson() -> Case:
    rate = np.array([0.3, 2.0, 15.0, 1.0])
    return from_masses(
        "Poisson",
        f8.Poisson(*arrays(list(np.log(rate)))),
        lambda y: scipy.stats.poisson(rate).pmf(y),
        80,
        crps=lambda y: scoringrules.crps_poisson(y, rate),
    )


def _negative_binomial() -> Case:
    m, r = np.array([0.5, 3.0, 12.0, 2.0]), np.array([0.6, 2.0, 40.0, 5.0])
    return from_masses(
        "NegativeBinomial",
        f8.NegativeBinomial(*arrays(list(np.log(m)), list(np.log(r)))),
        lambda y: scipy.stats.nbinom(r, r / (r + m)).pmf(y),
        200,
    )


def _zero_inflated_poisson() -> Case:
    h, rate = np.array([0.2, 0.5, 0.8, 0.1]), np.array([0.5, 2.0, 9.0, 1.0])

    def masses(y: np.ndarray) -> np.ndarray:
        return h * (y == 0) + (1 - h) * scipy.stats.poisson(rate).pmf(y)

    dist = f8.ZeroInflatedPoisson(*arrays(list(scipy.special.logit(h)), list(np.log(rate))))
    return from_masses("ZeroInflatedPoisson", dist, masses, 80)


def _bernoulli() -> Case:
    p = scipy.special.expit(LOCATION)
    return from_masses(
        "Bernoulli",
        f8.Bernoulli(*arrays(LOCATION)),
        lambda y: scipy.stats.bernoulli(p).pmf(y),
        2,
        crps=lambda y: (p - y) ** 2,
    )


def _categorical() -> Case:
    logits = RNG.normal(size=(BATCH, 3))
    p = scipy.special.softmax(logits, -1)

    def masses(y: np.ndarray) -> np.ndarray:
        y = y.astype(int)
        return np.take_along_axis(np.broadcast_to(p, (*y.shape, 3)), y[..., None], -1)[..., 0]

    return from_masses("Categorical", f8.Categorical(logits), masses, 3)


def _von_mises() -> Case:
    k = np.array([0.4, 2.0, 30.0, 1.0])
    frozen = scipy.stats.vonmises(k, loc=LOCATION)
    # The trapezoidal rule on a circle is exact to rounding for an analytic density.
    nodes = np.linspace(-math.pi, math.pi, 400, endpoint=False)[:, None] + np.array(LOCATION)
    return Case(
        name="VonMises",
        dist=f8.VonMises(*arrays(LOCATION, list(np.log(k)))),
        log_prob=frozen.logpdf,
        nodes=nodes,
        probabilities=frozen.pdf(nodes) * 2 * math.pi / 400,
        targets=frozen.rvs(random_state=RNG, size=BATCH),
        cdf=frozen.cdf,
        mean=np.array(LOCATION),
        variance=1 - scipy.special.i1(k) / scipy.special.i0(k),
    )


def _hermite(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n, dim) and probabilities (n,) of a standard normal, exact for polynomials."""
    x, w = np.polynomial.hermite_e.hermegauss(8)
    grid = np.stack(np.meshgrid(*[x] * dim, indexing="ij"), -1).reshape(-1, dim)
    weights = np.stack(np.meshgrid(*[w] * dim, indexing="ij"), -1).reshape(-1, dim)
    return grid, weights.prod(-1) / (2 * math.pi) ** (dim / 2)


def _joint_case(name: str, dist: f8.Family, covariance: np.ndarray, **kwargs: Any) -> Case:
    mean = np.asarray(dist.mean)
    grid, p = _hermite(mean.shape[-1])
    root = np.linalg.cholesky(covariance)
    nodes = mean + np.einsum("bij,nj->nbi", root, grid)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    frozen = [scipy.stats.multivariate_normal(m, c) for m, c in zip(mean, covariance, strict=True)]

    def log_prob(y: np.ndarray) -> np.ndarray:
        return np.stack([d.logpdf(y[..., i, :]) for i, d in enumerate(frozen)], -1)

    return Case(
        name=name,
        dist=dist,
        log_prob=log_prob,
        nodes=nodes,
        probabilities=np.broadcast_to(p[:, None], nodes.shape[:2]),
        targets=mean + RNG.normal(size=mean.shape),
        cdf=scipy.stats.norm(mean, np.sqrt(variance)).cdf,
        mean=mean,
        variance=variance,
        **kwargs,
    )


def _multivariate_gaussian() -> Case:
    mean, log_diagonal, off_diagonal = RNG.normal(size=(3, BATCH, 3)) * 0.6
    factor = np.zeros((BATCH, 3, 3))
    factor[:, [1, 2, 2], [0, 0, 1]] = off_diagonal
    factor[:, range(3), range(3)] = np.exp(log_diagonal)
    dist = f8.MultivariateGaussian(mean, log_diagonal, off_diagonal)
    return _joint_case("MultivariateGaussian", dist, factor @ factor.swapaxes(-1, -2), extreme=25.0)


def _low_rank_gaussian() -> Case:
    mean, log_diagonal = RNG.normal(size=(2, BATCH, 3)) * 0.6
    w = RNG.normal(size=(BATCH, 3, 1))
    covariance = w @ w.swapaxes(-1, -2) + np.exp(log_diagonal)[..., None] * np.eye(3)
    dist = f8.LowRankGaussian(mean, w, log_diagonal, damping=1e-12)
    return _joint_case("LowRankGaussian", dist, covariance, extreme=8.0)


def _gaussian_mixture() -> Case:
    logits, means, log_variances = RNG.normal(size=(3, BATCH, 2))
    weights, std = scipy.special.softmax(logits, -1), np.exp(log_variances / 2)
    dist = f8.GaussianMixture(logits, means, log_variances)
    x, w = scipy.special.roots_legendre(600)  # a tenth of the time of NumPy's
    z, w = 12 * x[:, None], 12 * w[:, None] * scipy.stats.norm.pdf(12 * x[:, None])
    nodes = np.concatenate([means[:, i] + std[:, i] * z for i in range(2)])
    probabilities = np.concatenate([weights[:, i] * w for i in range(2)])

    def density(y: np.ndarray) -> np.ndarray:
        return sum(weights[:, i] * scipy.stats.norm(means[:, i], std[:, i]).pdf(y) for i in (0, 1))

    def cdf(y: np.ndarray) -> np.ndarray:
        return sum(weights[:, i] * scipy.stats.norm(means[:, i], std[:, i]).cdf(y) for i in (0, 1))

    def crps(y: np.ndarray) -> np.ndarray:
        return scoringrules.crps_mixnorm(y, means, std, weights)

    mean = (probabilities * nodes).sum(0)
    return Case(
        name="GaussianMixture",
        dist=dist,
        log_prob=lambda y: np.log(density(y)),
        nodes=nodes,
        probabilities=probabilities,
        targets=RNG.normal(size=BATCH),
        cdf=cdf,
        mean=mean,
        variance=(probabilities * (nodes - mean) ** 2).sum(0),
        crps=crps,
        complete_data=True,
    )


def gumbel_log_density(y, location, log_scale):
    z = (y - location) * jnp.exp(-log_scale)
    return -log_scale - z - jnp.exp(-z)


def gumbel_nodes(location, log_scale):
    return f8.quadrature_nodes("real", location, jnp.exp(log_scale), count=401)


def gumbel_in_units(shift, scale, location, log_scale):
    return location * scale + shift, log_scale + jnp.log(scale)


def _declared() -> Case:
    """A Gumbel by its log-density alone."""
    gumbel = f8.declare_family(
        "Gumbel",
        parameters=("location", "log_scale"),
        log_density=gumbel_log_density,
        quadrature=gumbel_nodes,
        unscale=gumbel_in_units,
        damping=1e-12,
    )
    return from_scipy(
        "declared Gumbel",
        gumbel(*arrays(LOCATION, LOG)),
        scipy.stats.gumbel_r(LOCATION, np.exp(LOG)),
        extreme=3.0,
    )


CASES = {
    case.name: case
    for case in (
        _gaussian(),
        _laplace(),
        _student_t(),
        _student_t_learned_df(),
        _log_normal(),
        _gamma(),
        _weibull(),
        _beta(),
        _poisson(),
        _negative_binomial(),
        _zero_inflated_poisson(),
        _bernoulli(),
        _categorical(),
        _von_mises(),
        _multivariate_gaussian(),
        _low_rank_gaussian(),
        _gaussian_mixture(),
        _declared(),
    )
}
