"""
Missing targets
===============

Two quantities are measured, and each is missing in many rows. Rows with one of them still teach
the network about that one: ``where`` says which targets are known.
"""

# %%
# Gaps
# ----

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from fisher8_jax import Gaussian, evaluate, fisher8_nll, fisher8_optimizer
from fisher8_jax.plots import plot_fit

keys = jax.random.split(jax.random.key(0), 4)
x = jax.random.uniform(keys[0], (500,), minval=-2.0, maxval=2.0)
truth = jnp.stack([jnp.sin(2 * x), x**2 / 2], axis=1)
noise = jnp.stack([jnp.full(500, 0.1), 0.1 + 0.2 * jnp.abs(x)], axis=1)
complete = truth + noise * jax.random.normal(keys[1], (500, 2))
known = jax.random.uniform(keys[2], (500, 2)) < jnp.array([0.3, 0.7])
targets = jnp.where(known, complete, jnp.nan)
print("known:", known.mean(axis=0), "rows with both:", known.all(axis=1).mean())


# %%
# One loss for all rows
# ---------------------
#
# The mask goes into the loss; masked values, nan included, reach no gradient.


def predict(params, x):
    hidden = jnp.tanh(x[:, None] * params["w1"] + params["b1"])
    out = (hidden @ params["w2"] + params["b2"]).reshape(-1, 2, 2)
    return Gaussian(out[..., 0], out[..., 1])


params = {
    "w1": 2 * jax.random.normal(keys[3], (32,)),
    "b1": jnp.linspace(-3.0, 3.0, 32),
    "w2": jnp.zeros((32, 4)),
    "b2": jnp.zeros(4),
}
optimizer = fisher8_optimizer(200)


def step(carry, _):
    params, state = carry

    def loss(params):
        return fisher8_nll(predict(params, x), targets, where=known).sum() / known.sum()

    updates, state = optimizer.update(
        jax.grad(loss)(params), state, params, predict=lambda p: predict(p, x)
    )
    return (optax.apply_updates(params, updates), state), None


start = (params, optimizer.init(params))
(params, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, length=200))(start)

# %%
# The metrics take the same mask, and here we can also look at the targets that were hidden.

dist = predict(params, x)
print(evaluate(dist, complete, where=~known).table(["first", "second"]))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for k, ax in enumerate(axes):
    one = Gaussian(dist.mean[:, k], dist.log_variance[:, k])
    plot_fit(one, x, complete[:, k], where=known[:, k], truth=truth[:, k], ax=ax)
plt.show()
