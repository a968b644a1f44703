"""A change of coordinates leaves the un-normalised natural step in distribution space unchanged.

The other coordinates are declared by their log-density alone, so their Fisher information comes
from quadrature and knows nothing of the closed forms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import betaln, gammaln

from fisher8_jax import families as f8
from fisher8_jax import fisher8_nll

BY_VARIANCE = f8.declare_family(
    "GaussianByVariance",
    parameters=("mean_", "variance_"),
    log_density=lambda y, mean_, variance_: (
        -0.5 * (jnp.log(2 * jnp.pi * variance_) + jnp.square(y - mean_) / variance_)
    ),
    quadrature=lambda mean_, variance_: f8.quadrature_nodes("real", mean_, jnp.sqrt(variance_)),
    damping=1e-12,
)
BY_SHAPE_AND_RATE = f8.declare_family(
    "GammaByShapeAndRate",
    parameters=("shape", "rate"),
    log_density=lambda y, shape, rate: (
        shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(y) - rate * y
    ),
    quadrature=lambda shape, rate: f8.quadrature_nodes("positive", shape / rate, count=401),
    damping=1e-12,
)
BY_ALPHA_AND_BETA = f8.declare_family(
    "BetaByAlphaAndBeta",
    parameters=("alpha", "beta"),
    log_density=lambda y, alpha, beta: (
        (alpha - 1) * jnp.log(y) + (beta - 1) * jnp.log1p(-y) - betaln(alpha, beta)
    ),
    quadrature=lambda alpha, beta: f8.quadrature_nodes("unit interval", alpha, count=401),
    damping=1e-12,
)
BY_PROBABILITY = f8.declare_family(
    "BernoulliByProbability",
    parameters=("p",),
    log_density=lambda y, p: jnp.where(y > 0.5, jnp.log(p), jnp.log1p(-p)),
    quadrature=lambda p: f8.quadrature_nodes("counts", p, count=2),
    damping=1e-12,
)

# Name: (family, other coordinates, the map from those to the family's, targets).
CHANGES = {
    "variance": (f8.Gaussian, BY_VARIANCE, lambda m, v: (m, jnp.log(v)), [0.3, 2.0, -1.0]),
    "shape and rate": (
        f8.Gamma,
        BY_SHAPE_AND_RATE,
        lambda k, r: (jnp.log(k / r), jnp.log(k)),
        [0.4, 2.0, 1.1],
    ),
    "alpha and beta": (
        f8.Beta,
        BY_ALPHA_AND_BETA,
        lambda a, b: (jnp.log(a / b), jnp.log(a + b)),
        [0.3, 0.9, 0.5],
    ),
    "probability": (f8.Bernoulli, BY_PROBABILITY, lambda p: (jnp.log(p / (1 - p)),), [1.0, 0, 1]),
}
VALUES = [[0.6, 0.45, 0.3], [1.5, 2.0, 3.0]]


@pytest.mark.parametrize("name", CHANGES)
def test_natural_step_does_not_depend_on_the_coordinates(name):
    family, other, to_family, targets = CHANGES[name]
    count = len(to_family(*map(jnp.asarray, VALUES[: 1 + (name != "probability")])))
    values = [jnp.asarray(v) for v in VALUES[:count]]
    targets = jnp.asarray(targets)

    def step(make, parameters):
        def loss(parameters):
            return fisher8_nll(make(*parameters), targets, normalize=False).sum()

        return jax.jit(jax.grad(loss))(parameters)

    there = step(other, tuple(values))
    here = step(family, to_family(*values))
    # The other coordinates' step, mapped by the map's differential.
    _, mapped = jax.jvp(lambda *v: to_family(*v), tuple(values), tuple(there))
    for a, b in zip(here, mapped, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_plain_gradients_do_depend_on_them():
    """The same comparison fails without the inverse Fisher information."""
    mean, variance, targets = jnp.asarray([0.6]), jnp.asarray([3.0]), jnp.asarray([0.1])
    there = jax.grad(lambda v: f8.Gaussian(mean, jnp.log(v)).nll(targets).sum())(variance)
    here = jax.grad(lambda s: f8.Gaussian(mean, s).nll(targets).sum())(jnp.log(variance))
    assert abs(float((there / variance - here)[0])) > 0.1
