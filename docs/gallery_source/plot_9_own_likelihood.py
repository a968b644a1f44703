"""
A likelihood of your own
========================

The largest gust of a day follows no Gaussian: maxima have a long upper tail. The Gumbel
distribution describes them. It is not in the package, so we declare it: a log-density and a rule to
integrate are enough, and Fisher8, the KL radius, the metrics and the plots work with it.
"""

# %%
# The family
# ----------
#
# Parameters must be free to take any real value, so the scale enters by its logarithm. The
# quadrature says where the probability is; ``quadrature_nodes`` makes nodes around a place.

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from fisher8_jax import Gaussian, evaluate, fisher8_nll, fisher8_optimizer
from fisher8_jax.families import declare_family, quadrature_nodes


def log_density(y, location, log_scale):
    z = (y - location) * jnp.exp(-log_scale)
    return -log_scale - z - jnp.exp(-z)


Gumbel = declare_family(
    "Gumbel",
    parameters=("location", "log_scale"),
    log_density=log_density,
    quadrature=lambda location, log_scale: quadrature_nodes(
        "real", location, jnp.exp(log_scale), count=65
    ),
)

# %%
# A check before any training: the mean of the standard Gumbel is Euler's constant, its variance
# ``pi^2 / 6``, and a quantile is the inverse of the cumulative distribution.

standard = Gumbel(jnp.zeros(1), jnp.zeros(1))
print("mean", standard.mean, "variance", standard.variance, "should be", jnp.pi**2 / 6)
print("cdf of the 90 % quantile", standard.cdf(standard.quantile(jnp.full(1, 0.9))))

# %%
# Data
# ----
#
# Simulated gusts over a year: windy and variable in winter.


def draw(key, days):
    day_key, gust_key = jax.random.split(key)
    day = jax.random.uniform(day_key, (days,), minval=0.0, maxval=365.0)
    season = jnp.cos(2 * jnp.pi * day / 365)
    gust = 14 + 5 * season + (2 + 1.2 * season) * jax.random.gumbel(gust_key, (days,))
    return day, gust


train_day, train_gust = draw(jax.random.key(0), 1000)
test_day, test_gust = draw(jax.random.key(1), 2000)
SHIFT, SCALE = train_gust.mean(), train_gust.std()

# %%
# Training
# --------
#
# The same network and optimizer for both likelihoods; only the class differs.

STEPS, HIDDEN = 200, 32


def network(params, day):
    angle = 2 * jnp.pi * day / 365
    inputs = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    hidden = jnp.tanh(inputs @ params["first"] + params["bias"])
    return hidden @ params["second"]


def fit(family):
    """The trained parameters of a network that predicts members of `family`."""
    keys = jax.random.split(jax.random.key(2), 2)
    params = {
        "first": jax.random.normal(keys[0], (2, HIDDEN)),
        "bias": jnp.zeros(HIDDEN),
        "second": 0.1 * jax.random.normal(keys[1], (HIDDEN, 2)),
    }
    optimizer = fisher8_optimizer(STEPS)
    targets = (train_gust - SHIFT) / SCALE

    def predict(params):
        return family(*network(params, train_day).T)

    def step(carry, _):
        params, state = carry
        gradients = jax.grad(lambda p: fisher8_nll(predict(p), targets).mean())(params)
        updates, state = optimizer.update(gradients, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    carry = (params, optimizer.init(params))
    return jax.jit(lambda c: jax.lax.scan(step, c, None, length=STEPS))(carry)[0][0]


# %%
# Compared
# --------
#
# On days that were not trained on. Lower is better for the NLL and the ECE.

trained = {"Gumbel": (Gumbel, fit(Gumbel)), "Gaussian": (Gaussian, fit(Gaussian))}
scaled_test = (test_gust - SHIFT) / SCALE
for name, (family, params) in trained.items():
    scores = evaluate(family(*network(params, test_day).T), scaled_test)
    print(f"{name:8} NLL {scores.nll:.3f}   ECE {scores.ece:.4f}")

# %%
# The gust that is exceeded on one day in a hundred, as both see it, and how often it really was.

days = jnp.linspace(0, 365, 200)
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(test_day, test_gust, ".", color="0.75", markersize=2)
for name, (family, params) in trained.items():
    limit = family(*network(params, days).T).quantile(jnp.full(200, 0.99))
    at_test = family(*network(params, test_day).T).quantile(jnp.full(2000, 0.99))
    exceeded = 100 * jnp.mean(scaled_test > at_test)
    ax.plot(days, limit * SCALE + SHIFT, label=f"{name}: exceeded on {exceeded:.1f} % of days")
ax.set(xlabel="day of the year", ylabel="largest gust (m/s)")
figure.legend(loc="outside lower center", ncols=2)
plt.show()
