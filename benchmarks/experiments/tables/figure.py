"""One row per set: how much higher each baseline's NLL is than the estimator's."""

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.experiments.tables.plan import MODELS, OURS
from benchmarks.experiments.tables.ranks import Comparison
from benchmarks.machinery.figures import to_png

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def draw(found: Comparison) -> bytes:
    """A PNG picture; differences are bent so that small and large ones are both seen."""
    ours = found.models.index(OURS)
    nll = found.means["nll"]
    places = np.arange(len(found.datasets))
    figure, ax = plt.subplots(figsize=(8, 1.5 + 0.28 * len(places)), layout="constrained")
    baselines = [index for index in range(len(found.models)) if index != ours]
    for index, color, marker in zip(baselines, _COLORS, "osD^v", strict=False):
        label = MODELS[found.models[index]]
        ax.plot(nll[:, index] - nll[:, ours], places, marker, color=color, alpha=0.85, label=label)
    ax.axvline(0, color="0.3", linewidth=1)
    ax.set_xscale("symlog", linthresh=0.1)
    ax.set_yticks(places, found.datasets)
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set_xlabel(
        "NLL above that of Fisher8Regressor in nats; right of the line the estimator is better"
    )
    ax.grid(axis="y", color="0.9")
    ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return to_png(figure, dpi=150)
