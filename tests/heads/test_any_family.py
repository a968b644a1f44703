"""A head for every family of the table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax._internal.trees import array_fields
from fisher8_jax.heads import family_link
from fisher8_jax.heads.linen import DistributionHead
from tests.families.table import CASES


def link_to(dist):
    """The link whose outputs have the axes and hyper-parameters of `dist`."""
    names = array_fields(dist)
    static = {
        f.name: getattr(dist, f.name) for f in dataclasses.fields(dist) if f.name not in names
    }
    axes = {name: np.shape(getattr(dist, name))[1:] for name in names}
    return family_link(type(dist), hyper_parameters=static, **axes)


# One of each form in the usual run: plain fields, a static field, classes, and two with axes.
USUAL = ("Laplace", "StudentT", "Categorical", "MultivariateGaussian", "LowRankGaussian")


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[] if name in USUAL else pytest.mark.slow) for name, c in CASES.items()],
    ids=CASES,
)
def test_a_head_predicts_and_trains_every_family(case):
    head = DistributionHead(link=link_to(case.dist))
    features = jax.random.normal(jax.random.key(0), (len(case.targets), 3), jnp.float32)
    targets = jnp.asarray(case.targets)

    @jax.jit
    def run(key):
        params = head.init(key, features)
        dist = head.apply(params, features)

        def loss(params):
            return head.apply(params, features, natural_gradient=True).nll(targets).mean()

        return dist, dist.nll(targets), jax.grad(loss)(params)

    dist, values, gradients = run(jax.random.key(1))
    assert type(dist) is type(case.dist)
    assert dist.batch_shape == (len(targets),)
    assert dist.event_shape == case.dist.event_shape
    assert np.isfinite(values).all()
    for name in array_fields(case.dist):
        kernel = gradients["params"][name]["kernel"]
        assert np.isfinite(kernel).all()
        assert np.abs(kernel).max() > 0
