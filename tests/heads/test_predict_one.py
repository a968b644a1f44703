"""NNX modules with dropout, batch norm and recurrent cells as functions of one example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fisher8_jax import Gaussian, network_gradient
from fisher8_jax.heads.nnx import predict_one_fn

INPUTS = jnp.ones((4, 3), jnp.float32)


class Module(nnx.Module):
    def __init__(self, kind):
        rngs = nnx.Rngs(0)
        self.head = nnx.Linear(4, 2, rngs=rngs)
        if kind == "recurrent":
            self.body = nnx.RNN(nnx.GRUCell(3, 4, rngs=rngs))
            return
        last = nnx.Dropout(0.5, rngs=rngs) if kind == "dropout" else nnx.BatchNorm(4, rngs=rngs)
        self.body = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), last)

    def __call__(self, x):
        outputs = self.head(jax.nn.silu(self.body(x)))
        outputs = outputs[:, -1] if outputs.ndim == 3 else outputs
        return Gaussian(outputs[..., 0], outputs[..., 1])


@pytest.mark.parametrize("kind", ["dropout", "batch norm", "recurrent"])
def test_they_predict_as_in_evaluation_mode_and_have_a_gradient(kind):
    module = Module(kind)
    shape = (4, 5, 3) if kind == "recurrent" else (4, 3)
    x = jax.random.normal(jax.random.key(0), shape, jnp.float32)
    y = jnp.arange(4.0, dtype=jnp.float32)
    state = nnx.state(module)

    @nnx.jit
    def step(module, x, y):
        params = nnx.state(module, nnx.Param)
        return network_gradient(predict_one_fn(module), params, x, y)

    found = step(module, x, y)
    for before, after in zip(*map(jax.tree.leaves, (state, nnx.state(module))), strict=True):
        if not jnp.issubdtype(before.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(before, after)
    module.eval()
    np.testing.assert_allclose(found.curvature.dist.mean, module(x).mean, rtol=1e-5)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(found.gradient))


def test_batch_statistics_of_one_example_are_refused():
    module = Module("batch norm")
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def predict_one(params, x):
        dist = nnx.merge(graph, params, rest, copy=True)(x[None])
        return jax.tree.map(lambda leaf: leaf[0], dist)

    with pytest.raises(ValueError, match="its predictions would ignore the example"):
        network_gradient(predict_one, params, INPUTS, INPUTS[:, 0])
