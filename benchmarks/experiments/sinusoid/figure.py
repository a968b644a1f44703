"""Fits and maps over training of one setting, one column a method, the last the truth."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from benchmarks.experiments.sinusoid.plan import BALL, true_mean
from benchmarks.machinery.figures import to_png
from benchmarks.machinery.local_variance import local_jacobian_variance, local_kl_variance
from fisher8_jax import Gaussian
from fisher8_jax.plots import plot_fit

Result = Mapping[str, Any]
Truth = tuple[np.ndarray, np.ndarray]

MAPS = {"jacobian": "Jacobian variance", "kl": "KL variance"}


def diverged(result: Result) -> bool:
    """Whether the last prediction is not finite, so that there is no fit to draw."""
    return not np.isfinite(_numbers(result["mean"])).all()


def sinusoid_figure(results: Mapping[str, Result], truth: Truth) -> bytes:
    """The published figure: fit, Jacobian variance and KL variance; the last column is the oracle.

    Args:
        results: the result of every column, by its title. One that diverged shows its maps up to
            there and says so in place of a fit.
        truth: the true mean and standard deviation at the shown points.
    """
    columns = {**results, "Oracle": oracle(next(iter(results.values())), truth)}
    figure, axes = plt.subplots(
        3, len(columns), figsize=(3.4 * len(columns) + 0.8, 7.4), layout="constrained",
        sharex=True, sharey="row", height_ratios=(1.0, 1.1, 1.1), squeeze=False,
    )  # fmt: skip
    draw_fits(axes[0], columns, truth[0])
    for row, name in zip(axes[1:], MAPS, strict=True):
        _draw_maps(figure, row, list(columns.values()), name)
    figure.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    for ax in axes[-1]:
        ax.set_xlabel("input")
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
    for ax in axes[:, 1:].flat:
        ax.set_ylabel("")
    return to_png(figure, dpi=100)


def oracle(result: Result, truth: Truth) -> Result:
    """The column of the truth: as if a network had predicted it from the first step on.

    A truth has no hidden layer; its Jacobian is that of the true mean itself.
    """
    x = _numbers(result["x"])
    mean, std = (jnp.asarray(array) for array in truth)
    jacobian = local_jacobian_variance(lambda x: true_mean(x, jnp), x[:, None], radius=BALL)
    kl = local_kl_variance(Gaussian.from_std(mean, std), x, radius=BALL)
    times = len(result["steps"])
    return {
        "x": result["x"],
        "targets": result["targets"],
        "steps": result["steps"],
        "mean": mean,
        "std": std,
        "log10_jacobian_variance": np.tile(np.log10(jacobian), (times, 1)),
        "log10_kl_variance": np.tile(np.log10(kl), (times, 1)),
    }


def draw_fits(axes: Sequence[Axes], results: Mapping[str, Result], truth: np.ndarray) -> None:
    """Bands, targets and the true mean, one panel a result; the figure has the legend."""
    for ax, (title, result) in zip(axes, results.items(), strict=True):
        x = _numbers(result["x"])
        highest = 1.1 * np.abs(np.asarray(result["targets"])).max()
        ax.set(title=title, xlim=(float(x.min()), float(x.max())), ylim=(-highest, highest))
        if diverged(result):
            ax.set_ylabel("target")
            ax.text(0.5, 0.5, "diverged", transform=ax.transAxes, ha="center", va="center")
            continue
        dist = Gaussian.from_std(_numbers(result["mean"]), _numbers(result["std"]))
        plot_fit(dist, x, _numbers(result["targets"]), truth=jnp.asarray(truth), ax=ax)
        ax.set(xlim=(float(x.min()), float(x.max())), ylim=(-highest, highest))
        ax.legend().remove()


def _draw_maps(figure: Figure, row: Sequence[Axes], results: Sequence[Result], name: str) -> None:
    """One scale of colour for the row, so that panels are alike in width and meaning."""
    values = [_numbers(result[f"log10_{name}_variance"]) for result in results]
    low, high = np.nanpercentile(np.concatenate([np.ravel(v) for v in values]), (5, 100))
    for ax, table, result in zip(row, values, results, strict=True):
        x, steps = _numbers(result["x"]), _numbers(result["steps"])
        order = np.argsort(x, kind="stable")
        # Shares of the training, because lengths differ; the ticks say the steps.
        ax.pcolormesh(
            x[order], steps / steps[-1], np.ma.masked_invalid(table[:, order]), vmin=low, vmax=high,
            cmap="cividis", shading="nearest", rasterized=True,
        )  # fmt: skip
        ax.set_ylabel("share of training")
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.0%}"))
    mappable = row[-1].collections[0]
    figure.colorbar(mappable, ax=list(row), label=f"log10 {MAPS[name]}", extend="min")


def _numbers(values: Any) -> Array:
    """JSON's null is nan."""
    return jnp.asarray(np.array(values, dtype=float))
