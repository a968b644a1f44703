"""The pictures of the study: test NLL over training, and the returns of PETS over its episodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.experiments.adoption.plan import METHODS
from benchmarks.machinery.learning_curves import LINES, Curve, draw

_TITLES = {
    "gaussian_process": "curves of a Gaussian process",
    "lotka_volterra": "predator and prey",
}
_LABELS = [label for label, _ in METHODS.values()]
_MAIN = {METHODS["nll"][0], METHODS["fisher8"][0]}  # the comparison that the study is about


def draw_curves(found: Mapping[tuple[str, str], Any]) -> bytes:
    """A panel for each problem of what `report.choose` finds, by problem and method."""
    panels: dict[str, dict[str, Curve]] = {}
    for (problem, method), one in found.items():
        share = np.array(one.steps) / one.steps[-1]
        curve = Curve(share, one.curve, one.scores["test_nll"])
        panels.setdefault(_TITLES.get(problem, problem), {})[METHODS[method][0]] = curve
    return draw(panels, _LABELS, "test NLL", _MAIN)


def draw_returns(found: Mapping[str, np.ndarray]) -> bytes:
    """The return of every episode: mean over seeds, and their range as a line upright.

    Args:
        found: by method returns (seeds, episodes); the first episode is random.
    """
    import matplotlib.pyplot as plt

    from benchmarks.machinery.figures import to_png

    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for place, (method, returns) in enumerate(found.items()):
        index = list(METHODS).index(method)
        look: dict[str, Any] = {"color": f"C{index}", "ls": LINES[index]}
        episodes = np.arange(returns.shape[1])
        means = returns.mean(axis=0)
        ax.plot(episodes, means, lw=2.2, label=METHODS[method][0], **look)
        beside = episodes + 0.1 * (place - (len(found) - 1) / 2)
        ax.vlines(beside, returns.min(axis=0), returns.max(axis=0), color=f"C{index}", lw=1.3)
        ax.set_xticks(episodes, ["random", *map(str, episodes[1:])])
    ax.set(xlabel="planned episode of 200 steps", ylabel="return")
    ax.legend(loc="lower right", fontsize=8)
    return to_png(figure)
