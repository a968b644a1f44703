"""
The posterior of one network
============================

Two clusters of data, and nothing between or beyond. One network is sure of itself everywhere. Five
of them disagree where there were no data. The posterior of a single network says the same from one
training.
"""

# %%
# Data in two clusters
# --------------------

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from fisher8_jax import Gaussian
from fisher8_jax.ensembles import Mixture
from fisher8_jax.posterior import fit_posterior, leave_one_out, train_by_evidence

random = np.random.default_rng(0)
x = np.concatenate([random.uniform(-2, -0.8, 60), random.uniform(0.7, 1.6, 60)])[:, None]
y = np.sin(3 * x[:, 0]) + (0.05 + 0.1 * (x[:, 0] > 0)) * random.normal(size=120)


# %%
# A network of one example
# ------------------------
#
# No batch axis: one row in, one distribution out.


def predict_one(params, x):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return Gaussian(*(jnp.tanh(hidden @ params["w2"] + params["b2"]) @ params["w3"]))


def init(seed):
    random = np.random.default_rng(seed)
    return {
        "w1": 2 * random.normal(size=(1, 30)),
        "b1": random.normal(size=30),
        "w2": random.normal(size=(30, 30)) / 30**0.5,
        "b2": np.zeros(30),
        "w3": 0.1 * random.normal(size=(30, 2)),
    }


# %%
# Training by evidence
# --------------------
#
# The precisions of the prior are learned with the weights. No rows are held out, and there is
# neither a learning rate nor a weight decay to choose.

trained = [
    train_by_evidence(predict_one, init(seed), x, y, steps=500, seed=seed) for seed in range(5)
]

# %%
# The posterior of the first network
# ----------------------------------
#
# The precisions that training ended with would give a wider one, `prior=first.prior, tune=False`.
# Those that `fit_posterior` chooses lie between them and those of which the weights are draws.

first = trained[0]
posterior = fit_posterior(predict_one, first.params, x, y)
print(posterior.describe())
print(f"leave-one-out NLL {leave_one_out(posterior, damping=0.01).nll.mean():.2f}")

# %%
# Three answers
# -------------
#
# The dark band is the noise (aleatoric), the light one adds what the model does not know
# (epistemic); two standard deviations each.

grid = np.linspace(-3.5, 3.5, 200)[:, None]
predict = jax.jit(jax.vmap(predict_one, (None, 0)))
members = [predict(found.params, grid) for found in trained]
five = Mixture(jax.tree.map(lambda *leaves: jnp.stack(leaves), *members))
own = posterior.predict(grid)
answers = {
    "one network": (members[0].mean, members[0].variance, 0 * members[0].variance),
    "five networks": (five.mean, five.aleatoric, five.epistemic),
    "one network, posterior": (own.mean, own.aleatoric, own.epistemic),
}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for axis, (title, (mean, aleatoric, epistemic)) in zip(axes, answers.items(), strict=True):
    for variance, alpha in ((aleatoric + epistemic, 0.2), (aleatoric, 0.4)):
        width = 2 * np.sqrt(variance)
        axis.fill_between(grid[:, 0], mean - width, mean + width, color="C0", alpha=alpha, lw=0)
    axis.plot(grid[:, 0], mean, color="C0")
    axis.plot(x[:, 0], y, ".", color="black", ms=3)
    axis.set(title=title, ylim=(-4, 4))
