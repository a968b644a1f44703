"""Rows that lie on eight devices: the same answers, and a clear refusal inside `shard_map`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fisher8_jax.posterior import batch_evidence, fit_posterior, leave_one_out, train_by_evidence
from tests.posterior.dense import draw, linear

X, Y = draw(0, 16, 3), draw(1, 16)
PARAMS = {"mean": draw(2, 3), "log_variance": draw(3, 3)}
ROWS = PartitionSpec("data")


@pytest.fixture(scope="module")
def posterior():
    return fit_posterior(linear, PARAMS, X, Y, tune=False)


def evidence(inputs, targets):
    return batch_evidence(linear, PARAMS, inputs, targets, jnp.zeros(2)).log_evidence


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_sharded_arrays_give_the_same(kind, posterior):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
    inputs, targets = (jax.device_put(part, NamedSharding(mesh, ROWS)) for part in (X, Y))
    found = fit_posterior(linear, PARAMS, inputs, targets, tune=False)
    np.testing.assert_allclose(found.log_evidence, posterior.log_evidence, rtol=1e-12)
    right = posterior.predict(X).variance
    np.testing.assert_allclose(found.predict(inputs).variance, right, rtol=1e-9)
    traced = jax.jit(lambda x: posterior.predict(x).variance)(inputs)
    np.testing.assert_allclose(traced, right, rtol=1e-9)
    np.testing.assert_allclose(leave_one_out(found).nll, leave_one_out(posterior).nll, rtol=1e-9)
    np.testing.assert_allclose(jax.jit(evidence)(inputs, targets), evidence(X, Y), rtol=1e-9)


@pytest.mark.parametrize("check_vma", [True, False])
def test_inside_shard_map_it_is_refused(posterior, check_vma):
    """A device would take its two rows for all."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    calls = {
        "fit_posterior": lambda x, y: fit_posterior(linear, PARAMS, x, y).factor,
        "Posterior.predict": lambda x, y: posterior.predict(x).variance,
        "batch_evidence": evidence,
        "leave_one_out": lambda x, y: leave_one_out(posterior).nll,
        "train_by_evidence": lambda x, y: train_by_evidence(linear, PARAMS, x, y, steps=1).nll,
    }
    for name, call in calls.items():
        sharded = jax.shard_map(
            call, mesh=mesh, in_specs=(ROWS, ROWS), out_specs=ROWS, check_vma=check_vma
        )
        with pytest.raises(ValueError, match=f"`{name}` cannot be called inside `jax.shard_map`"):
            jax.jit(sharded)(X, Y)
