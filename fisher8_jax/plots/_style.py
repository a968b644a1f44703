"""What all pictures share: colours, lines and markers that survive grey print, and axes."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    import matplotlib.pyplot as plt
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "The plots need matplotlib, which is not installed. Run `pip install fisher8_jax[plots]`."
    ) from error
from matplotlib.axes import Axes

# Okabe and Ito (2008): distinct for readers with any kind of colour blindness.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

# In an order of falling contrast to white; lines and markers differ too, for grey print.
COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1)),
    (0, (1, 1)),
)
GREY = "0.45"
SEQUENTIAL_MAP = "cividis"  # even in lightness, so that it reads the same in grey


def current_axes(ax: Axes | None) -> Axes:
    """`ax`, or the current axes of pyplot as its own functions would use them."""
    return plt.gca() if ax is None else ax


def axes_grid(
    axes: np.ndarray | Sequence[Axes] | None, rows: int, columns: int, size: tuple[float, float]
) -> np.ndarray:
    """`axes` as an array of the given shape, or a new figure with panels of the given size."""
    if axes is None:
        figure_size = (columns * size[0], rows * size[1])
        _, axes = plt.subplots(
            rows, columns, figsize=figure_size, squeeze=False, layout="constrained"
        )
    grid = np.asarray(axes, dtype=object)
    if grid.size != rows * columns:
        raise ValueError(
            f"`axes` must hold {rows * columns} Axes, got {grid.size}. "
            f"Make them with `plt.subplots({rows}, {columns})[1]`."
        )
    return grid.reshape(rows, columns)


def style_of(position: int) -> dict[str, Any]:
    """Colour, line and marker of the member at `position`; they repeat after eight."""
    k = position % len(COLORS)
    return {"color": COLORS[k], "linestyle": LINES[k], "marker": MARKERS[k]}


def percent(level: float) -> str:
    """A level as text: 0.9 is "90 %"."""
    return f"{100 * level:.3g} %"


def finish(ax: Axes, xlabel: str, ylabel: str, *, legend: bool = True) -> Axes:
    """Labels what has no label yet, and adds a legend off the data if anything can be listed."""
    if not ax.get_xlabel():
        ax.set_xlabel(xlabel)
    if not ax.get_ylabel():
        ax.set_ylabel(ylabel)
    if legend and ax.get_legend_handles_labels()[1]:
        legend_above_data(ax)
    return ax


def legend_above_data(ax: Axes) -> None:
    """A legend in as few rows as fit, inside the axes, in a strip that is made free for it.

    Outside of the axes it would be cut off by figures without a layout, or meet the title. Limits
    that the caller has set stay as they are; others are free to follow what is drawn later.
    """
    ax.apply_aspect()  # equal scales may leave less width than there is
    frame = ax.get_window_extent()
    for columns in range(len(ax.get_legend_handles_labels()[1]), 0, -1):
        legend = ax.legend(loc="upper center", ncols=columns, frameon=False, fontsize="small")
        box = legend.get_window_extent()
        if box.width <= frame.width:
            break
    if not ax.get_autoscaley_on():
        return
    share = min(0.6, 1.25 * box.height / frame.height)  # a layout makes the axes lower than now
    scale = ax.yaxis.get_transform()
    low, high = scale.transform(np.asarray(ax.get_ylim()))
    top = low + (high - low) / (1 - share)
    ax.set_ylim(top=float(scale.inverted().transform(np.asarray([top]))[0]), auto=None)


def style() -> contextlib.AbstractContextManager[None]:
    """How the pictures of the documentation look, for a `with` around your own.

    Open frames, colours that differ for colour-blind readers, legends without a box, and a
    resolution for the page. It changes matplotlib's defaults inside the `with` alone.

    Returns:
        A context, that of `matplotlib.rc_context`.

    Example:
        >>> import matplotlib as mpl
        >>> with style():
        ...     mpl.rcParams["axes.spines.top"]
        False
    """
    return plt.rc_context(
        {
            "axes.prop_cycle": plt.cycler(color=COLORS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.constrained_layout.use": True,
            "figure.dpi": 110,
            "image.cmap": SEQUENTIAL_MAP,
            "legend.frameon": False,
            "legend.fontsize": "small",
            "lines.linewidth": 1.4,
            "savefig.dpi": 130,
        }
    )


def merged(
    defaults: dict[str, Any], kwargs: dict[str, Any], aliases: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The caller's keywords over the defaults; short names such as `c` replace long ones."""
    taken = {long for short, long in aliases if short in kwargs}
    return {k: v for k, v in defaults.items() if k not in taken} | kwargs
