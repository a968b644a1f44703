"""Everything that the report is made of."""

from typing import NamedTuple

import numpy as np

from fisher8_jax.command._tables import TrainingRows
from fisher8_jax.diagnostics import Diagnosis
from fisher8_jax.estimator import Fisher8Regressor, Importance, Prediction
from fisher8_jax.metrics import Evaluation


class Study(NamedTuple):
    """A fitted model and its cross-validation.

    Attributes:
        source: the name of the file.
        target: the name of the predicted column.
        folds: how the rows were divided, in words.
        rows: those that were used, and how many were not.
        model: fitted to all rows.
        prediction: rows predicted by models that have not seen them, fold after fold.
        predicted_targets: the targets in the order of `prediction`.
        scores: of `prediction`, with bootstrap intervals.
        baseline: scores of the mean and standard deviation of the training rows.
        importance: the mean over the folds, on rows that the models have not seen.
        diagnosis: what the doctor says about `prediction`.
    """

    source: str
    target: str
    folds: str
    rows: TrainingRows
    model: Fisher8Regressor
    prediction: Prediction
    predicted_targets: np.ndarray
    scores: Evaluation
    baseline: Evaluation
    importance: Importance
    diagnosis: Diagnosis
