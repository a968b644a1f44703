"""
Recalibration
=============

A network trained too long on too few rows is too sure of itself. Three ways to repair that on
held-out rows, without training again.
"""

# %%
# A network that is too sure
# --------------------------

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from fisher8_jax import Gaussian
from fisher8_jax.calibration import IsotonicPIT, SplitConformal, VarianceScaling
from fisher8_jax.plots import plot_reliability


def draw(key, rows):
    key_x, key_y = jax.random.split(key)
    x = jax.random.uniform(key_x, (rows,), minval=-2.0, maxval=2.0)
    return x, jnp.sin(2 * x) + (0.1 + 0.1 * jnp.abs(x)) * jax.random.normal(key_y, (rows,))


def predict(params, x):
    hidden = jnp.tanh(x[:, None] * params["w1"] + params["b1"])
    mean, log_variance = (hidden @ params["w2"]).T
    return Gaussian(mean, log_variance)


train_x, train_y = draw(jax.random.key(0), 60)
params = {
    "w1": 3 * jax.random.normal(jax.random.key(1), (64,)),
    "b1": jnp.linspace(-5.0, 5.0, 64),
    "w2": jnp.zeros((64, 2)),
}
optimizer = optax.adam(0.01)


def step(carry, _):
    params, state = carry
    gradient = jax.grad(lambda p: predict(p, train_x).nll(train_y).mean())(params)
    updates, state = optimizer.update(gradient, state)
    return (optax.apply_updates(params, updates), state), None


start = (params, optimizer.init(params))
(params, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, length=800))(start)

# %%
# Three cures
# -----------
#
# Each is fitted on rows that the network has not seen and evaluated on others.

held_x, held_y = draw(jax.random.key(2), 400)
test_x, test_y = draw(jax.random.key(3), 1000)
held, test = predict(params, held_x), predict(params, test_x)
models = {
    "as trained": test,
    "VarianceScaling": VarianceScaling.fit(held, held_y).apply(test),
    "IsotonicPIT": IsotonicPIT.fit(held, held_y).apply(test),
}
for name, dist in models.items():
    print(f"{name:16} NLL {dist.nll(test_y).mean():.3f}")
interval = SplitConformal.fit(held, held_y, levels=(0.9,)).apply(test)
inside = (test_y >= interval.lower[:, 0]) & (test_y <= interval.upper[:, 0])
print(f"SplitConformal: {100 * inside.mean():.1f} % of the targets inside its 90 % intervals")

figure, axes = plt.subplots(1, 3, figsize=(10, 4.2), sharey=True, layout="constrained")
for ax, (name, dist) in zip(axes, models.items(), strict=True):
    plot_reliability(dist, test_y, ax=ax)
    ax.set_title(name)
plt.show()
