"""A probabilistic ensemble of dynamics models, as in PETS, in Flax NNX.

Five members predict the change of a pendulum's state from state and torque, with the soft bounds on
the log-variance that such code bases learn. One line is new.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from fisher8_jax import Gaussian, fisher8

MEMBERS = 5


class Dynamics(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(3, 32, rngs=rngs)
        self.second = nnx.Linear(32, 4, rngs=rngs)
        self.highest = nnx.Param(jnp.full(2, 0.5))
        self.lowest = nnx.Param(jnp.full(2, -10.0))

    def __call__(self, inputs):
        mean, raw = jnp.split(self.second(nnx.swish(self.first(inputs))), 2, axis=-1)
        log_variance = self.highest - nnx.softplus(self.highest - raw)
        return Gaussian(mean, self.lowest + nnx.softplus(log_variance - self.lowest))


def make_data(key, rows):
    """State (angle, velocity) and torque; the change of the state, noisier near the top."""
    key_inputs, key_noise = jax.random.split(key)
    inputs = jax.random.uniform(key_inputs, (rows, 3), minval=-2.0, maxval=2.0)
    angle, velocity, torque = inputs.T
    change = jnp.stack([velocity, -2 * jnp.sin(1.5 * angle) - 0.3 * velocity + torque], axis=1)
    std = jnp.stack([0.02 + 0 * angle, 0.05 + 0.5 * jnp.exp(-2 * angle**2)], axis=1)
    return inputs, change + std * jax.random.normal(key_noise, (rows, 2))


def main(corrected=True, learning_rate=0.01, steps=300, seed=0):
    """Trains all members and returns their mean NLL on held-out data."""
    inputs, targets = make_data(jax.random.key(0), 1000)
    test_inputs, test_targets = make_data(jax.random.key(1), 1000)
    make = nnx.vmap(Dynamics)
    models = make(nnx.Rngs(seed).split(MEMBERS))
    optimizer = nnx.Optimizer(models, optax.adam(learning_rate), wrt=nnx.Param)

    def loss(model, rows):
        dist = model(inputs[rows])
        if corrected:
            dist = fisher8(dist)  # the one new line
        bounds = 0.01 * jnp.sum(model.highest[...] - model.lowest[...])
        return dist.nll(targets[rows]).mean() + bounds

    @nnx.jit
    def train_step(models, optimizer, key):
        rows = jax.random.randint(key, (MEMBERS, 64), 0, 1000)  # each its own bootstrap
        gradients = nnx.vmap(nnx.grad(loss))(models, rows)
        optimizer.update(models, gradients)

    for key in jax.random.split(jax.random.key(seed + 2), steps):
        train_step(models, optimizer, key)
    held_out = nnx.vmap(lambda model: model(test_inputs).nll(test_targets).mean())(models)
    return float(held_out.mean())


if __name__ == "__main__":
    print(f"NLL: plain {main(corrected=False):.3f}, corrected {main():.3f}")
