"""A location that exists, however heavy the tails are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fisher8_jax import evaluate
from fisher8_jax.ensembles import Mixture
from fisher8_jax.families import Family, Gaussian, StudentT, StudentTLearnedDf

LOCATION = jnp.array([1.0, -2.0, 3.0])


def learned(df) -> Family:
    return StudentTLearnedDf(LOCATION, jnp.zeros(3), jnp.log(jnp.full(3, df)))


@pytest.mark.parametrize("dist", [StudentT(LOCATION, jnp.zeros(3), df=1.0), learned(0.7)])
def test_the_center_is_the_median(dist):
    assert np.isnan(dist.mean).all()
    np.testing.assert_allclose(dist.quantile(jnp.full(3, 0.5)), dist.center, rtol=1e-12)
    np.testing.assert_array_equal(dist.residual(LOCATION + 2), [2, 2, 2])
    record = evaluate(dist, LOCATION + jnp.array([3.0, 0.0, -3.0]))
    np.testing.assert_allclose([record.rmse, record.mae], [np.sqrt(6), 2], rtol=1e-6)


def test_the_center_is_the_mean_where_there_is_one():
    for dist in (learned(3.0), Gaussian(LOCATION, jnp.zeros(3))):
        np.testing.assert_array_equal(dist.center, dist.mean)
        members = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), dist)
        mixture = Mixture(members)
        np.testing.assert_allclose(mixture.center, mixture.mean, rtol=1e-12)


def test_a_mixture_has_a_center_where_its_members_have_no_mean():
    mixture = Mixture(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), learned(0.5)))
    np.testing.assert_array_equal(mixture.center, LOCATION)
    np.testing.assert_array_equal(mixture.epistemic, 0)
    assert np.isnan(mixture.mean).all()
