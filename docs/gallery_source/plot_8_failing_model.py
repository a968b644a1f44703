"""
What is wrong with my model?
============================

A network is trained by the plain negative log-likelihood. Slow training leaves the variance in the
wrong places, faster training breaks it. The doctor says both in words. Fisher8 is the cure: one new
word in the loss, everything else as it was.
"""

# %%
# A network that looks trained
# ----------------------------
#
# Six periods of a sine with little noise, gradient descent with momentum.

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from fisher8_jax import Gaussian, doctor, evaluate, fisher8
from fisher8_jax.diagnostics import TrainingRecord
from fisher8_jax.plots import plot_fit

UNITS, STEPS = 64, 1500


def draw(key, rows):
    x = jnp.linspace(0.0, 6.0, rows)
    return x, 0.4 * jnp.sin(2 * jnp.pi * x) + 0.05 * jax.random.normal(key, (rows,))


def predict(params, x):
    hidden = jnp.tanh(x[:, None] * params["slopes"] + params["offsets"])
    outputs = hidden @ params["heads"] + params["biases"]
    return Gaussian(mean=outputs[:, 0], log_variance=outputs[:, 1])


slopes = 4 * jax.random.normal(jax.random.key(1), (UNITS,))
start = {
    "slopes": slopes,
    "offsets": -slopes * jnp.linspace(0.0, 6.0, UNITS),
    "heads": jnp.zeros((UNITS, 2)),
    "biases": jnp.zeros(2),
}
train_x, train_y = draw(jax.random.key(0), 1200)
test_x, test_y = draw(jax.random.key(3), 300)


def train(loss_of, rate):
    """The trained parameters, and the loss of every step."""
    optimizer = optax.sgd(rate, momentum=0.9)

    def step(carry, _):
        params, state = carry
        loss, gradients = jax.value_and_grad(lambda p: loss_of(predict(p, train_x)))(params)
        updates, state = optimizer.update(gradients, state)
        return (optax.apply_updates(params, updates), state), loss

    carry = (start, optimizer.init(start))
    (params, _), losses = jax.jit(lambda c: jax.lax.scan(step, c, None, length=STEPS))(carry)
    return params, losses


def nll(dist):
    return dist.nll(train_y).mean()


slow, slow_losses = train(nll, rate=2e-4)
plt.plot(slow_losses)
plt.xlabel("step")
plt.ylabel("training NLL (nats)")
plt.show()

# %%
# The loss falls without a jump. Is the model any good?
#
# The doctor
# ----------
#
# Give it held-out predictions, and whatever you recorded of the training.


def examine(params, losses, rate):
    record = TrainingRecord(losses=losses, learning_rate=rate)
    return doctor(predict(params, test_x), test_y, record=record)


print(examine(slow, slow_losses, 2e-4))

# %%
# The variance covers for what the mean has not learned, most of all where it is largest. The
# obvious remedy is to go faster. This is what two and a half times the rate does:

fast, fast_losses = train(nll, rate=5e-4)
print(examine(fast, fast_losses, 5e-4))

# %%
# The cure
# --------
#
# Back to the first rate, and one new word in the loss.


def corrected_nll(dist):
    return fisher8(dist).nll(train_y).mean()


cured, cured_losses = train(corrected_nll, rate=2e-4)
print(examine(cured, cured_losses, 2e-4))

# %%
# Side by side
# ------------

runs = {
    "plain NLL, rate 0.0002": slow,
    "plain NLL, rate 0.0005": fast,
    "Fisher8, rate 0.0002": cured,
}
figure, axes = plt.subplots(3, 1, figsize=(7, 8), sharex=True, layout="constrained")
for ax, (name, params) in zip(axes, runs.items(), strict=True):
    scores = evaluate(predict(params, test_x), test_y)
    ax.plot(test_x, test_y, ".", color="0.7", markersize=3, zorder=0)
    plot_fit(predict(params, test_x), test_x, ax=ax)
    ax.set_ylim(-1.2, 1.2)
    ax.set_title(f"{name}: RMSE {scores.rmse:.3f}, NLL {scores.nll:.2f}")
    ax.get_legend().remove()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()
