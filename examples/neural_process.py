"""A conditional neural process in plain JAX.

From some points of an unknown curve the network predicts a Gaussian at every other point. Curves
are sines of random amplitude and phase. One line is new.
"""

import jax
import jax.numpy as jnp
import optax

from fisher8_jax import Gaussian, fisher8

POINTS, WIDTH = 32, 48


def dense(key, inputs, outputs):
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def network(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.silu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def predict(params, x, y, is_context):
    """The distribution at all points of all curves, shape (curves, POINTS)."""
    encoded = network(params["encoder"], jnp.stack([x, y], axis=-1))
    weight = is_context[..., None]
    summary = jnp.sum(weight * encoded, axis=1, keepdims=True) / jnp.sum(weight, 1, keepdims=True)
    summary = jnp.broadcast_to(summary, encoded.shape)
    out = network(params["decoder"], jnp.concatenate([x[..., None], summary], axis=-1))
    return Gaussian(out[..., 0], out[..., 1])


def curves(key, number=16):
    """Points of new curves, and which of them are shown."""
    keys = jax.random.split(key, 5)
    x = jax.random.uniform(keys[0], (number, POINTS), minval=-2.0, maxval=2.0)
    amplitude = jax.random.uniform(keys[1], (number, 1), minval=0.5, maxval=1.5)
    phase = jax.random.uniform(keys[2], (number, 1), maxval=2 * jnp.pi)
    y = amplitude * jnp.sin(2 * x + phase) + 0.02 * jax.random.normal(keys[3], x.shape)
    shown = jax.random.randint(keys[4], (number, 1), 3, 12)
    return x, y, (jnp.arange(POINTS)[None] < shown).astype(x.dtype)


def main(corrected=True, learning_rate=0.003, steps=500, seed=0, pull=1.0):
    """Trains the process and returns the NLL of new curves.

    Below 1, `pull` is how much the log-variance pulls on the layers it shares with the mean.
    """
    keys = jax.random.split(jax.random.key(seed), 6)
    params = {
        "encoder": [dense(keys[0], 2, WIDTH), dense(keys[1], WIDTH, WIDTH)],
        "decoder": [
            dense(keys[2], 1 + WIDTH, WIDTH),
            dense(keys[3], WIDTH, WIDTH),
            dense(keys[4], WIDTH, 2),
        ],
    }
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def loss(params, key):
        x, y, is_context = curves(key)
        dist = predict(params, x, y, is_context)
        dist = Gaussian(dist.mean, optax.scale_gradient(dist.log_variance, pull))
        if corrected:
            dist = fisher8(dist, axis=(0, 1))  # the one new line: norms over curves and points
        return dist.nll(y).mean()

    def train_step(carry, key):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, key), state)
        return (optax.apply_updates(params, updates), state), None

    step_keys = jax.random.split(keys[5], steps)
    train = jax.jit(lambda carry: jax.lax.scan(train_step, carry, step_keys)[0])
    params, _ = train((params, optimizer.init(params)))
    x, y, is_context = curves(jax.random.key(1000), 200)
    return float(predict(params, x, y, is_context).nll(y).mean())


if __name__ == "__main__":
    plain, corrected, gentle = main(corrected=False), main(), main(pull=0.1)
    print(f"NLL: plain {plain:.3f}, corrected {corrected:.3f}, with a weaker pull {gentle:.3f}")
