"""Fits and maps over training of one setting, one column a method."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import Array

from benchmarks.machinery.figures import to_png
from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import local_kl_variance
from fisher8_jax.plots import plot_fit, plot_training_map


def sinusoid_figure(
    results: Mapping[str, Mapping[str, Any]], truth: tuple[np.ndarray, np.ndarray]
) -> bytes:
    """Fit, log10 Jacobian variance and log10 KL variance over training, one column a method.

    Args:
        results: the result of every column, by its title.
        truth: the true mean and standard deviation at the shown points; the last column.
    """
    figure, axes = plt.subplots(
        3, len(results) + 1, figsize=(3.6 * (len(results) + 1), 8), layout="constrained"
    )
    for column, (title, result) in zip(axes.T, results.items(), strict=False):
        _fit_column(column, title, result, truth[0])
    _oracle_column(axes.T[-1], next(iter(results.values())), truth)
    return to_png(figure, dpi=110)


def _fit_column(column: Any, title: str, result: Mapping[str, Any], truth: np.ndarray) -> None:
    x, steps = _numbers(result["x"]), _numbers(result["steps"])
    dist = Gaussian.from_std(_numbers(result["mean"]), _numbers(result["std"]))
    plot_fit(dist, x, _numbers(result["targets"]), truth=jnp.asarray(truth), ax=column[0])
    diverged = "" if jnp.isfinite(dist.mean).all() else " (diverged)"
    column[0].set(title=title + diverged, ylim=(-1, 1))
    column[0].get_legend().remove()
    for ax, name in zip(column[1:], ("jacobian", "kl"), strict=True):
        values = _numbers(result[f"log10_{name}_variance"])
        label = f"log10 {name} variance"
        plot_training_map(values, x, steps, log10=False, label=label, ax=ax)


def _oracle_column(
    column: Any, result: Mapping[str, Any], truth: tuple[np.ndarray, np.ndarray]
) -> None:
    x = _numbers(result["x"])
    mean, std = (jnp.asarray(array) for array in truth)
    dist = Gaussian.from_std(mean, std)
    plot_fit(dist, x, _numbers(result["targets"]), truth=mean, ax=column[0])
    column[0].set(title="Truth", ylim=(-1, 1))
    column[0].get_legend().remove()
    column[1].set_axis_off()
    kl = np.log10(np.asarray(local_kl_variance(dist, x, radius=0.5)))
    column[2].plot(x, kl)
    column[2].set(xlabel="input", ylabel="log10 kl variance")


def _numbers(values: Any) -> Array:
    """JSON's null is nan."""
    return jnp.asarray(np.array(values, dtype=float))
