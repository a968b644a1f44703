"""A cross-validation: how rows are split, and everything that the report says about it."""

import argparse
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit

from fisher8_jax.command._csv import CommandError
from fisher8_jax.command._tables import TrainingRows
from fisher8_jax.diagnostics import Diagnosis
from fisher8_jax.estimator import Fisher8Regressor, Importance, Prediction
from fisher8_jax.metrics import Evaluation


class Splits(NamedTuple):
    """Rows to train on and rows to predict, fold by fold.

    Attributes:
        pairs: indices of both.
        words: what the report says about them.
    """

    pairs: list[tuple[np.ndarray, np.ndarray]]
    words: str


def make_folds(rows: TrainingRows, arguments: argparse.Namespace) -> Splits:
    """The folds that the options ask for."""
    number, seed = min(arguments.folds, len(rows.targets)), arguments.seed
    if rows.groups is not None:
        return _by_groups(rows, number, seed, arguments.group)
    if rows.times is not None:
        order = np.argsort(rows.times.to_numpy(), kind="stable")
        splits = TimeSeriesSplit(number).split(order)
        pairs = [(order[train], order[test]) for train, test in splits]
        first = len(pairs[0][0])
        return Splits(
            pairs,
            f"{number} folds in the order of {arguments.time}: every row was predicted by a model "
            f"of earlier rows alone, and the {first} earliest rows were not predicted",
        )
    pairs = list(KFold(number, shuffle=True, random_state=seed).split(rows.targets))
    return Splits(
        pairs,
        f"{number}-fold cross-validation: every row was predicted by a model that had not seen it",
    )


def _by_groups(rows: TrainingRows, number: int, seed: int, name: str) -> Splits:
    groups = rows.groups
    assert groups is not None
    number = min(number, groups.nunique())
    if number < 2:
        raise CommandError(f"`--group` {name!r} has one value only; at least 2 are needed.")
    split = GroupKFold(number, shuffle=True, random_state=seed).split(rows.targets, groups=groups)
    return Splits(
        list(split),
        f"{number}-fold cross-validation by {name}: every row was predicted by a model that had "
        f"seen no row of the same {name}",
    )


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
