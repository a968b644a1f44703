"""The losses of the benchmarks keep the contract of the library's losses."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.machinery.losses.objective import LOSSES, make_objective
from fisher8_jax import Gaussian
from tests.losses import test_contract as shared

OWN = ("trustable", "collier", "wong_toi")


def needs(name, dtype=jnp.float64):
    if name == "trustable":
        mean, s = shared.MEAN + 0.01, shared.S - 0.01
        return {"reference": Gaussian(jnp.asarray(mean, dtype), jnp.asarray(s, dtype))}
    if name == "collier":
        return {"temperature": 0.5, "key": jax.random.key(0), "num_samples": 50}
    return {}


@pytest.fixture(autouse=True)
def losses_of_the_benchmarks(monkeypatch):
    monkeypatch.setattr(shared, "LOSSES", LOSSES)
    monkeypatch.setattr(shared, "needs", needs)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "check",
    [
        shared.test_signature,
        shared.test_masked_elements_do_not_exist,
        shared.test_masked_nan_passes_the_nan_checker,
        shared.test_weights_are_factors,
        shared.test_jit_and_vmap,
        shared.test_errors_name_the_argument,
        shared.test_negative_weights_are_refused,
    ],
    ids=lambda check: check.__name__,
)
def test_what_every_loss_promises(name, check):
    check(name)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.1)], ids=str
)
@pytest.mark.parametrize("name", OWN)
def test_narrow_dtypes(name, dtype, tolerance):
    shared.test_narrow_dtypes(name, dtype, tolerance)


@pytest.mark.parametrize("name", ["trustable", "collier"])
def test_losses_of_one_family_say_so(name):
    shared.test_losses_of_one_family_say_so(name)


def test_what_a_loss_needs_is_asked_for():
    mean, s, y = shared.inputs()
    far = Gaussian(jnp.ones((9, 2)), jnp.ones((9, 2)))
    with pytest.raises(ValueError, match=r"`reference` must .*\(6, 2\), got \(9, 2\)"):
        LOSSES["trustable"](Gaussian(mean, s), y, reference=far)
    with pytest.raises(TypeError, match=r"`reference` must be a `Gaussian`.* got ArrayImpl"):
        LOSSES["trustable"](Gaussian(mean, s), y, reference=mean)
    with pytest.raises(ValueError, match=r"`key` must be given when `temperature` is not 0"):
        LOSSES["collier"](Gaussian(mean, s), y, temperature=1.0)


def test_objectives_check_names():
    with pytest.raises(ValueError, match=r"`name` must be one of unit_variance, .*; got 'betanll'"):
        make_objective("betanll")
    with pytest.raises(TypeError, match=r"`beta_nll` has no hyper-parameter gamma; it has: beta"):
        make_objective("beta_nll", gamma=1)
    with pytest.raises(TypeError, match=r"`trustable` has no hyper-parameter reference; it has: "):
        make_objective("trustable", reference=None)
