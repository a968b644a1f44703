"""Methods against two scores at once: means as stars, spread as covariance ellipses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from fisher8_jax.plots._style import (
    axes_grid,
    current_axes,
    finish,
    legend_above_data,
    merged,
    style_of,
)


def plot_pareto(
    scores: Mapping[str, ArrayLike],
    *,
    names: tuple[str, str] = ("RMSE", "NLL"),
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws runs, the mean of every method as a star, and its 1-sigma covariance ellipse.

    Towards the lower left is better on both axes. The ellipse has the half-axes
    `sqrt(eigenvalue)` of the sample covariance; it needs three runs. Runs that are not finite are
    not drawn, and the legend states their number.

    Args:
        scores: for every method an array of shape (runs, 2), smaller is better.
        names: of the two scores.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.scatter` for the runs.

    Returns:
        The axes.

    Example:
        >>> import jax.numpy as jnp
        >>> from matplotlib.figure import Figure
        >>> runs = jnp.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
        >>> ax = plot_pareto({"A": runs}, ax=Figure().subplots())
        >>> len(ax.patches)
        1
    """
    ax = current_axes(ax)
    for position, (method, values) in enumerate(scores.items()):
        runs = _check_runs(method, values)
        finite = runs[np.isfinite(runs).all(axis=1)]
        bad = len(runs) - len(finite)
        label = method if bad == 0 else f"{method}, {bad} of {len(runs)} not finite"
        style = style_of(position)
        if not len(finite):
            ax.plot([], [], marker="*", linestyle="none", color=style["color"], label=label)
            continue
        dots = {"color": style["color"], "marker": style["marker"], "s": 14, "alpha": 0.55}
        dots["linewidths"] = 0
        aliases = (("c", "color"), ("linewidth", "linewidths"))
        ax.scatter(*finite.T, **merged(dots, kwargs, aliases))
        if len(finite) >= 3:
            ax.add_patch(_ellipse(finite, style))
        ax.plot(
            *finite.mean(axis=0), marker="*", markersize=12, linestyle=style["linestyle"],
            color=style["color"], markeredgecolor="black", markeredgewidth=0.8, zorder=3,
            label=label,
        )  # fmt: skip
    ax.autoscale_view()
    return finish(ax, *names)


def plot_pareto_panels(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    names: tuple[str, str] = ("RMSE", "NLL"),
    axes: np.ndarray | Sequence[Axes] | None = None,
    **kwargs: Any,
) -> np.ndarray:
    """Draws one `plot_pareto` per panel, side by side on shared scales, with one legend.

    Args:
        panels: for every panel, such as a learning rate, the scores of `plot_pareto`.
        names: of the two scores.
        axes: as many Axes as panels, by default a new row of them.
        **kwargs: of `Axes.scatter` for the runs.

    Returns:
        The axes, one per panel.

    Example:
        >>> import jax.numpy as jnp
        >>> from matplotlib.figure import Figure
        >>> runs = jnp.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
        >>> panels = {"lr 0.1": {"A": runs}, "lr 1": {"A": runs + 1}}
        >>> axes = plot_pareto_panels(panels, axes=Figure().subplots(1, 2))
        >>> [ax.get_title() for ax in axes]
        ['lr 0.1', 'lr 1']
    """
    grid = axes_grid(axes, 1, len(panels), size=(3.2, 3.2))[0]
    for ax, (title, scores) in zip(grid, panels.items(), strict=True):
        plot_pareto(scores, names=names, ax=ax, **kwargs)
        ax.set_title(title)
        ax.get_legend().remove()
    for ax in grid[1:]:
        ax.sharex(grid[0])
        ax.sharey(grid[0])
        ax.set_ylabel("")
    grid[0].autoscale()
    legend_above_data(grid[0])
    return grid


def _check_runs(method: str, values: ArrayLike) -> np.ndarray:
    runs = np.asarray(values, np.float64)
    if runs.ndim != 2 or runs.shape[1] != 2:
        raise ValueError(
            f"`scores[{method!r}]` must have shape (runs, 2), one column per score, "
            f"got {runs.shape}."
        )
    return runs


def _ellipse(runs: np.ndarray, style: dict[str, Any]) -> Ellipse:
    """The set of points one standard deviation from the mean along every direction."""
    variances, directions = np.linalg.eigh(np.cov(runs.T))
    half_axes = np.sqrt(np.maximum(variances, 0))  # rounding can make a flat one negative
    angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
    return Ellipse(
        tuple(runs.mean(axis=0)), 2 * half_axes[1], 2 * half_axes[0], angle=angle, fill=False,
        edgecolor=style["color"], linestyle=style["linestyle"], linewidth=1.4,
    )  # fmt: skip
