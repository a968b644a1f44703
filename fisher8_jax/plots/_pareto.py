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
    upper: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws runs, the mean of every method as a star, and its 1-sigma covariance ellipse.

    Towards the lower left is better on both axes. The ellipse has the half-axes
    `sqrt(eigenvalue)` of the sample covariance; it needs three runs. No run is lost silently: with
    `upper`, runs beyond it are triangles at the edge and count there in star and ellipse; without,
    runs that are not finite are not drawn. The legend states the number of either.

    Args:
        scores: for every method an array of shape (runs, 2), smaller is better.
        names: of the two scores.
        upper: the largest value of each score that is drawn where it is; runs beyond it, infinite
            or nan move to it. None draws all finite runs.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.scatter` for the runs.

    Returns:
        The axes.

    Example:
        >>> import jax.numpy as jnp
        >>> from matplotlib.figure import Figure
        >>> runs = jnp.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0], [1.0, jnp.inf]])
        >>> ax = plot_pareto({"A": runs}, upper=(4.0, 4.0), ax=Figure().subplots())
        >>> ax.get_legend().get_texts()[0].get_text()
        'A, 1 of 4 at the edge'
    """
    ax = current_axes(ax)
    for position, (method, values) in enumerate(scores.items()):
        runs = _Runs(method, values, upper)
        _draw_runs(ax, runs, style_of(position), f"{method}{runs.note}", kwargs)
    ax.autoscale_view()
    return finish(ax, *names)


def plot_pareto_panels(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    names: tuple[str, str] = ("RMSE", "NLL"),
    upper: tuple[float, float] | None = None,
    axes: np.ndarray | Sequence[Axes] | None = None,
    **kwargs: Any,
) -> np.ndarray:
    """Draws one `plot_pareto` per panel, side by side on shared scales, with one legend.

    Args:
        panels: for every panel, such as a learning rate, the scores of `plot_pareto`.
        names: of the two scores.
        upper: see `plot_pareto`; each panel says how many runs it concerns.
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
        notes = []
        for position, (method, values) in enumerate(scores.items()):
            runs = _Runs(method, values, upper)
            _draw_runs(ax, runs, style_of(position), method, kwargs)
            notes += [f"{method}{runs.note}"] if runs.note else []
        finish(ax, *names)
        ax.set_title(title)
        ax.get_legend().remove()
        if notes:
            place = {"transform": ax.transAxes, "ha": "right", "va": "bottom"}
            ax.text(0.98, 0.02, "\n".join(notes), **place, fontsize="x-small")
    for ax in grid[1:]:
        ax.sharex(grid[0])
        ax.sharey(grid[0])
        ax.set_ylabel("")
    grid[0].autoscale()
    legend_above_data(grid[0])
    return grid


class _Runs:
    """The runs of one method: those inside the picture, at its edge, and left out."""

    def __init__(self, method: str, values: ArrayLike, upper: tuple[float, float] | None):
        runs = _check_runs(method, values)
        is_beyond = np.zeros(runs.shape, bool)
        if upper is not None:
            is_beyond = ~(runs <= np.asarray(upper))  # nan is beyond, too
            runs = np.where(is_beyond, upper, runs)
        is_drawn = np.isfinite(runs).all(axis=1)
        at_edge = is_beyond.any(axis=1) & is_drawn
        self.drawn, self.edge, self.inside = (
            runs[is_drawn],
            runs[at_edge],
            runs[is_drawn & ~at_edge],
        )
        lost = len(runs) - len(self.drawn)
        self.note = f", {len(self.edge)} of {len(runs)} at the edge" if len(self.edge) else ""
        self.note += f", {lost} of {len(runs)} not finite" if lost else ""


def _draw_runs(
    ax: Axes, runs: _Runs, style: dict[str, Any], label: str, kwargs: dict[str, Any]
) -> None:
    if not len(runs.drawn):
        ax.plot([], [], marker="*", linestyle="none", color=style["color"], label=label)
        return
    dots = {"color": style["color"], "marker": style["marker"], "s": 14, "alpha": 0.55}
    dots["linewidths"] = 0
    aliases = (("c", "color"), ("linewidth", "linewidths"))
    ax.scatter(*runs.inside.T, **merged(dots, kwargs, aliases))
    if len(runs.edge):
        edge = {**dots, "marker": "^", "s": 40, "alpha": 0.9, "clip_on": False}
        ax.scatter(*runs.edge.T, **merged(edge, kwargs, aliases))
    if len(runs.drawn) >= 3:
        ax.add_patch(_ellipse(runs.drawn, style))
    ax.plot(
        *runs.drawn.mean(axis=0), marker="*", markersize=12, linestyle=style["linestyle"],
        color=style["color"], markeredgecolor="black", markeredgewidth=0.8, zorder=3,
        label=label,
    )  # fmt: skip


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
