"""A forecaster with a distribution for every step: GRU or transformer, missing values, CRPS.

Series are sines whose noise follows a slower wave; a quarter of the values is missing, and half of
the series end early. From the values seen so far the network predicts a Gaussian for the next one.
Missing targets and padding are masked, in the loss and in the norms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from fisher8_jax import (
    Gaussian,
    fisher8_nll,
    fisher8_optimizer,
    network_gradient,
    network_optimizer,
)
from fisher8_jax.losses import nll

LENGTH, WIDTH, HEADS = 60, 32, 4
METHODS = ("nll", "fisher8", "radius", "natural")


class Transformer(nnx.Module):
    """Two causal blocks; a step attends to itself and to the values that were seen before it."""

    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Linear(3, WIDTH, rngs=rngs)
        self.position = nnx.Param(0.02 * rngs.params.normal((LENGTH, WIDTH)))
        self.attention = nnx.List(
            [nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs) for _ in range(2)]
        )
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(5)])
        self.wide = nnx.List([nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs) for _ in range(2)])
        self.narrow = nnx.List([nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs) for _ in range(2)])

    def __call__(self, inputs, is_seen):
        steps = inputs.shape[-2]
        causal = jnp.tril(jnp.ones((steps, steps), bool))
        mask = causal & (is_seen[..., None, None, :] | jnp.eye(steps, dtype=bool))
        hidden = self.embed(inputs) + self.position[:steps]
        for block in range(2):
            hidden += self.attention[block](self.norms[2 * block](hidden), mask=mask)
            wide = nnx.gelu(self.wide[block](self.norms[2 * block + 1](hidden)))
            hidden += self.narrow[block](wide)
        return self.norms[4](hidden)


class Recurrent(nnx.Module):
    """One layer of gated recurrent units."""

    def __init__(self, rngs: nnx.Rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(3, WIDTH, rngs=rngs))

    def __call__(self, inputs, is_seen):
        start = jnp.zeros((len(inputs), WIDTH))  # given, so that no random key is asked for one
        return self.rnn(inputs, initial_carry=start)


class Forecaster(nnx.Module):
    """Values (batch, time), nan where missing, to the distribution of the value one step on."""

    def __init__(self, trunk, rngs: nnx.Rngs):
        self.trunk = trunk(rngs)
        self.head = nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, values, clock):
        is_seen = jnp.isfinite(values)
        filled = jnp.where(is_seen, values, 0.0)  # nan must not enter, not even times zero
        inputs = jnp.stack([filled, is_seen.astype(filled.dtype), clock], axis=-1)
        outputs = self.head(self.trunk(inputs, is_seen))
        return Gaussian(outputs[..., 0], outputs[..., 1])


def make_series(seed, number, swing=1.5):
    """Values (number, LENGTH) with gaps and padding, and a clock that tells the noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(LENGTH)
    phase, day = rng.uniform(0, 2 * np.pi, (2, number, 1))
    period = rng.uniform(8, 16, (number, 1))
    clock = np.sin(2 * np.pi * time / 24 + day)
    noise = np.exp(-2.5 + swing * clock) * rng.normal(size=(number, LENGTH))
    values = np.sin(2 * np.pi * time / period + phase) + noise
    values[rng.random(values.shape) < 0.25] = np.nan
    ends = np.where(rng.random((number, 1)) < 0.5, LENGTH, rng.integers(20, LENGTH, (number, 1)))
    values[time >= ends] = np.nan
    return values.astype(np.float32), clock.astype(np.float32)


def make_forecaster(trunk, seed):
    """Parameters, and the prediction of series as a function of them."""
    graph, params, *rest = nnx.split(Forecaster(trunk, nnx.Rngs(seed)), nnx.Param, ...)

    def predict(params, series):
        values, clock = series
        return nnx.merge(graph, params, *rest)(values[:, :-1], clock[:, 1:])

    return params, predict


def targets_of(series):
    """The next values, zero where they are missing, and whether they were seen."""
    targets = series[0][:, 1:]
    is_seen = jnp.isfinite(targets)
    return jnp.where(is_seen, targets, 0.0), is_seen


def make_step(method, predict, learning_rate, steps):
    """An optimiser, and a function that turns parameters, its state and series into new ones."""
    optimizers = {"radius": fisher8_optimizer(steps), "natural": network_optimizer(steps)}
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    optimizer = optax.with_extra_args_support(optimizers.get(method, adam))

    def predict_one(params, series):
        dist = predict(params, jax.tree.map(lambda leaf: leaf[None], series))
        return jax.tree.map(lambda leaf: leaf[0], dist)

    def loss(params, series):
        targets, is_seen = targets_of(series)
        dist = predict(params, series)
        if method in ("nll", "radius"):  # ahead of Fisher8 here, by Adam and by the radius
            return nll(dist, targets, where=is_seen).mean()
        return fisher8_nll(dist, targets, where=is_seen, axis=(0, 1)).mean()  # norms over all

    def train_step(params, state, series):
        if method == "natural":  # one unknown for each output of the batch
            targets, is_seen = targets_of(series)
            natural = network_gradient(predict_one, params, series, targets, where=is_seen)
            updates, state = optimizer.update(
                natural.gradient, state, params, step_kl=natural.step_kl
            )
        else:
            gradient = jax.grad(loss)(params, series)
            updates, state = optimizer.update(
                gradient, state, params, predict=lambda params: predict(params, series)
            )
        return optax.apply_updates(params, updates), state

    return optimizer, train_step


def scores(dist, series):
    """NLL and CRPS over the targets that were seen."""
    targets, is_seen = targets_of(series)
    return tuple(
        jnp.sum(values * is_seen) / is_seen.sum()
        for values in (dist.nll(targets), dist.crps(targets))
    )


def main(method="fisher8", trunk=Recurrent, learning_rate=0.01, steps=300, seed=0, batch=32):
    """Trains the forecaster and returns NLL and CRPS of new series."""
    series = jax.tree.map(jnp.asarray, make_series(0, 256))
    params, predict = make_forecaster(trunk, seed)
    optimizer, train_step = make_step(method, predict, learning_rate, steps)

    def scanned(carry, rows):
        return train_step(*carry, jax.tree.map(lambda leaf: leaf[rows], series)), None

    rows = np.random.default_rng(seed).integers(0, len(series[0]), (steps, batch))
    train = jax.jit(lambda carry: jax.lax.scan(scanned, carry, rows)[0])
    params, _ = train((params, optimizer.init(params)))
    new = jax.tree.map(jnp.asarray, make_series(1, 256))
    return tuple(map(float, scores(predict(params, new), new)))


if __name__ == "__main__":
    for trunk in (Recurrent, Transformer):
        for method in METHODS[:3]:
            nll_value, crps = main(method, trunk)
            print(f"{trunk.__name__:12} {method:8} NLL {nll_value:.3f}, CRPS {crps:.4f}")
