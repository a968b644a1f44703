"""The picture of the estimator between and beyond its data, beside a deep ensemble.

Two clusters of rows with little noise. Both have the same networks, folds and early stopping; the
deep ensemble sees the number alone, trains by Adam on the NLL and predicts the members' plain
mixture.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.machinery.figures import style
from fisher8_jax.estimator import Fisher8Regressor
from fisher8_jax.plots import plot_fit
from fisher8_jax.training import LearningRate, LossGradient, Method

ROWS = 100
RANDOM = np.random.default_rng(0)
X = np.concatenate([RANDOM.uniform(-2, -0.9, ROWS), RANDOM.uniform(0.7, 1.6, ROWS)])
GRID = np.linspace(-3, 2.8, 581)
ADAM = [Method(LossGradient("nll"), LearningRate(rate)) for rate in (0.001, 0.01)]


def truth(x):
    return np.sin(3 * x) + 0.5 * x


Y = truth(X) + (0.03 + 0.1 * (X > 0)) * RANDOM.normal(size=2 * ROWS)
BETWEEN = np.linspace(-0.9, 0.7, 161)


def nll_between(model):
    """The NLL of the true function, per point, in units of the targets' standard deviation."""
    dist = model.predict_distribution(BETWEEN[:, None])
    values = (truth(BETWEEN) - Y.mean()) / Y.std()
    return float(np.mean(dist.standard.nll(values)))


def make(path: Path) -> None:
    """Trains both and saves the picture."""
    models = {
        "Deep ensemble": Fisher8Regressor(
            methods=ADAM, bins=False, shrink_variance=False, random_state=0, show_progress=False
        ),
        "Fisher8Regressor": Fisher8Regressor(random_state=0, show_progress=False),
    }
    with style(), plt.rc_context({"font.size": 12, "axes.titlesize": 13}):
        figure, axes = plt.subplots(
            3, 1, figsize=(7, 7.5), layout="constrained", sharex=True, height_ratios=(3, 3, 1)
        )
        for ax, (title, model) in zip(axes, models.items(), strict=False):
            model.fit(X[:, None], Y)
            plot_fit(model.predict_distribution(GRID[:, None]), GRID, truth=truth(GRID), ax=ax)
            ax.plot(X, Y, ".", color="0.25", markersize=3, label="targets", zorder=1)
            ax.legend().remove()
            ax.set(ylim=(-5, 5), xlabel="")
            ax.set_title(f"{title}: NLL between the clusters {nll_between(model):.1f}", loc="left")
        familiarity = models["Fisher8Regressor"].predict_familiarity(GRID[:, None])
        axes[2].fill_between(GRID, familiarity, color="0.7", linewidth=0)
        axes[2].set(ylim=(0, 1), xlim=(GRID[0], GRID[-1]), xlabel="input", ylabel="familiarity")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close("all")
