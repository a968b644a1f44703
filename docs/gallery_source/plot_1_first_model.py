"""
A first model
=============

From data to a network that predicts a mean and an honest spread, to a check of how honest it is.
The model is written in Flax NNX, and there is no learning rate to choose.
"""

# %%
# Data
# ----
#
# One input, and noise that grows with it. We keep a third for the end.

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from flax import nnx

from fisher8_jax import evaluate, fisher8_nll, fisher8_optimizer
from fisher8_jax.heads.nnx import DistributionHead
from fisher8_jax.plots import plot_fit, plot_reliability


def draw(key, rows):
    """Inputs (rows, 1) and targets (rows,)."""
    input_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(input_key, (rows, 1), minval=-1.0, maxval=1.0)
    std = 0.05 + 0.25 * (1 + x[:, 0])
    return x, jnp.sin(4 * x[:, 0]) + std * jax.random.normal(noise_key, (rows,))


train_x, train_y = draw(jax.random.key(0), 1000)
test_x, test_y = draw(jax.random.key(1), 500)

# %%
# Network
# -------
#
# Any trunk will do. ``DistributionHead`` turns its features into a distribution: here a Gaussian
# with a mean and a log-variance.


class Network(nnx.Module):
    """Two hidden layers and a head."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(1, 64, rngs=rngs)
        self.second = nnx.Linear(64, 64, rngs=rngs)
        self.head = DistributionHead(64, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.silu(self.second(nnx.silu(self.first(x)))))


# %%
# Training
# --------
#
# ``fisher8_nll`` has the value of the negative log-likelihood, and the gradient of Fisher8.
# ``fisher8_optimizer`` asks for the number of steps instead of a learning rate: it measures each
# step by how far it moves the predictions. For that it needs to see them, hence ``predict``.

STEPS, BATCH = 400, 128
# `rest` is everything that is not trained: dropout's random state, running statistics.
graph, params, rest = nnx.split(Network(nnx.Rngs(0)), nnx.Param, ...)
optimizer = fisher8_optimizer(STEPS)


def step(carry, key):
    params, state = carry
    rows = jax.random.randint(key, (BATCH,), 0, len(train_x))
    x, y = train_x[rows], train_y[rows]

    def predict(params):
        return nnx.merge(graph, params, rest)(x)

    loss, gradients = jax.value_and_grad(lambda p: fisher8_nll(predict(p), y).mean())(params)
    updates, state = optimizer.update(gradients, state, params, predict=predict)
    return (optax.apply_updates(params, updates), state), loss


keys = jax.random.split(jax.random.key(2), STEPS)
start = (params, optimizer.init(params))
(params, _), losses = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))(start)
network = nnx.merge(graph, params, rest)

# %%
# How good is it?
# ---------------
#
# ``evaluate`` computes all scores at once. A perfect model would have a mean squared standardised
# residual (``mean_z_squared``) of 1, and its 90 % intervals would cover 90 % of the targets.

dist = network(test_x)
print(evaluate(dist, test_y))

# %%
# The picture says the same. The dashed lines are two true standard deviations around the truth.

grid = jnp.linspace(-1, 1, 200)[:, None]
figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.5, 8), layout="constrained")
top.plot(test_x[:, 0], test_y, ".", color="0.7", markersize=3, zorder=0)
truth, spread = jnp.sin(4 * grid[:, 0]), 0.05 + 0.25 * (1 + grid[:, 0])
for sign in (-2, 2):
    top.plot(grid[:, 0], truth + sign * spread, "k--", linewidth=1)
plot_fit(network(grid), grid[:, 0], ax=top)
plot_reliability(dist, test_y, ax=bottom)
plt.show()

# %%
# Where next
# ----------
#
# The noise was learned as well as the mean, without a learning rate. What to do when that fails is
# the next example.
