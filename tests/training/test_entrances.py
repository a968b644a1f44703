"""What users of Flax and Equinox try first, and what the errors say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fisher8_jax.heads.linen import DistributionHead as LinenHead
from fisher8_jax.heads.nnx import DistributionHead as NnxHead
from fisher8_jax.training import Plan, fit, nnx_network


def test_modules_and_activations_in_place_of_functions_and_arrays():
    x, y = np.zeros((20, 2), np.float32), np.zeros(20, np.float32)
    plan = Plan(steps=2)
    model = nnx.Sequential(NnxHead(2, rngs=nnx.Rngs(0)))
    with pytest.raises(TypeError, match=r"got the module Sequential. .*nnx_network"):
        fit(model, None, (x, y), plan, show_progress=False)
    pure, params, _ = nnx_network(model)
    with pytest.raises(TypeError, match="needs the variables"):
        fit(pure, params, (x, y), plan, show_progress=False)
    linen = LinenHead()
    with pytest.raises(TypeError, match=r"got the module DistributionHead. Pass `module.apply`"):
        fit(linen, linen.init(jax.random.key(0), x), (x, y), plan, show_progress=False)
    with pytest.raises(TypeError, match=r"\['activation'\] is .*eqx.partition"):
        fit(lambda p, x: None, {"activation": jnp.tanh}, (x, y), plan, show_progress=False)
