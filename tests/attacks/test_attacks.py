"""Some of the attacks that take no minutes, the same every time."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fisher8_jax.families import NegativeBinomial, StudentTLearnedDf
from tests.attacks import BAD, draws, gradients, inputs, round_trips


@pytest.mark.parametrize(
    ("attack", "rounds"),
    [
        (round_trips.attack_trees, 100),
        (round_trips.attack_configs, 100),
        (round_trips.attack_splices, 50),
        (round_trips.attack_paths, 60),
        pytest.param(gradients.attack_gradients, 12, marks=pytest.mark.slow),
        (inputs.attack_cells, 150),
        (inputs.attack_fits, 100),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_attack_succeeds(tmp_path, attack, rounds):
    with (
        jax.enable_x64(False),
        jax.numpy_rank_promotion("allow"),
        warnings.catch_warnings(action="ignore"),
    ):
        found = attack(tmp_path, rounds, seed=1)
    assert sum(found.values()) == rounds
    assert not [outcome for outcome in found if outcome.startswith(BAD)], found
    assert found["refused"] > 0


@pytest.mark.slow  # compiles for half a minute
def test_extreme_draws_of_a_family_give_no_nan():
    with jax.enable_x64(False):
        assert draws.attack_family("NegativeBinomial", 60, seed=0) == {"no nan": 60}


def test_the_cdf_with_countless_degrees_of_freedom_is_that_of_the_normal():
    z = np.linspace(-3, 3, 7)
    zeros = jnp.zeros(7, jnp.float32)
    found = StudentTLearnedDf(zeros, zeros, zeros + 60).cdf(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(found, stats.norm.cdf(z), rtol=1e-5)


def test_the_information_of_countless_concentration_is_its_limit():
    """`J` tends to `(m / r)^2 / 2`; in single precision its integral underflowed to 0."""
    gap = jnp.array([19.0, 25.0, 34.0, 39.0], jnp.float32)
    dist = NegativeBinomial(60 - gap, jnp.full(4, 60, jnp.float32))
    ones = NegativeBinomial(jnp.zeros(4, jnp.float32), jnp.exp(gap))  # undoes the square
    np.testing.assert_allclose(dist.fisher_norm_sq(ones), 0.5, rtol=1e-5)
