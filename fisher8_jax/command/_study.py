"""Everything that the report is made of."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from fisher8_jax.diagnostics import Diagnosis
from fisher8_jax.estimator import Fisher8Regressor, Importance, Prediction
from fisher8_jax.metrics import Evaluation


class Study(NamedTuple):
    """A fitted model and its cross-validation.

    Attributes:
        source: the name of the file.
        target: the name of the predicted column.
        folds: of the cross-validation.
        inputs: the rows that were used.
        targets: theirs, in the same order.
        model: fitted to all rows.
        prediction: every row predicted by a model that has not seen it, fold after fold.
        predicted_targets: the targets in the order of `prediction`.
        scores: of `prediction`, with bootstrap intervals.
        importance: the mean over the folds, on rows that the models have not seen.
        diagnosis: what the doctor says about `prediction`.
    """

    source: str
    target: str
    folds: int
    inputs: pd.DataFrame
    targets: np.ndarray
    model: Fisher8Regressor
    prediction: Prediction
    predicted_targets: np.ndarray
    scores: Evaluation
    importance: Importance
    diagnosis: Diagnosis
