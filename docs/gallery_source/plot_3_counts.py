"""
Counts
======

Visitors per hour are whole numbers, and they scatter more than a Poisson allows. The doctor says so
and names the family to use instead.
"""

# %%
# Counts with a spread of their own
# ---------------------------------

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from fisher8_jax import doctor, fisher8_nll, fisher8_optimizer
from fisher8_jax.families import NegativeBinomial, Poisson

hours = jnp.linspace(0.0, 24.0, 800)
features = jnp.stack([jnp.sin(k * hours * jnp.pi / 12) for k in (1, 2)], axis=1)
features = jnp.concatenate([features, jnp.cos(hours * jnp.pi / 12)[:, None]], axis=1)
log_mean = 2 - jnp.cos((hours - 2) * jnp.pi / 12)
visitors = NegativeBinomial(log_mean, jnp.full(800, 1.0)).sample(jax.random.key(0))
is_test = np.arange(800) % 4 == 0


# %%
# The same network with either family
# -----------------------------------
#
# A family is made of raw outputs, one column for each of its parameters.


def fit(family, columns, steps=150):
    keys = jax.random.split(jax.random.key(1), 2)
    params = {
        "w1": jax.random.normal(keys[0], (3, 32)),
        "w2": 0.1 * jax.random.normal(keys[1], (32, columns)),
        "b2": jnp.zeros(columns),
    }
    optimizer = fisher8_optimizer(steps)

    def predict(params, x):
        out = jnp.tanh(x @ params["w1"]) @ params["w2"] + params["b2"]
        return family(*out.T)

    def step(carry, _):
        params, state = carry
        x, y = features[~is_test], visitors[~is_test]
        gradient = jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params)
        updates, state = optimizer.update(gradient, state, params, predict=lambda p: predict(p, x))
        return (optax.apply_updates(params, updates), state), None

    start = (params, optimizer.init(params))
    (params, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, length=steps))(start)
    return predict(params, features)


def held_out(dist):
    return jax.tree.map(lambda leaf: leaf[is_test], dist)


poisson = fit(Poisson, 1)
print(doctor(held_out(poisson), visitors[is_test]))

# %%
# The advice is followed.

negative_binomial = fit(NegativeBinomial, 2)
print(doctor(held_out(negative_binomial), visitors[is_test]))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
fits = {"Poisson": poisson, "NegativeBinomial": negative_binomial}
for ax, (name, dist) in zip(axes, fits.items(), strict=True):
    low, high = (dist.quantile(jnp.full(800, p)) for p in (0.05, 0.95))
    nll = held_out(dist).nll(visitors[is_test]).mean()
    ax.fill_between(hours, low, high, alpha=0.3, step="mid", label="90 % interval")
    ax.plot(hours, dist.mean, color="black", label="mean")
    ax.plot(hours[is_test], visitors[is_test], ".", color="0.4", markersize=3, label="visitors")
    ax.set(title=f"{name}: NLL {nll:.2f}", xlabel="hour of the day")
axes[0].set_ylabel("visitors")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()
