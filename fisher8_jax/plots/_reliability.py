"""Are predictions honest? Their PIT, intervals and residuals against what was observed."""

from typing import Any

import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fisher8_jax._internal.checks import check_count, check_level
from fisher8_jax._points import prepare
from fisher8_jax.families import Predictive
from fisher8_jax.plots._style import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    Keywords,
    current_axes,
    drawn_targets,
    finish,
    merged,
    percent,
)

_TWO_SIDED_95 = 1.959963984540054  # standard normal quantile of 0.975
_BAND = "95 % band of a calibrated model"


def plot_reliability(
    dist: Predictive,
    targets: Array,
    *,
    where: Array | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws the share of targets below each predicted quantile against its probability.

    The diagonal is right. An S shape that is flat in the middle is overconfident, one that is steep
    in the middle has too large a variance, and a curve on one side is biased. Targets with a
    non-finite prediction lie below no quantile; the legend states their number.

    Args:
        dist: predictions, batch shape (points,); any continuous family, where the PIT is drawn.
        targets: observed values.
        where: boolean, False for points that do not count.
        ax: axes to draw into, by default the current ones. Call again to add a model.
        **kwargs: of `Axes.plot` for the curve.

    Returns:
        The axes.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from matplotlib.figure import Figure
        >>> dist, targets = Gaussian(jnp.zeros(9), jnp.zeros(9)), jnp.linspace(-1.0, 1.0, 9)
        >>> ax = plot_reliability(dist, targets, ax=Figure().subplots())
        >>> ax.get_xlabel()
        'predicted probability'
    """
    ranks, number = _finite_ranks(dist, targets, where)
    ax = current_axes(ax)
    if not ax.lines:
        grid = np.linspace(0, 1, 101)
        error = _TWO_SIDED_95 * np.sqrt(grid * (1 - grid) / number)
        ax.fill_between(grid, grid - error, grid + error, color="0.85", label=_BAND)
        ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
    share = np.arange(ranks.size + 1) / number
    line = {"color": BLUE, "linewidth": 1.6, "label": _label("model", number, ranks)}
    curve = (np.concatenate([[0], ranks, [1]]), np.append(share, share[-1]))
    aliases = (("c", "color"), ("lw", "linewidth"))
    ax.plot(*curve, drawstyle="steps-post", **merged(line, kwargs, aliases))
    ax.set(xlim=(0, 1), aspect="equal", yticks=np.linspace(0, 1, 6))
    ax.set_ylim(0, 1, auto=None)
    return finish(ax, "predicted probability", "observed frequency")


def plot_pit(
    dist: Predictive,
    targets: Array,
    *,
    bins: int = 10,
    where: Array | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws the histogram of the probability integral transform.

    Level bars are right. A valley is overconfident, a hill has too large a variance, a slope is a
    biased mean. Other arguments are those of `plot_reliability`.

    Args:
        bins: number of equal bins; 10 are those of the paper's ECE.
        **kwargs: of `Axes.bar` for the bars.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from matplotlib.figure import Figure
        >>> dist, targets = Gaussian(jnp.zeros(9), jnp.zeros(9)), jnp.linspace(-1.0, 1.0, 9)
        >>> ax = plot_pit(dist, targets, bins=3, ax=Figure().subplots())
        >>> [round(float(bar.get_height()), 3) for bar in ax.containers[0]]
        [0.333, 0.333, 0.333]
    """
    bins = check_count("bins", bins)
    ranks, number = _finite_ranks(dist, targets, where)
    ax = current_axes(ax)
    counts, edges = np.histogram(ranks, bins=bins, range=(0, 1))
    expected = 1 / bins
    error = _TWO_SIDED_95 * np.sqrt(expected * (1 - expected) / number)
    bars = {"facecolor": "#56B4E966", "edgecolor": BLUE, "label": _label("model", number, ranks)}
    aliases = (("fc", "facecolor"), ("color", "facecolor"), ("ec", "edgecolor"))
    ax.bar(
        edges[:-1], counts / number, width=1 / bins, align="edge", **merged(bars, kwargs, aliases)
    )
    low, high = max(0, expected - error), expected + error
    band: Keywords = {"color": "0.85", "linewidth": 0, "zorder": 0.5}
    ax.axhspan(low, high, label=_BAND, **band)
    ax.axhline(expected, color=GREY, linestyle="--", linewidth=1)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02 * max(high, *counts / number), auto=None)
    return finish(ax, "PIT", "share of targets")


def _finite_ranks(dist: Predictive, targets: Array, where: Array | None) -> tuple[np.ndarray, int]:
    """Sorted PIT values of finite predictions, and the number of all points that count."""
    _, drawn = drawn_targets(dist, targets, where)
    ranks = np.asarray(prepare(dist, targets, None, ()).pit, np.float64)[drawn]
    return np.sort(ranks[np.isfinite(ranks)]), ranks.size


def _label(name: str, number: int, ranks: np.ndarray) -> str:
    bad = number - ranks.size
    return name if bad == 0 else f"{name}, {bad} of {number} not finite"


def plot_intervals(
    dist: Predictive,
    targets: Array,
    *,
    level: float = 0.9,
    where: Array | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws central intervals around the mean, sorted by width, and the residuals in them.

    Residuals inside are dots, those outside are crosses; the legend states their share. Crosses
    should be spread evenly: many on the left mean that small variances are not to be trusted. Other
    arguments are those of `plot_reliability`.

    Args:
        level: of the intervals.
        **kwargs: of `Axes.fill_between` for the intervals.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from matplotlib.figure import Figure
        >>> dist, targets = Gaussian(jnp.zeros(4), jnp.zeros(4)), jnp.array([0.0, 1.0, 3.0, 1.0])
        >>> ax = plot_intervals(dist, targets, ax=Figure().subplots())
        >>> ax.get_legend_handles_labels()[1]
        ['90 % interval', 'inside', 'outside, 25 %']
    """
    check_level("level", level)
    _, drawn = drawn_targets(dist, targets, where)
    centre = np.asarray(dist.center, np.float64)
    low, high = (np.asarray(end, np.float64) - centre for end in dist.interval(level))
    ax = current_axes(ax)
    order = np.flatnonzero(drawn)[np.argsort((high - low)[drawn], kind="stable")]
    rank, residual = np.arange(order.size), np.asarray(dist.residual(targets), np.float64)[order]
    low, high = low[order], high[order]
    band = {"color": "#BBD9EC", "linewidth": 0, "label": f"{percent(level)} interval"}
    aliases = (("facecolor", "color"), ("fc", "color"), ("lw", "linewidth"))
    ax.fill_between(rank, low, high, step="mid", **merged(band, kwargs, aliases))
    ax.axhline(0, color=GREY, linewidth=0.8)
    outside = ~((low <= residual) & (residual <= high))
    ax.plot(rank[~outside], residual[~outside], ".", markersize=3, color=BLUE, label="inside")
    label = f"outside, {percent(float(outside.mean()))}"
    ax.plot(rank[outside], residual[outside], "x", markersize=5, color=VERMILLION, label=label)
    return finish(ax, "points, sorted by the width of their interval", "target - mean")


def plot_residuals(
    dist: Predictive,
    targets: Array,
    *,
    groups: int = 10,
    where: Array | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws the size of residuals against the predicted standard deviation, on log axes.

    The diamonds are root mean squares over groups of equal size, with two standard errors for
    normal residuals. They should lie on the line. Above it the model is overconfident. Other
    arguments are those of `plot_reliability`.

    Args:
        groups: number of groups along the predicted standard deviation.
        **kwargs: of `Axes.plot` for the dots.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist = Gaussian(jnp.zeros(8), jnp.linspace(-1.0, 1.0, 8))
        >>> from matplotlib.figure import Figure
        >>> ax = plot_residuals(dist, jnp.ones(8), groups=2, ax=Figure().subplots())
        >>> ax.get_xscale(), ax.get_yscale()
        ('log', 'log')
    """
    _, drawn = drawn_targets(dist, targets, where)
    groups = check_count("groups", groups)
    std = np.asarray(dist.std, np.float64)
    size = np.abs(np.asarray(dist.residual(targets), np.float64))
    keep = drawn & np.isfinite(std) & np.isfinite(size) & (std > 0)
    std, size = std[keep], size[keep]
    ax = current_axes(ax)
    dots = {"linestyle": "none", "marker": ".", "markersize": 3, "color": BLUE, "alpha": 0.5}
    # Zeros have no place on a log axis; they still count in the groups.
    shown = size > 0
    aliases = (("c", "color"), ("ms", "markersize"))
    ax.plot(std[shown], size[shown], **merged({**dots, "label": "residuals"}, kwargs, aliases))
    ends = np.array([std.min(), std.max()]) if std.size else np.ones(2)
    ax.plot(ends, ends, color=GREY, linestyle="--", label="right on average")
    parts = np.array_split(np.argsort(std, kind="stable"), min(groups, std.size))
    centres = [np.sqrt(np.mean(std[part] ** 2)) for part in parts if part.size]
    roots = [np.sqrt(np.mean(size[part] ** 2)) for part in parts if part.size]
    # The relative error of a root mean square of n normal values is 1 / sqrt(2 n).
    errors = [2 * r / np.sqrt(2 * part.size) for r, part in zip(roots, parts, strict=True)]
    ax.errorbar(
        centres, roots, yerr=errors, color=BLACK, marker="D", markersize=5, markerfacecolor="white",
        linestyle="none", capsize=2, zorder=3, label="root mean square of a group",
    )  # fmt: skip
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    return finish(ax, "predicted standard deviation", "|target - mean|")
