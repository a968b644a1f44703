"""Which columns of a table the predictions depend on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes

from fisher8_jax._internal.checks import check_count
from fisher8_jax.plots._style import BLUE, GREY, ORANGE, current_axes, finish, merged


def plot_importance(
    names: Sequence[str],
    mean: ArrayLike,
    spread: ArrayLike,
    *,
    error: ArrayLike | None = None,
    most: int = 20,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Draws how much each column matters for the mean and for the spread, as bars.

    `estimator.permutation_importance` returns what is drawn.

    Args:
        names: of the columns.
        mean: the importance of each column for the predicted mean.
        spread: the same for the predicted spread.
        error: standard errors of both, shape (2, columns).
        most: how many columns are drawn; the most important ones.
        ax: axes to draw into, by default the current ones.
        **kwargs: of `Axes.barh` for both bars.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = plot_importance(("a", "b"), [0.1, 2.0], [0.0, 0.3], ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['b', 'a']
    """
    values = np.stack([np.asarray(mean, np.float64), np.asarray(spread, np.float64)])
    if values.shape != (2, len(names)):
        raise ValueError(
            f"`mean` and `spread` must hold one number for each of the {len(names)} names, got "
            f"shape {values.shape[1:]}."
        )
    errors = np.zeros_like(values) if error is None else np.asarray(error, np.float64)
    if errors.shape != values.shape:
        raise ValueError(f"`error` must have shape {values.shape}, got {errors.shape}.")
    order = np.argsort(-values.sum(axis=0), kind="stable")[: check_count("most", most)]
    ax, places = current_axes(ax), np.arange(len(order))
    for row, label, color, shift in ((0, "mean", BLUE, -0.2), (1, "spread", ORANGE, 0.2)):
        bars = {"color": color, "label": label, "error_kw": {"ecolor": GREY, "elinewidth": 1}}
        ax.barh(
            places + shift, values[row, order], 0.38, xerr=errors[row, order],
            **merged(bars, kwargs, (("facecolor", "color"),)),
        )  # fmt: skip
    ax.axvline(0, color=GREY, linewidth=0.8)
    # Names are no mathematics, whatever dollars they contain.
    ax.set_yticks(places, [names[k] for k in order], parse_math=False)
    ax.yaxis.set_inverted(True)
    return finish(ax, "growth of the NLL when the column is shuffled, in nats", "column")
