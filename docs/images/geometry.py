"""The picture of the theory page: steps of equal Euclidean length, and of equal Fisher length.

Per row: eight steps in the plane of the parameters, the densities they lead to, and the exact
divergence from the start.
"""

import math
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from benchmarks.machinery.figures import style
from fisher8_jax import Gaussian

MEAN, LOG_VARIANCE, MAX_KL = 0.0, -1.5, 0.05
# Eight colours that stay apart on white, in the order of the directions, and what else differs.
WHEEL = ("#0072B2", "#56B4E9", "#009E73", "#8A8D00", "#E69F00", "#D55E00", "#CC79A7", "#000000")
MARKERS = "os^Dv<>p"
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 2, 1, 2)))
TITLES = ("Euclidean circle", "Fisher ellipse")
HATCHES = ("", "//", "\\\\", "xx", "..", "--", "||", "")


def steps() -> tuple[np.ndarray, np.ndarray]:
    """On a circle, and on the ellipse of quadratic divergence `MAX_KL`; shape (8, 2) each.

    The circle has the radius at which the same divergence is the average over all directions.
    """
    variance = math.exp(LOG_VARIANCE)
    angle = 2 * np.pi * np.arange(8) / 8
    unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    radius = math.sqrt(4 * MAX_KL / (1 / variance + 0.5))
    ellipse = np.sqrt(2 * MAX_KL) * unit * np.array([[math.sqrt(variance), math.sqrt(2)]])
    return radius * unit, ellipse


def make(path: Path) -> None:
    """Draws both rows."""
    with style():
        figure, grid = plt.subplots(2, 3, figsize=(10.2, 5.8))
        both = steps()
        for row, moves, title in zip(grid, both, TITLES, strict=True):
            ends = np.array([[MEAN, LOG_VARIANCE]]) + moves
            draw_plane(row[0], moves, title)
            draw_densities(row[1], ends)
            draw_divergences(row[2], ends)
        reach = 1.25 * float(np.abs(np.stack(both)).max())
        for ax in grid[:, 0]:  # equal units, or a circle would not look like one
            ax.set(xlim=(MEAN - reach, MEAN + reach), aspect="equal")
            ax.set_ylim(LOG_VARIANCE - reach, LOG_VARIANCE + reach)
        for column in (1, 2):  # the rows are there to be compared
            top = 1.08 * max(ax.dataLim.y1 for ax in grid[:, column])
            for ax in grid[:, column]:
                ax.set_ylim(0, top)
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)


def draw_plane(ax: Axes, moves: np.ndarray, title: str) -> None:
    """The steps as arrows, with the curve that they end on."""
    angle = np.linspace(0, 2 * np.pi, 200)
    across, along = MEAN + moves[0, 0] * np.cos(angle), LOG_VARIANCE + moves[2, 1] * np.sin(angle)
    ax.plot(across, along, color="0.55", linewidth=0.9)
    for k, (right, up) in enumerate(moves):
        end, color = (MEAN + right, LOG_VARIANCE + up), WHEEL[k]
        arrow = {"arrowstyle": "->", "color": color, "linewidth": 1.5}
        ax.annotate("", end, (MEAN, LOG_VARIANCE), arrowprops=arrow)
        ax.plot(*end, linestyle="none", marker=MARKERS[k], color=color, markersize=5)
        beside = (9 * np.cos(k * np.pi / 4), 9 * np.sin(k * np.pi / 4))
        place = {"ha": "center", "va": "center", "fontsize": "small"}
        ax.annotate(str(k + 1), end, beside, textcoords="offset points", **place)
    ax.plot(MEAN, LOG_VARIANCE, marker="o", color="black", markersize=4)
    ax.set(xlabel="mean", ylabel="log-variance", title=title)


def draw_densities(ax: Axes, ends: np.ndarray) -> None:
    """The densities after each step, and the one before in grey."""
    std = math.exp(0.5 * LOG_VARIANCE)
    y = np.linspace(MEAN - 3.5 * std, MEAN + 3.5 * std, 300)

    def density(mean: float, log_variance: float) -> np.ndarray:
        square = (y - mean) ** 2 * math.exp(-log_variance)
        return np.exp(-0.5 * (square + log_variance)) / math.sqrt(2 * math.pi)

    ax.fill_between(y, density(MEAN, LOG_VARIANCE), color="0.88", linewidth=0)
    for k, end in enumerate(ends):
        ax.plot(y, density(*end), color=WHEEL[k], linestyle=LINES[k], label=str(k + 1))
    ax.set(xlabel="target", ylabel="density", title="densities after the step")
    ax.legend(fontsize="x-small", loc="upper left", handlelength=3.6)


def draw_divergences(ax: Axes, ends: np.ndarray) -> None:
    """The exact divergence of each step."""
    start = Gaussian(jnp.full(8, MEAN), jnp.full(8, LOG_VARIANCE))
    divergence = np.asarray(start.kl(Gaussian(*jnp.asarray(ends.T))))
    numbers = [str(k + 1) for k in range(8)]
    bars = ax.bar(numbers, divergence, color=WHEEL, edgecolor="white", linewidth=0.5)
    for bar, hatch in zip(bars, HATCHES, strict=True):
        bar.set_hatch(hatch)
    ax.axhline(MAX_KL, color="0.55", linestyle="--", linewidth=1)
    ax.set(xlabel="direction", ylabel="KL in nats", title="divergence from the start")
