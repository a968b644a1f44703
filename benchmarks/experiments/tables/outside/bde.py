"""sklearn-contrib-bde with the settings of the regression example in its documentation.

The defaults of its constructor are those of a quick trial: two networks of four units, 20 epochs,
ten draws. The prediction is the equal mixture of draws, evenly thinned so that it can be scored.
"""

from collections.abc import Callable

import jax
import numpy as np
from bde import BdeRegressor
from bde.loss import GaussianNLL

from benchmarks.experiments.tables.outside.run import Predictions

PACKAGES = ("sklearn-contrib-bde", "jax", "blackjax", "numpy")

EXAMPLE = {
    "hidden_layers": [16, 16],
    "n_members": 8,
    "epochs": 200,
    "validation_split": 0.15,
    "lr": 1e-3,
    "weight_decay": 1e-4,
    "warmup_steps": 5000,
    "n_samples": 2000,
    "n_thinning": 2,
    "patience": 10,
}
DRAWS = 16
"""Of every member, in the mixture that is scored."""


def fit(
    name: str, inputs: np.ndarray, targets: np.ndarray, seed: int
) -> Callable[[np.ndarray], Predictions]:
    """See `run.Fit`."""
    shift, scale = inputs.mean(0), inputs.std(0) + 1e-8
    model = BdeRegressor(loss=GaussianNLL(), seed=seed, **EXAMPLE)
    model.fit(x=(inputs - shift) / scale, y=targets)

    def predict(rows: np.ndarray) -> Predictions:
        raw = np.asarray(model.predict((rows - shift) / scale, raw=True), np.float64)
        draws = np.linspace(0, raw.shape[1] - 1, DRAWS).round().astype(int)
        kept = raw[:, draws].reshape(-1, *raw.shape[2:])
        std = np.asarray(jax.nn.softplus(kept[..., 1])) + 1e-6
        return {"mean": kept[..., 0], "variance": std**2}

    return predict
