"""The exact natural gradient in parameter space, in Flax NNX; `wrt` names what is trained."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from fisher8_jax import Gaussian, network_gradient, network_optimizer


@nnx.jit
def train_step(model, optimizer, x, y):
    graph, params, *rest = nnx.split(model, nnx.Param, ...)

    def predict_one(params, x):  # statistics and other variables are in `rest`: they stand still
        return Gaussian(*nnx.merge(graph, params, *rest)(x))

    step = network_gradient(predict_one, params, x, y)
    optimizer.update(model, step.gradient, step_kl=step.step_kl)
    return step.value


def main(steps=100):
    """Trains and returns the first and the last NLL."""
    keys, rngs = jax.random.split(jax.random.key(0)), nnx.Rngs(0)
    x = jax.random.uniform(keys[0], (128, 2))
    y = jnp.sin(4 * x[:, 0]) + x[:, 1] + (0.1 + 0.4 * x[:, 0]) * jax.random.normal(keys[1], (128,))
    model = nnx.Sequential(nnx.Linear(2, 32, rngs=rngs), nnx.silu, nnx.Linear(32, 2, rngs=rngs))
    optimizer = nnx.Optimizer(model, network_optimizer(steps), wrt=nnx.Param)
    values = [train_step(model, optimizer, x, y) for _ in range(steps)]
    nnx.update(model, optax.tree_utils.tree_get(optimizer.opt_state, "average"))
    return values[0], Gaussian(*model(x).T).nll(y).mean()


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
