"""Methods against two scores at once: means as stars, spread as covariance ellipses."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES = ("-", "--", "-.", ":")  # colours alone would be lost in grey print


def plot_pareto_panels(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    axes: Sequence[Axes],
    *,
    names: tuple[str, str],
    upper: tuple[float, float],
) -> None:
    """Draws runs, the mean of every method as a star, and its 1-sigma covariance ellipse.

    Towards the lower left is better. The ellipse has the half-axes `sqrt(eigenvalue)` of the sample
    covariance; it needs three runs. No run is lost silently: runs beyond `upper`, infinite or nan
    are triangles at the edge, count there in star and ellipse, and each panel states their number.

    Args:
        panels: for every panel, such as a learning rate, and every method an array (runs, 2).
        axes: one for each panel.
        names: of the two scores.
        upper: the largest value of each score that is drawn where it is.
    """
    colors = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for ax, (title, scores) in zip(axes, panels.items(), strict=True):
        notes = []
        for k, (method, runs) in enumerate(scores.items()):
            style = {"color": colors[k], "linestyle": LINES[k % 4]}
            at_edge = _draw_runs(ax, runs, upper, style, MARKERS[k], method)
            notes += [f"{method}, {at_edge} of {len(runs)} at the edge"] if at_edge else []
        place: dict[str, Any] = {"transform": ax.transAxes, "ha": "right", "va": "bottom"}
        ax.text(0.98, 0.02, "\n".join(notes), **place, fontsize="x-small")
        ax.set(title=title, xlabel=names[0])
        ax.sharex(axes[0])
        ax.sharey(axes[0])
    axes[0].set_ylabel(names[1])
    axes[0].autoscale()
    axes[0].figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(LINES)
    )


def _draw_runs(
    ax: Axes,
    runs: np.ndarray,
    upper: tuple[float, float],
    style: dict[str, Any],
    marker: str,
    label: str,
) -> int:
    """The runs of one method; how many of them lie at the edge."""
    is_beyond = ~(runs <= np.asarray(upper))  # nan is beyond, too
    drawn = np.where(is_beyond, upper, runs)
    at_edge = is_beyond.any(axis=1)
    dots: dict[str, Any] = {"color": style["color"], "linewidths": 0}
    x, y = drawn.T
    ax.scatter(x[~at_edge], y[~at_edge], marker=marker, s=14, alpha=0.55, **dots)
    ax.scatter(x[at_edge], y[at_edge], marker="^", s=40, alpha=0.9, clip_on=False, **dots)
    if len(drawn) >= 3:
        ax.add_patch(_ellipse(drawn, style))
    ax.plot(
        *drawn.mean(axis=0), **style, marker="*", markersize=12, markeredgecolor="black",
        markeredgewidth=0.8, zorder=3, label=label,
    )  # fmt: skip
    return int(at_edge.sum())


def _ellipse(runs: np.ndarray, style: dict[str, Any]) -> Ellipse:
    """The set of points one standard deviation from the mean along every direction."""
    variances, directions = np.linalg.eigh(np.cov(runs.T))
    half_axes = np.sqrt(np.maximum(variances, 0))  # rounding can make a flat one negative
    angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
    return Ellipse(
        tuple(runs.mean(axis=0)), 2 * half_axes[1], 2 * half_axes[0], angle=angle, fill=False,
        edgecolor=style["color"], linestyle=style["linestyle"], linewidth=1.4,
    )  # fmt: skip
