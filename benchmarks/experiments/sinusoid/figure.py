"""Fits and maps over training of one setting, one column a method."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from benchmarks.machinery.figures import to_png
from fisher8_jax import Gaussian
from fisher8_jax.diagnostics import local_kl_variance
from fisher8_jax.plots import plot_fit, plot_training_map

Result = Mapping[str, Any]
Truth = tuple[np.ndarray, np.ndarray]

MAPS = {"jacobian": "Jacobian variance", "kl": "KL variance"}


def diverged(result: Result) -> bool:
    """Whether the last prediction is not finite, so that there is no fit to draw."""
    return not np.isfinite(_numbers(result["mean"])).all()


def sinusoid_figure(results: Mapping[str, Result], truth: Truth) -> bytes:
    """Fit, both variances over training, and the last KL variance beside that of the truth.

    Args:
        results: the result of every column, by its title; those that diverged are left out.
        truth: the true mean and standard deviation at the shown points.
    """
    shown = {title: result for title, result in results.items() if not diverged(result)}
    heights = (1.0, 1.1, 1.1, 0.8)
    figure, axes = plt.subplots(
        4, len(shown), figsize=(3.9 * len(shown) + 0.8, 9.2), layout="constrained",
        sharex=True, sharey="row", height_ratios=heights, squeeze=False,
    )  # fmt: skip
    draw_fits(axes[0], shown, truth[0])
    for row, name in zip(axes[1:3], MAPS, strict=True):
        _draw_maps(figure, row, list(shown.values()), name)
    _draw_last_kl(axes[3], list(shown.values()), truth)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    figure.legend(*axes[3, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    for ax in axes[-1]:
        ax.set_xlabel("input")
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    return to_png(figure, dpi=110)


def draw_fits(axes: Sequence[Axes], results: Mapping[str, Result], truth: np.ndarray) -> None:
    """Bands, targets and the true mean, one panel a result; the figure has the legend."""
    for ax, (title, result) in zip(axes, results.items(), strict=True):
        x = _numbers(result["x"])
        dist = Gaussian.from_std(_numbers(result["mean"]), _numbers(result["std"]))
        plot_fit(dist, x, _numbers(result["targets"]), truth=jnp.asarray(truth), ax=ax)
        highest = 1.1 * np.abs(np.asarray(result["targets"])).max()
        ax.set(title=title, xlim=(float(x.min()), float(x.max())), ylim=(-highest, highest))
        ax.legend().remove()


def _draw_maps(figure: Figure, row: Sequence[Axes], results: Sequence[Result], name: str) -> None:
    """One scale of colour for the row, so that panels are alike in width and meaning."""
    values = [_numbers(result[f"log10_{name}_variance"]) for result in results]
    low, high = np.nanpercentile(np.concatenate([np.ravel(v) for v in values]), (5, 100))
    for ax, table, result in zip(row, values, results, strict=True):
        steps = _numbers(result["steps"])
        # Shares of the training, because lengths differ; the ticks say the steps.
        plot_training_map(
            table, _numbers(result["x"]), steps / steps[-1], log10=False, colorbar=False, ax=ax,
            vmin=low, vmax=high,
        )  # fmt: skip
        ax.set_ylabel("share of training")
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.0%}"))
    mappable = row[0].collections[0]
    figure.colorbar(mappable, ax=list(row), label=f"log10 {MAPS[name]}", extend="min")


def _draw_last_kl(row: Sequence[Axes], results: Sequence[Result], truth: Truth) -> None:
    mean, std = (jnp.asarray(array) for array in truth)
    for ax, result in zip(row, results, strict=True):
        x = _numbers(result["x"])
        kl = np.log10(np.asarray(local_kl_variance(Gaussian.from_std(mean, std), x, radius=0.5)))
        ax.plot(x, _numbers(result["log10_kl_variance"])[-1], label="at the end")
        ax.plot(x, kl, linestyle="--", label="of the truth")
        ax.set_ylabel("log10 KL variance")


def _numbers(values: Any) -> Array:
    """JSON's null is nan."""
    return jnp.asarray(np.array(values, dtype=float))
