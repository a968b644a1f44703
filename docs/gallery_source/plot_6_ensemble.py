"""
An ensemble
===========

One network knows how noisy the data are. Several that start differently disagree where there were
no data, and their disagreement is the epistemic part of the variance.
"""

# %%
# Data with a gap
# ---------------

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from fisher8_jax import Gaussian
from fisher8_jax.ensembles import Mixture
from fisher8_jax.training import LearningRate, Method, Plan, fit

keys = jax.random.split(jax.random.key(0), 3)
x = jax.random.uniform(keys[0], (300,), minval=-3.0, maxval=3.0)
x = jnp.where(jnp.abs(x) < 1, x + jnp.sign(x) * 1.5, x)  # nothing around 0
y = jnp.sin(2 * x) + 0.15 * jax.random.normal(keys[1], (300,))


# %%
# Five members in one vmap
# ------------------------


def network(params, x):
    hidden = jnp.tanh(x[:, None] * params["w1"] + params["b1"])
    mean, log_variance = (jnp.tanh(hidden @ params["w2"]) @ params["w3"]).T
    return Gaussian(mean, log_variance)


def init(key):
    keys = jax.random.split(key, 4)
    return {
        "w1": 2 * jax.random.normal(keys[0], (32,)),
        "b1": 3 * jax.random.normal(keys[1], (32,)),
        "w2": jax.random.normal(keys[2], (32, 32)) / 32**0.5,
        "w3": 0.1 * jax.random.normal(keys[3], (32, 2)),
    }


members = jax.vmap(init)(jax.random.split(jax.random.key(1), 5))
method = Method(length=LearningRate(0.01))  # Fisher8 with Adam
fitted = fit(network, members, (x, y), Plan(steps=600), method=method, runs=5, show_progress=False)
params = fitted.params

# %%
# The variance in two parts
# -------------------------

grid = jnp.linspace(-4.0, 4.0, 200)
mixture = Mixture(jax.vmap(network, in_axes=(0, None))(params, grid))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
std = jnp.sqrt(mixture.variance)
left.fill_between(grid, mixture.mean - 2 * std, mixture.mean + 2 * std, alpha=0.3, label="± 2 std")
left.plot(grid, mixture.mean, color="black", label="mean")
left.plot(x, y, ".", color="0.4", markersize=3, label="data")
left.set(xlabel="input", ylabel="target", ylim=(-3, 3.6))
left.legend(loc="upper left", ncols=3, frameon=False)
right.plot(grid, jnp.sqrt(mixture.aleatoric), label="noise (aleatoric)")
right.plot(grid, jnp.sqrt(mixture.epistemic), "--", label="disagreement (epistemic)")
right.set(xlabel="input", ylabel="standard deviation", yscale="log")
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False)
plt.show()
