"""A small network, its batch and its gradients, shared by the tests of the transformations."""

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian, fisher8_nll


def make_params(seed=0, dtype=jnp.float64, hidden=6):
    """Two layers, 3 -> hidden -> 2, as a dictionary."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (3, hidden), "b1": (hidden,), "w2": (hidden, 2), "b2": (2,)}
    return {name: jnp.asarray(0.5 * rng.normal(size=s), dtype) for name, s in shapes.items()}


def make_batch(seed=1, size=8, dtype=jnp.float64):
    """Inputs `(size, 3)` and targets `(size,)`."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(size, 3)), dtype), jnp.asarray(rng.normal(size=size), dtype)


def network(params, inputs):
    """The predicted Gaussian, without `fisher8`."""
    hidden = jnp.tanh(inputs @ params["w1"] + params["b1"][None])
    outputs = hidden @ params["w2"] + params["b2"][None]
    return Gaussian(mean=outputs[..., 0], log_variance=outputs[..., 1])


def fisher8_gradients(params, inputs, targets, where=None, axis_name=None):
    """The Fisher8 gradients of the summed NLL."""

    def loss(params):
        dist = network(params, inputs)
        return fisher8_nll(dist, targets, where=where, axis_name=axis_name).sum()

    return jax.grad(loss)(params)


def exact_kl(params, updates, inputs):
    """The mean KL divergence of the step, by the textbook formula."""
    old = network(params, inputs)
    new = network(jax.tree.map(jnp.add, params, updates), inputs)
    ratio = old.variance / new.variance
    shift = (old.mean - new.mean) ** 2 / new.variance
    return float(jnp.mean(0.5 * (ratio - 1 - jnp.log(ratio) + shift)))
