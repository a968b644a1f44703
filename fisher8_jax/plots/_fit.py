"""A fit along one input, or along the prediction where there are several inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from matplotlib.axes import Axes

from fisher8_jax._internal.checks import check_levels
from fisher8_jax.families import Predictive
from fisher8_jax.plots._style import (
    BLACK,
    BLUE,
    VERMILLION,
    Keywords,
    check_inputs_1d,
    check_one_target,
    current_axes,
    drawn_targets,
    finish,
    merged,
    percent,
)


def plot_fit(
    dist: Predictive,
    inputs: Array,
    targets: Array | None = None,
    *,
    truth: Array | None = None,
    levels: Sequence[float] = (0.683, 0.954),
    where: Array | None = None,
    feature: int | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws the predicted mean with central intervals along the input.

    With one input the intervals are bands. With several, neighbours along one of them differ in the
    others, so a band would be a lie: every point gets an interval of its own, along the predicted
    mean or, if `feature` is given, along that input.

    Args:
        dist: predictions at `inputs`, batch shape (points,), any family.
        inputs: one number per prediction, in any order; or one row, shape (points, features).
        targets: observed values at `inputs`, drawn as dots.
        truth: the true function at `inputs`, drawn as a dashed line.
        levels: of the bands, the widest is the palest.
        where: boolean, False for targets that are not drawn.
        feature: of several, the input to draw along; by default the predicted mean.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.plot` for the line of the mean.

    Returns:
        The axes.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> x = jnp.linspace(0.0, 1.0, 20)
        >>> from matplotlib.figure import Figure
        >>> ax = plot_fit(Gaussian(jnp.sin(x), x - 3), x, ax=Figure().subplots())
        >>> ax.get_ylabel()
        'target'
    """
    number = check_one_target(dist)
    rows = np.asarray(inputs)
    if rows.ndim == 2 and rows.shape[0] == number and rows.shape[1] > 1:
        if truth is not None:
            raise ValueError(
                "`truth` is a line along one input, but `inputs` has several. Leave it out."
            )
        x, label = _chosen(dist, rows, feature)
        return _plot_points(dist, x, label, targets, levels, where, current_axes(ax), kwargs)
    if feature is not None:
        raise ValueError(
            f"`feature` chooses one of several inputs, got {feature} with `inputs` of shape "
            f"{rows.shape}. Leave it out."
        )
    x = check_inputs_1d(inputs, number)
    ax = current_axes(ax)
    order = np.argsort(x, kind="stable")
    for level in sorted(check_levels(levels), reverse=True):
        low, high = np.asarray(dist.interval(level), np.float64)
        alpha = 0.15 + 0.25 * (1 - level)
        edges: Keywords = {"color": BLUE, "linewidth": 0.6}
        edges["linestyle"] = ":" if level > 0.9 else "--"
        ax.fill_between(
            x[order], low[order], high[order], color=BLUE, alpha=alpha, linewidth=0,
            label=f"{percent(level)} interval",
        )  # fmt: skip
        ax.plot(x[order], low[order], **edges)
        ax.plot(x[order], high[order], **edges)
    if targets is not None:
        y, drawn = drawn_targets(dist, targets, where)
        dots: Keywords = {"markersize": 3, "color": "0.25", "zorder": 1.5}
        ax.plot(x[drawn], y[drawn], ".", label="targets", **dots)
    if truth is not None:
        true = check_inputs_1d(truth, number, "truth")
        ax.plot(x[order], true[order], color=VERMILLION, linestyle=(0, (4, 2)), label="truth")
    line = {"color": BLACK, "linewidth": 1.6, "label": "mean", "zorder": 2.5}
    mean = np.asarray(dist.center, np.float64)
    ax.plot(x[order], mean[order], **merged(line, kwargs, (("c", "color"), ("lw", "linewidth"))))
    return finish(ax, "input", "target")


# More intervals than this hide each other.
_MOST_INTERVALS = 150


def _chosen(dist: Predictive, rows: np.ndarray, feature: int | None) -> tuple[np.ndarray, str]:
    """What to draw along, and its label."""
    if feature is None:
        return np.asarray(dist.center, np.float64), "predicted mean"
    if not 0 <= feature < rows.shape[1]:
        raise ValueError(
            f"`feature` must be the position of one of {rows.shape[1]} inputs, got {feature}."
        )
    return rows[:, feature].astype(np.float64), f"input {feature}"


def _plot_points(
    dist: Predictive,
    x: np.ndarray,
    label: str,
    targets: Array | None,
    levels: Sequence[float],
    where: Array | None,
    ax: Axes,
    kwargs: Keywords,
) -> Axes:
    """An interval of its own for every point, or for evenly chosen ones of many."""
    order = np.argsort(x, kind="stable")
    drawn = order[:: -(-len(order) // _MOST_INTERVALS)]
    for level in sorted(check_levels(levels), reverse=True):
        low, high = np.asarray(dist.interval(level), np.float64)[:, drawn]
        name, width = f"{percent(level)} interval", 1 + 2.5 * (1 - level)
        ax.vlines(x[drawn], low, high, color=BLUE, alpha=0.5, linewidth=width, label=name)
    if targets is not None:
        y, is_drawn = drawn_targets(dist, targets, where)
        rows = drawn[is_drawn[drawn]]
        ax.plot(x[rows], y[rows], ".", markersize=3, color="0.25", zorder=1.5, label="targets")
    dots = {"color": BLACK, "marker": "_", "linestyle": "none", "label": "mean", "zorder": 2.5}
    mean = np.asarray(dist.center, np.float64)
    ax.plot(x[drawn], mean[drawn], **merged(dots, kwargs, (("c", "color"), ("lw", "linewidth"))))
    return finish(ax, label, "target")
