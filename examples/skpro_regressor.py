"""skpro: the estimator behind its adapter for scikit-learn, scored and compared by its tools."""

import warnings

import numpy as np
import pandas as pd
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import KFold
from skpro.benchmarking.evaluate import evaluate
from skpro.metrics import CRPS, LogLoss
from skpro.regression.adapters.sklearn import SklearnProbaReg

from fisher8_jax.estimator import Fisher8Regressor

MODELS = {
    "BayesianRidge": SklearnProbaReg(BayesianRidge()),
    "Fisher8Regressor": SklearnProbaReg(Fisher8Regressor(random_state=0, show_progress=False)),
}


def make_table(rows=300, seed=0):
    """A wave whose noise grows from left to right."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, rows)
    y = np.sin(2 * x) + (0.25 + 0.1 * x) * rng.normal(size=rows)
    return pd.DataFrame({"x": x}), pd.DataFrame({"y": y})


def main(rows=300):
    """Mean CRPS and log loss over two folds, by model."""
    inputs, targets = make_table(rows)
    folds = KFold(2, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas speaks about skpro's indexing
        found = {
            name: evaluate(model, folds, inputs, targets, scoring=[CRPS(), LogLoss()])
            for name, model in MODELS.items()
        }
    return {name: (t["test_CRPS"].mean(), t["test_LogLoss"].mean()) for name, t in found.items()}


if __name__ == "__main__":
    for name, (crps, log_loss) in main().items():
        print(f"{name:17} CRPS {crps:.3f}, log loss {log_loss:.3f}")
