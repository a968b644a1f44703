"""The pictures of the report, as SVG inside the page."""

import base64
import html
import io
from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fisher8_jax.command._study import Study
from fisher8_jax.families import Predictive
from fisher8_jax.plots import (
    plot_importance,
    plot_intervals,
    plot_pit,
    plot_reliability,
    plot_residuals,
)

# Of more rows a random part is drawn: the page stays small, and dots do not cover each other.
_DRAWN_ROWS = 1500


def draw_calibration(study: Study) -> str:
    """Is the predicted probability the observed frequency?"""
    return _pair(study, (plot_reliability, "Reliability curve"), (plot_pit, "Histogram of the PIT"))


def draw_residuals(study: Study) -> str:
    """Do the errors follow the predicted spread?"""
    spread = "Residuals against predicted standard deviations"
    return _pair(study, (plot_residuals, spread), (plot_intervals, "Residuals in their intervals"))


def draw_importance(study: Study) -> str:
    """The columns that matter most."""
    found = study.importance
    figure = Figure(figsize=(7, 1.2 + 0.32 * min(len(found.names), 20)), layout="constrained")
    plot_importance(found.names, found.mean, found.spread, error=found.error, ax=figure.subplots())
    return _image(figure, "Permutation importance of the columns for mean and spread")


def _pair(study: Study, *pictures: tuple[Callable[..., Axes], str]) -> str:
    """Side by side, or one below the other where the page is narrow."""
    dist, targets = _drawn(study)
    images = []
    for plot, words in pictures:
        figure = Figure(figsize=(5, 4), layout="constrained")
        plot(dist, targets, ax=figure.subplots())
        images.append(_image(figure, words))
    return f"<div class='pair'>{''.join(images)}</div>"


def _drawn(study: Study) -> tuple[Predictive, np.ndarray]:
    number = len(study.predicted_targets)
    rows = np.arange(number)
    if number > _DRAWN_ROWS:
        rows = np.random.default_rng(0).choice(number, _DRAWN_ROWS, replace=False)
    return study.prediction[rows], study.predicted_targets[rows]


def _image(figure: Figure, words: str) -> str:
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fisher8_jax"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'
