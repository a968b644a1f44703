"""Is the predicted probability the observed frequency? Two pictures of the PIT.

The grey bands show where a calibrated model lies with probability 95 % at each place, given the
number of targets. A curve that leaves the band somewhere is not yet wrong; one that stays out is.
"""

from typing import Any

import numpy as np
from jax import Array
from matplotlib.axes import Axes

from fisher8_jax._internal.checks import check_count
from fisher8_jax.families import Predictive
from fisher8_jax.metrics import pit
from fisher8_jax.plots._plot_checks import drawn_targets
from fisher8_jax.plots._style import BLUE, GREY, current_axes, finish, merged

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
        dist: predictions, batch shape (points,), any continuous family.
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
    biased mean.

    Args:
        dist: predictions, batch shape (points,), any continuous family.
        targets: observed values.
        bins: number of equal bins; 10 are those of the paper's ECE.
        where: boolean, False for points that do not count.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.bar` for the bars.

    Returns:
        The axes.

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
    band: dict[str, Any] = {"color": "0.85", "linewidth": 0, "zorder": 0.5}
    ax.axhspan(low, high, label=_BAND, **band)
    ax.axhline(expected, color=GREY, linestyle="--", linewidth=1)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02 * max(high, *counts / number), auto=None)
    return finish(ax, "PIT", "share of targets")


def _finite_ranks(dist: Predictive, targets: Array, where: Array | None) -> tuple[np.ndarray, int]:
    """Sorted PIT values of finite predictions, and the number of all points that count."""
    _, drawn = drawn_targets(dist, targets, where)
    ranks = np.asarray(pit(dist, targets), np.float64)[drawn]
    return np.sort(ranks[np.isfinite(ranks)]), ranks.size


def _label(name: str, number: int, ranks: np.ndarray) -> str:
    bad = number - ranks.size
    return name if bad == 0 else f"{name}, {bad} of {number} not finite"
