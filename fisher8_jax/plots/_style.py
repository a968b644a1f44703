"""What all pictures share: colours that survive grey print, axes and legends."""

from collections.abc import Sequence
from typing import Any

import chex
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from fisher8_jax._internal.checks import check_host_array, check_mask, check_targets
from fisher8_jax.families import Predictive

# Okabe and Ito (2008): distinct for readers with any kind of colour blindness.
BLACK, ORANGE, BLUE, VERMILLION = "#000000", "#E69F00", "#0072B2", "#D55E00"
GREY = "0.45"

Keywords = dict[str, Any]
"""Keywords of matplotlib."""


def current_axes(ax: Axes | None) -> Axes:
    """`ax`, or the current axes of pyplot as its own functions would use them."""
    return plt.gca() if ax is None else ax


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


def merged(
    defaults: Keywords, kwargs: Keywords, aliases: Sequence[tuple[str, str]] = ()
) -> Keywords:
    """The caller's keywords over the defaults; short names such as `c` replace long ones."""
    taken = {long for short, long in aliases if short in kwargs}
    return {k: v for k, v in defaults.items() if k not in taken} | kwargs


def check_one_target(dist: Predictive) -> int:
    """The number of points, or how to select one target of several."""
    shape = dist.batch_shape + dist.event_shape
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(
            f"`dist` must hold the predictions of one target, shape (points,), got {shape}. Select "
            "a target first, for instance `jax.tree.map(lambda leaf: leaf[:, 0], dist)`."
        )
    return shape[0]


def drawn_targets(
    dist: Predictive, targets: chex.Array, where: chex.Array | None
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and the mask of points to draw: not masked, and with a finite target."""
    number = check_one_target(dist)
    values = np.asarray(check_targets(targets, (number,)), np.float64)
    mask = np.isfinite(values)
    if where is not None:
        mask = mask & np.asarray(check_mask("where", where, (number,)))
    if not mask.any():
        raise ValueError("`where` leaves no point with a finite target to draw.")
    return values, mask


def check_inputs_1d(inputs: chex.Array, number: int, name: str = "inputs") -> np.ndarray:
    """One number per prediction as a vector; (points, 1) is accepted."""
    values = check_host_array(name, inputs).astype(np.float64)
    if values.shape == (number, 1):
        values = values[:, 0]
    if values.shape != (number,):
        raise ValueError(
            f"`{name}` must hold one number per prediction, shape ({number},), got {values.shape}. "
            "With several inputs, select the one to draw against."
        )
    return values
