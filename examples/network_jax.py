"""The exact natural gradient in parameter space, in plain JAX: one compiled loop."""

import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, network_gradient, network_optimizer


def predict_one(params, x):
    hidden = jax.nn.silu(x @ params["kernel"] + params["bias"])
    return Gaussian(*(hidden @ params["head"]))


def main(steps=100):
    """Trains and returns the first and the last NLL."""
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.uniform(keys[0], (128, 2))
    y = jnp.sin(4 * x[:, 0]) + x[:, 1] + (0.1 + 0.4 * x[:, 0]) * jax.random.normal(keys[1], (128,))
    params = {"kernel": jax.random.normal(keys[2], (2, 32)), "bias": jnp.zeros(32)}
    params["head"] = 0.1 * jax.random.normal(keys[3], (32, 2))
    optimizer = network_optimizer(steps)

    def train_step(carry, _):
        params, state = carry
        step = network_gradient(predict_one, params, x, y)
        updates, state = optimizer.update(step.gradient, state, params, step_kl=step.step_kl)
        return (optax.apply_updates(params, updates), state), step.value

    start = (params, optimizer.init(params))
    (_, state), values = jax.jit(lambda start: jax.lax.scan(train_step, start, length=steps))(start)
    average = optax.tree_utils.tree_get(state, "average")  # less of the last batches' noise
    return values[0], jax.vmap(predict_one, (None, 0))(average, x).nll(y).mean()


if __name__ == "__main__":
    print("NLL {:.3f} -> {:.3f}".format(*main()))
