"""
Natural gradient in parameter space
===================================

Fisher8 corrects the gradient at the output. Its outputs are still coupled through the weights they
share, and on ill-conditioned problems training crawls. ``network_gradient`` takes the coupling
into account: it is the exact, damped natural gradient in parameter space.
"""

# %%
# Four periods of a sine
# ----------------------

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

from fisher8_jax import Gaussian, fisher8_nll, network_gradient
from fisher8_jax.optimizers import scale_by_kl_radius
from fisher8_jax.plots import plot_fit

STEPS, BATCH = 150, 64
key_x, key_y, key_rows, *key_layers = jax.random.split(jax.random.key(0), 6)
x = jnp.sort(jax.random.uniform(key_x, (400, 1), minval=-1.0, maxval=1.0), axis=0)
truth = jnp.sin(12 * x[:, 0])
y = truth + 0.1 * jax.random.normal(key_y, (400,))
rows = jax.random.randint(key_rows, (STEPS, BATCH), 0, 400)


def predict_one(params, x):
    """The distribution of one point."""
    for layer in params[:-1]:
        x = jnp.tanh(layer["w"] @ x + layer["b"])
    mean, log_variance = params[-1]["w"] @ x + params[-1]["b"]
    return Gaussian(mean, log_variance)


sizes = (1, 32, 32, 2)
start = [
    {"w": jax.random.normal(key, (n, m)) / m**0.5, "b": jnp.zeros(n)}
    for key, m, n in zip(key_layers, sizes, sizes[1:], strict=False)
]


# %%
# The same number of steps by either gradient
# -------------------------------------------


def at_the_output(params, x, y):
    def loss(params):
        return fisher8_nll(jax.vmap(predict_one, (None, 0))(params, x), y).mean()

    return jax.grad(loss)(params)


def in_parameter_space(params, x, y):
    return network_gradient(predict_one, params, x, y, damping=0.01).gradient


def train(optimizer, gradient):
    def step(carry, rows):
        params, state = carry

        def predict(params):
            return jax.vmap(predict_one, (None, 0))(params, x[rows])

        grads = gradient(params, x[rows], y[rows])
        updates, state = optimizer.update(grads, state, params, predict=predict)
        return (optax.apply_updates(params, updates), state), None

    run = jax.jit(lambda p: jax.lax.scan(step, (p, optimizer.init(p)), rows)[0][0])
    return jax.vmap(predict_one, (None, 0))(run(start), x)


fits = {
    "Fisher8 at the output, Adam": train(
        optax.with_extra_args_support(optax.adam(0.01)), at_the_output
    ),
    "Parameter-space gradient": train(
        optax.chain(optax.sgd(1.0), scale_by_kl_radius(optax.linear_schedule(0.2, 0.0, STEPS))),
        in_parameter_space,
    ),
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, (name, dist) in zip(axes, fits.items(), strict=True):
    plot_fit(dist, x[:, 0], y, truth=truth, ax=ax)
    ax.set_title(f"{name}: RMSE {jnp.sqrt(jnp.mean((dist.mean - truth) ** 2)):.3f}")
    ax.get_legend().remove()
    ax.autoscale(axis="y")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
plt.show()
