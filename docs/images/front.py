"""The picture of the front page: one network, the same steps, three gradients, and a posterior.

Six periods of a sine whose noise grows. Plain NLL and Fisher8 have Adam at the same learning rate,
the parameter-space natural gradient has its defaults. Each panel shows the median of five seeds;
the errors at other rates are printed, because the caption speaks of them. No data lie right of 1:
the last panel is the same network as the one above it, with what it does not know.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from benchmarks.machinery.figures import style
from fisher8_jax import Gaussian, fisher8_nll, network_gradient, network_optimizer
from fisher8_jax.plots import plot_fit
from fisher8_jax.posterior import fit_posterior

STEPS, ROWS, BATCH, HIDDEN, SEEDS = 2_000, 500, 64, 50, 5
RATES, SHOWN = (0.003, 0.01, 0.03, 0.1), 0.01
X = np.sort(np.random.default_rng(0).uniform(-1, 1, ROWS)).astype(np.float32)
TRUTH = 1.3 * np.sin(6 * np.pi * X)
NOISE = 0.07 + 0.25 * (X + 1)
Y = (TRUTH + NOISE * np.random.default_rng(1).normal(size=ROWS)).astype(np.float32)


GRID = np.linspace(-1, 1.4, 481, dtype=np.float32)


class Trained(NamedTuple):
    """The median of the seeds, and its error."""

    title: str
    params: list
    rmse: float


def init(key):
    """Units of the first layer are spread over the inputs."""
    kernel, centre, hidden = jax.random.split(key, 3)
    first = 3 * jax.random.normal(kernel, (1, HIDDEN))
    centres = jax.random.uniform(centre, (HIDDEN,), minval=-1, maxval=1)
    return [
        (first, -first[0] * centres),
        (jax.random.normal(hidden, (HIDDEN, HIDDEN)) / HIDDEN**0.5, jnp.zeros(HIDDEN)),
        (jnp.zeros((HIDDEN, 2)), jnp.zeros(2)),
    ]


def predict_one(params, x):
    x = x[None]
    for kernel, bias in params[:-1]:
        x = jnp.tanh(x @ kernel + bias)
    kernel, bias = params[-1]
    return Gaussian(*(x @ kernel + bias))


def predict(params, x):
    return jax.vmap(predict_one, (None, 0))(params, x)


def nll_gradient(params, x, y):
    return jax.grad(lambda p: predict(p, x).nll(y).mean())(params), {}


def fisher8_gradient(params, x, y):
    return jax.grad(lambda p: fisher8_nll(predict(p, x), y).mean())(params), {}


def natural_gradient(params, x, y):
    step = network_gradient(predict_one, params, x, y)
    return step.gradient, {"step_kl": step.step_kl}


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(gradient, optimizer, seed, rate):
    """The parameters after all steps; `rate` is 0 where there is none."""

    def step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, ROWS)
        grads, extra = gradient(params, jnp.asarray(X)[rows], jnp.asarray(Y)[rows])
        updates, state = optimizer(rate).update(grads, state, params, **extra)
        return (optax.apply_updates(params, updates), state), None

    params = init(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 100), STEPS)
    (params, _), _ = jax.lax.scan(step, (params, optimizer(rate).init(params)), keys)
    return params


def adam(rate):
    return optax.with_extra_args_support(optax.adam(optax.cosine_decay_schedule(rate, STEPS)))


def natural(rate):
    return network_optimizer(num_steps=STEPS)


def train_all(title, gradient, optimizer, rate):
    """All seeds at one rate."""
    seeds = [train(gradient, optimizer, seed, rate) for seed in range(SEEDS)]
    rmse = [float(np.sqrt(np.mean((predict(p, jnp.asarray(X)).mean - TRUTH) ** 2))) for p in seeds]
    print(f"{title}, rate {rate or 'none'}: error of the mean {np.round(np.sort(rmse), 2)}")
    shown = int(np.argsort(rmse)[SEEDS // 2])
    return Trained(title, seeds[shown], rmse[shown])


def draw(panels):
    """Panels one above the other, so that a telephone shows them whole."""
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(7, 9), layout="constrained", sharex=True, sharey=True
    )
    truth = np.interp(GRID, X, TRUTH, right=np.nan)
    for ax, (title, dist) in zip(axes, panels.items(), strict=True):
        plot_fit(dist, GRID, truth=truth, ax=ax)
        ax.plot(X, Y, ".", color="0.25", markersize=3, label="targets", zorder=1)
        ax.legend().remove()
        ax.set(xlim=(GRID[0], GRID[-1]), ylim=(-3, 3), xlabel="")
        ax.set_title(title, loc="left")
    axes[-1].set_xlabel("input")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def make(path: Path) -> None:
    """Trains all and saves the picture."""
    methods = {"Plain NLL, Adam": nll_gradient, "Fisher8, Adam": fisher8_gradient}
    by_rate = {
        rate: [train_all(title, gradient, adam, rate) for title, gradient in methods.items()]
        for rate in RATES
    }
    title = "Natural gradient in parameter space"
    trained = [*by_rate[SHOWN], train_all(title, natural_gradient, natural, 0.0)]
    panels = {
        f"{one.title}: error of the mean {one.rmse:.2f}": predict(one.params, jnp.asarray(GRID))
        for one in trained
    }
    posterior = fit_posterior(predict_one, trained[-1].params, X, Y)
    panels["The same, with its posterior: the band grows where data end"] = posterior.predict(GRID)
    with style(), plt.rc_context({"font.size": 12, "axes.titlesize": 13}):
        draw(panels).savefig(path, dpi=110, metadata={"Software": None})
    plt.close("all")
