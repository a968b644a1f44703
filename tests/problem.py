"""A small two-target network in float32 whose gradient every wrapping must reproduce."""

import jax
import jax.numpy as jnp
import numpy as np

from fisher8_jax import Gaussian, fisher8, fisher8_nll

ROWS = 32


def make_problem(rows=ROWS, targets=2):
    """Parameters, inputs (rows, 5) and targets (rows, 2), all float32."""
    rng = np.random.default_rng(0)
    params = {
        "hidden": rng.normal(size=(5, 16)) / np.sqrt(5),
        "mean": rng.normal(size=(16, targets)) / 4,
        "log_variance": rng.normal(size=(16, targets)) / 4,
    }
    x, y = rng.normal(size=(rows, 5)), rng.normal(size=(rows, targets))
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (params, x, y))


def predict(params, x):
    """The distribution of each row; also of one row alone."""
    hidden = jnp.tanh(x @ params["hidden"])
    return Gaussian(hidden @ params["mean"], hidden @ params["log_variance"])


def gradient(path, params, x, y, model=predict, **options):
    """The parameter gradient by the identity op, the fused loss, or plain NLL."""

    def loss(params):
        dist = model(params, x)
        if path == "nll":
            return dist.nll(y).mean()
        if path == "fused":
            return fisher8_nll(dist, y, **options).mean()
        return fisher8(dist, **options).nll(y).mean()

    return jax.grad(loss)(params)
