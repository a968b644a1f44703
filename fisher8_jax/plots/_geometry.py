"""The picture of the paper: equal steps for Euclid, and equal steps for the Fisher information."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from fisher8_jax._internal.checks import check_positive
from fisher8_jax.families import Gaussian
from fisher8_jax.plots._style import BLACK, GREY, LINES, MARKERS, axes_grid

_DIRECTIONS = 8
# Eight colours that stay apart on white, in the order of the directions.
_WHEEL = ("#0072B2", "#56B4E9", "#009E73", "#8A8D00", "#E69F00", "#D55E00", "#CC79A7", "#000000")


def geometry_steps(log_variance: float, *, max_kl: float) -> tuple[np.ndarray, np.ndarray]:
    """Eight steps on a Euclidean circle and eight on the Fisher ellipse, in (mean, log_variance).

    On the ellipse every step has the quadratic divergence `max_kl`:

        (d_mean^2 / variance + d_log_variance^2 / 2) / 2 = max_kl

    The circle has the radius at which the same divergence is the average over all directions.

    Args:
        log_variance: of the Gaussian that is left; its mean does not matter.
        max_kl: divergence of a step, in nats.

    Returns:
        Two arrays of shape (8, 2), counter-clockwise from the direction of a growing mean.

    Example:
        >>> circle, ellipse = geometry_steps(0.0, max_kl=0.5)
        >>> ellipse[0].round(3).tolist(), ellipse[2].round(3).tolist()
        ([1.0, 0.0], [0.0, 1.414])
    """
    variance = math.exp(log_variance)
    angle = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    radius = math.sqrt(4 * max_kl / (1 / variance + 0.5))
    ellipse = np.sqrt(2 * max_kl) * unit * np.array([[math.sqrt(variance), math.sqrt(2)]])
    return radius * unit, ellipse


def plot_geometry(
    mean: float = 0.0,
    log_variance: float = -1.5,
    *,
    max_kl: float = 0.05,
    axes: np.ndarray | Sequence[Axes] | None = None,
    **kwargs: Any,
) -> np.ndarray:
    """Draws eight steps of equal Euclidean length and eight of equal Fisher length, side by side.

    Per row: the steps in the plane of the parameters, the densities they lead to, and the exact
    divergence from the start. Equal lengths for Euclid are unequal changes of the distribution;
    equal Fisher lengths change it alike in all directions.

    Args:
        mean: of the Gaussian that is left.
        log_variance: of the Gaussian that is left.
        max_kl: quadratic divergence of the Fisher steps, in nats, and mean of the Euclidean ones.
        axes: six Axes, two rows of three, by default a new figure.
        **kwargs: of `Axes.plot` for the densities.

    Returns:
        The axes, an array of shape (2, 3).

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_geometry(axes=Figure().subplots(2, 3))
        >>> axes.shape, len(axes[1, 2].patches)
        ((2, 3), 8)
    """
    check_positive("max_kl", max_kl)
    grid = axes_grid(axes, 2, 3, size=(3.4, 2.9))
    steps = geometry_steps(log_variance, max_kl=max_kl)
    for row, moves, title in zip(grid, steps, ("Euclidean circle", "Fisher ellipse"), strict=True):
        ends = np.array([[mean, log_variance]]) + moves
        _draw_plane(row[0], mean, log_variance, moves, title)
        _draw_densities(row[1], mean, log_variance, ends, kwargs)
        _draw_divergences(row[2], mean, log_variance, ends, max_kl)
    reach = 1.25 * float(np.abs(np.stack(steps)).max())
    for ax in grid[:, 0]:  # equal units, or a circle would not look like one
        ax.set(xlim=(mean - reach, mean + reach), aspect="equal")
        ax.set_ylim(log_variance - reach, log_variance + reach)
    for column in (1, 2):  # the rows are there to be compared
        top = 1.08 * max(ax.dataLim.y1 for ax in grid[:, column])
        for ax in grid[:, column]:
            ax.set_ylim(0, top)
    return grid


def _draw_plane(ax: Axes, mean: float, log_variance: float, moves: np.ndarray, title: str) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    # The half-axes are the first and the third step: east and north.
    ax.plot(
        mean + moves[0, 0] * np.cos(angle), log_variance + moves[2, 1] * np.sin(angle),
        color=GREY, linewidth=0.9,
    )  # fmt: skip
    for k, (right, up) in enumerate(moves):
        ax.annotate(
            "", (mean + right, log_variance + up), (mean, log_variance),
            arrowprops={"arrowstyle": "->", "color": _WHEEL[k], "linewidth": 1.5},
        )  # fmt: skip
        ax.plot(mean + right, log_variance + up, linestyle="none", marker=MARKERS[k],
                color=_WHEEL[k], markersize=5)  # fmt: skip
        ax.annotate(
            str(k + 1), (mean + right, log_variance + up), (9 * np.cos(k * np.pi / 4),
            9 * np.sin(k * np.pi / 4)), textcoords="offset points", ha="center", va="center",
            fontsize="small",
        )  # fmt: skip
    ax.plot(mean, log_variance, marker="o", color=BLACK, markersize=4)
    ax.set(xlabel="mean", ylabel="log-variance", title=title)


def _draw_densities(
    ax: Axes, mean: float, log_variance: float, ends: np.ndarray, kwargs: dict[str, Any]
) -> None:
    std = math.exp(0.5 * log_variance)
    y = np.linspace(mean - 3.5 * std, mean + 3.5 * std, 300)

    def density(mu: float, s: float) -> np.ndarray:
        return np.exp(-0.5 * (y - mu) ** 2 * math.exp(-s) - 0.5 * s) / math.sqrt(2 * math.pi)

    ax.fill_between(y, density(mean, log_variance), color="0.88", linewidth=0)
    for k, (mu, s) in enumerate(ends):
        style = {"color": _WHEEL[k], "linestyle": LINES[k], "linewidth": 1.4}
        ax.plot(y, density(mu, s), **{**style, "label": str(k + 1), **kwargs})
    ax.set(xlabel="target", ylabel="density", title="densities after the step")
    ax.legend(frameon=False, fontsize="x-small", loc="upper left", handlelength=3.6)


def _draw_divergences(
    ax: Axes, mean: float, log_variance: float, ends: np.ndarray, max_kl: float
) -> None:
    start = Gaussian(jnp.full(_DIRECTIONS, mean), jnp.full(_DIRECTIONS, log_variance))
    divergence = np.asarray(start.kl(Gaussian(jnp.asarray(ends[:, 0]), jnp.asarray(ends[:, 1]))))
    hatches = ("", "//", "\\\\", "xx", "..", "--", "||", "")
    numbers = [str(k + 1) for k in range(_DIRECTIONS)]
    bars = ax.bar(numbers, divergence, color=_WHEEL, edgecolor="white", linewidth=0.5)
    for bar, hatch in zip(bars, hatches, strict=True):
        bar.set_hatch(hatch)
    ax.axhline(max_kl, color=GREY, linestyle="--", linewidth=1)
    ax.set(xlabel="direction", ylabel="KL in nats", title="divergence from the start")
