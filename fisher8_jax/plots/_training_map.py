"""Heat maps over training: one row per snapshot, one column per point."""

from typing import Any

import numpy as np
from jax import Array
from matplotlib.axes import Axes

from fisher8_jax.plots._style import SEQUENTIAL_MAP, current_axes, finish, merged


def plot_training_map(
    values: Array,
    inputs: Array,
    steps: Array,
    *,
    log10: bool = True,
    label: str | None = None,
    colorbar: bool = True,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws a diagnostic over the input and the training step.

    Args:
        values: shape (snapshots, points), for instance from `along_training`.
        inputs: one number per point, in any order.
        steps: one number per snapshot, rising.
        log10: draw the decimal logarithm; zeros and values that are not finite stay blank.
        label: of the colour bar; None leaves the bar without a title.
        colorbar: False where several maps share one, drawn by the caller.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.pcolormesh`, such as `vmin`, `vmax` and `cmap`.

    Returns:
        The axes.

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([[1.0, 10.0], [10.0, 100.0]])
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().subplots()
        >>> ax = plot_training_map(values, jnp.arange(2.0), jnp.arange(2.0), ax=ax)
        >>> ax.collections[0].get_array().tolist()
        [[0.0, 1.0], [1.0, 2.0]]
    """
    table = np.asarray(values, np.float64)
    x, y = np.asarray(inputs, np.float64).squeeze(), np.asarray(steps, np.float64)
    if table.ndim != 2 or x.shape != table.shape[1:] or y.shape != table.shape[:1]:
        raise ValueError(
            "`values` must have shape (snapshots, points), with one of `steps` per snapshot and "
            f"one of `inputs` per point, got {table.shape}, {y.shape} and {x.shape}."
        )
    order = np.argsort(x, kind="stable")
    table = table[:, order]
    if log10:
        table = np.log10(table, where=table > 0, out=np.full(table.shape, np.nan))
    ax = current_axes(ax)
    mesh = {"cmap": SEQUENTIAL_MAP, "shading": "nearest", "rasterized": True}
    image = ax.pcolormesh(x[order], y, np.ma.masked_invalid(table), **merged(mesh, kwargs))
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax)
        if label is not None:
            bar.set_label(f"log10 {label}" if log10 else label)
    return finish(ax, "input", "training step", legend=False)
