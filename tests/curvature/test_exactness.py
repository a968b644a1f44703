"""The parameter gradient equals a dense solve in double precision, for any network and family."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import families as f8
from fisher8_jax import network_curvature, network_gradient
from fisher8_jax.curvature import precondition
from tests.curvature.dense import cast_floats, dense_natural_gradient, relative_error
from tests.curvature.networks import NETWORKS, ROWS

DAMPING = 0.1
TARGETS = jnp.asarray(np.random.default_rng(9).normal(size=ROWS))


def natural_gradient(
    predict_one, params, inputs, targets, *, damping=DAMPING, fused=True, where=None, weights=None
):
    """The gradient that a user gets, in one call or by a loss behind `precondition`."""
    options = {"where": where, "weights": weights}
    if fused:
        step = network_gradient(predict_one, params, inputs, targets, damping=damping, **options)
        return step.gradient
    curvature = network_curvature(predict_one, params, inputs, damping=damping, **options)

    def loss(params):
        dist = jax.vmap(predict_one, (None, 0))(params, inputs)
        values = precondition(dist, curvature).nll(targets)
        values = values if weights is None else values * weights
        return jnp.mean(values, where=where)

    return jax.grad(loss)(params)


@pytest.mark.parametrize("name", NETWORKS)
def test_any_network(name):
    predict_one, params, inputs = NETWORKS[name]()
    reference = dense_natural_gradient(predict_one, params, inputs, TARGETS, DAMPING)

    @jax.jit
    def both(*args):
        """By a backward pass, and from the deltas of the Gram matrix."""
        return [natural_gradient(predict_one, *args, fused=fused) for fused in (False, True)]

    small = cast_floats((params, inputs, TARGETS), jnp.float32)
    for limit, args in ((1e-9, (params, inputs, TARGETS)), (1e-4, small)):
        assert max(relative_error(gradient, reference) for gradient in both(*args)) < limit


def linear_in(family, sizes):
    """A network of one hidden layer whose outputs are the fields of `family`."""
    rng = np.random.default_rng(3)
    total = sum(int(np.prod(size)) for size in sizes)
    params = {
        "hidden": jnp.asarray(rng.normal(size=(3, 4))),
        "head": jnp.asarray(rng.normal(size=(4, total)) / 3),
    }

    def predict_one(params, x):
        flat = jnp.tanh(x @ params["hidden"]) @ params["head"]
        ends = np.cumsum([int(np.prod(size)) for size in sizes])[:-1]
        parts = jnp.split(flat, ends)
        return family(*(part.reshape(size) for part, size in zip(parts, sizes, strict=True)))

    return predict_one, params, jnp.asarray(rng.normal(size=(ROWS, 3)))


FAMILIES = {
    "one parameter": (f8.Poisson, [()], np.arange(ROWS) % 3),
    "two parameters": (f8.Laplace, [()] * 2, TARGETS),
    "two coupled ones": (f8.Weibull, [()] * 2, 0.3 + np.abs(TARGETS)),
    "three parameters": (f8.StudentTLearnedDf, [()] * 3, TARGETS),
    "several targets": (f8.Gaussian, [(3,)] * 2, np.outer(TARGETS, [1.0, -0.5, 2.0])),
    "correlated targets": (
        f8.MultivariateGaussian,
        [(2,), (2,), (1,)],
        np.outer(TARGETS, [1.0, -0.5]),
    ),
}


@pytest.mark.parametrize("case", FAMILIES)
def test_any_family(case):
    family, sizes, targets = FAMILIES[case]
    predict_one, params, inputs = linear_in(family, sizes)
    targets = jnp.asarray(targets, jnp.float64)
    reference = dense_natural_gradient(predict_one, params, inputs, targets, DAMPING)
    both = jax.jit(
        lambda *args: [natural_gradient(predict_one, *args, fused=fused) for fused in (True, False)]
    )
    small = cast_floats((params, inputs, targets), jnp.float32)
    for limit, args in ((1e-9, (params, inputs, targets)), (1e-4, small)):
        assert max(relative_error(gradient, reference) for gradient in both(*args)) < limit


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "identity"])
def test_masks_and_weights(fused):
    """The mean runs over the elements inside the mask; weights are factors on their losses."""
    predict_one, params, inputs = linear_in(f8.Gaussian, [(3,)] * 2)
    rng = np.random.default_rng(4)
    targets = jnp.asarray(rng.normal(size=(ROWS, 3)))
    where = jnp.asarray(rng.uniform(size=(ROWS, 3)) < 0.6).at[2].set(False)
    weights = jnp.asarray(rng.uniform(0.2, 3.0, (ROWS, 1)))
    options = {"where": where, "weights": weights}
    reference = dense_natural_gradient(predict_one, params, inputs, targets, DAMPING, **options)
    step = jax.jit(functools.partial(natural_gradient, predict_one, fused=fused, **options))
    missing = jnp.where(where, targets, jnp.nan) if fused else targets
    assert relative_error(step(params, inputs, missing), reference) < 1e-9
    small = cast_floats((params, inputs, missing), jnp.float32)
    assert relative_error(step(*small), reference) < 1e-4
