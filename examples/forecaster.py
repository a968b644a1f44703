"""A forecaster with a distribution for every step: a GRU in Flax NNX, missing values, CRPS.

Series are sines whose noise follows a slower wave; a quarter of the values is missing. From the
values seen so far the network predicts a Gaussian for the next one. Missing targets are masked.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from fisher8_jax import Gaussian, fisher8_nll
from fisher8_jax.losses import nll

LENGTH, WIDTH = 60, 32


class Forecaster(nnx.Module):
    """Values (batch, time), nan where missing, to the distribution of the value one step on."""

    def __init__(self, rngs: nnx.Rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(3, WIDTH, rngs=rngs))
        self.head = nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, values, clock):
        is_seen = jnp.isfinite(values)
        filled = jnp.where(is_seen, values, 0.0)  # nan must not enter, not even times zero
        inputs = jnp.stack([filled, is_seen.astype(filled.dtype), clock], axis=-1)
        start = jnp.zeros((len(values), WIDTH))  # given, so that no random key is asked for one
        outputs = self.head(self.rnn(inputs, initial_carry=start))
        return Gaussian(outputs[..., 0], outputs[..., 1])


def make_series(seed, number):
    """Values (number, LENGTH) with gaps, and a clock that tells how noisy the hour is."""
    rng = np.random.default_rng(seed)
    time = np.arange(LENGTH)
    phase, day = rng.uniform(0, 2 * np.pi, (2, number, 1))
    period = rng.uniform(8, 16, (number, 1))
    clock = np.sin(2 * np.pi * time / 24 + day)
    noise = np.exp(-2.5 + 1.5 * clock) * rng.normal(size=(number, LENGTH))
    values = np.sin(2 * np.pi * time / period + phase) + noise
    values[rng.random(values.shape) < 0.25] = np.nan
    return values.astype(np.float32), clock.astype(np.float32)


def scores(dist, targets):
    """NLL and CRPS over the targets that were seen."""
    seen = jnp.isfinite(targets)
    filled = jnp.where(seen, targets, 0.0)
    return tuple(jnp.sum(x * seen) / seen.sum() for x in (dist.nll(filled), dist.crps(filled)))


def main(corrected=True, learning_rate=0.01, steps=300, seed=0):
    """Trains the forecaster and returns NLL and CRPS of new series."""
    values, clock = make_series(0, 256)
    model = Forecaster(nnx.Rngs(seed))
    graph, params, *rest = nnx.split(model, nnx.Param, ...)
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def predict(params, values, clock):
        return nnx.merge(graph, params, *rest)(values[:, :-1], clock[:, 1:])

    def loss(params, rows):
        targets = values[rows][:, 1:]
        dist = predict(params, values[rows], clock[rows])
        seen = jnp.isfinite(targets)
        if corrected:
            return fisher8_nll(dist, targets, where=seen, axis=(0, 1)).mean()  # norms over all
        return nll(dist, targets, where=seen).mean()

    def train_step(carry, rows):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, rows), state)
        return (optax.apply_updates(params, updates), state), None

    values, clock = jnp.asarray(values), jnp.asarray(clock)
    rows = np.random.default_rng(seed).integers(0, len(values), (steps, 32))
    train = jax.jit(lambda carry: jax.lax.scan(train_step, carry, rows)[0])
    params, _ = train((params, optimizer.init(params)))
    new_values, new_clock = map(jnp.asarray, make_series(1, 256))
    return tuple(map(float, scores(predict(params, new_values, new_clock), new_values[:, 1:])))


if __name__ == "__main__":
    for name, corrected in (("plain NLL", False), ("fisher8", True)):
        nll_value, crps = main(corrected=corrected)
        print(f"{name:10} NLL {nll_value:.3f}, CRPS {crps:.4f}")
