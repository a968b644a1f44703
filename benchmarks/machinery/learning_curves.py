"""Curves of a score over training, with the final scores and their range beside them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

LINES = ("-", "--", "-", "--", "-.", ":")  # beside the colours, which not everyone can tell apart
_FIRST, _APART = 1.09, 0.05  # where the final scores stand, in shares of the steps


class Curve(NamedTuple):
    """One way to train.

    Args:
        share: evaluations, as shares of the steps.
        values: (seeds, evaluations).
        scores: (seeds,), what a table says of it.
    """

    share: np.ndarray
    values: np.ndarray
    scores: np.ndarray


def draw(
    panels: Mapping[str, Mapping[str, Curve]], labels: Sequence[str], ylabel: str, main: set[str]
) -> bytes:
    """A panel for each problem: medians over seeds; scores as their mean and range.

    Args:
        panels: by title and label.
        labels: all of them in the order of colours.
        ylabel: what is drawn.
        main: labels whose lines are wide.
    """
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import to_png

    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(max(6.4, 3.8 * len(panels)), 4.2),
        squeeze=False,
        layout="constrained",
    )
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        _panel(ax, curves, labels, main)
        ax.set_title(title)
    axes[0, 0].set_ylabel(ylabel)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    return to_png(figure)


def _panel(ax: Any, curves: Mapping[str, Curve], labels: Sequence[str], main: set[str]) -> None:
    ends = _limits(list(curves.values()))
    for index, label in enumerate(labels):
        if label in curves:
            one, look = curves[label], {"color": f"C{index}"}
            style = {**look, "ls": LINES[index], "lw": 2.2 if label in main else 1.3}
            ax.plot(one.share, np.median(one.values, axis=0), label=label, **style)
            _score(ax, _FIRST + _APART * index, one.scores, ends, look)
    ax.axvline((1 + _FIRST) / 2, color="0.8", lw=0.8)
    ticks = {0.2: "20%", 0.4: "40%", 0.6: "60%", 0.8: "80%", 1.0: "100%"}
    ticks[_FIRST + _APART * (len(labels) - 1) / 2] = "score"
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set(xlabel="share of the steps", ylim=ends, xlim=(0.07, _FIRST + _APART * len(labels)))


def _limits(curves: list[Curve]) -> tuple[float, float]:
    """Ends of the axis: without first evaluations, and not further than others for one method."""
    late = [np.median(one.values, axis=0)[2:] for one in curves]
    low = min(np.concatenate([*late, *(one.scores for one in curves)]))
    highest = [
        max(np.quantile(median, 0.75, method="lower"), one.scores.max())
        for median, one in zip(late, curves, strict=True)
    ]
    tops = sorted(top for top in highest if np.isfinite(top))
    high = min(tops[-1], low + 2.5 * (tops[-2:][0] - low))
    margin = 0.1 * (high - low)
    return low - margin, high + margin


def _score(
    ax: Any, at: float, values: np.ndarray, ends: tuple[float, float], look: dict[str, str]
) -> None:
    """Mean and range over seeds; a mean that lies outside is a triangle at the edge."""
    low, high = ends
    mean = values.mean()
    ax.plot([at, at], np.clip([values.min(), values.max()], low, high), lw=1.3, **look)
    marker = "o" if low <= mean <= high else ("^" if mean > high else "v")
    ax.plot(at, np.clip(mean, low, high), marker, ms=5, clip_on=False, **look)
