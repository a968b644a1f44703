"""A model from a file, and what to expect of it from cross-validation."""

import argparse
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold

from fisher8_jax.command._errors import CommandError
from fisher8_jax.command._page import make_page
from fisher8_jax.command._predict import write_bytes
from fisher8_jax.command._study import Study
from fisher8_jax.command._tables import read_table, split_target
from fisher8_jax.diagnostics import doctor
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import (
    Fisher8Regressor,
    Importance,
    Prediction,
    permutation_importance,
)
from fisher8_jax.metrics import Bootstrap, evaluate

_RESAMPLES = 400


def run_fit(arguments: argparse.Namespace) -> None:
    """Trains, saves the model and writes the report."""
    if arguments.model is None and arguments.report is None:
        raise CommandError("Nothing would be kept: name a file by `--model` or by `--report`.")
    if arguments.folds < 2:
        raise CommandError(f"`--folds` must be at least 2, got {arguments.folds}.")
    inputs, targets = split_target(read_table(arguments.data), arguments.target, arguments.ignore)
    try:
        model = make_estimator(arguments).fit(inputs, targets)
        print(f"{len(inputs)} rows, family {model.family_!r}, method {model.method_!r}.")
        if arguments.model is not None:
            _save(model, arguments.model)
        if arguments.report is not None:
            study = cross_validate(model, inputs, targets, arguments)
            write_bytes(arguments.report, make_page(study).encode())
            print(f"The report is in {arguments.report}.")
    except ValueError as error:  # the estimator's own words name the column and what to do
        raise CommandError(f"{error}") from error


def make_estimator(arguments: argparse.Namespace) -> Fisher8Regressor:
    """The estimator that the options describe."""
    chosen: dict[str, Any] = {
        "n_members": arguments.members,
        "max_steps": arguments.max_steps,
        "random_state": arguments.seed,
        "family": arguments.family,
    }
    return Fisher8Regressor(**{name: value for name, value in chosen.items() if value is not None})


def cross_validate(
    model: Fisher8Regressor,
    inputs: pd.DataFrame,
    targets: pd.Series,
    arguments: argparse.Namespace,
) -> Study:
    """Every row is predicted by a model that has not seen it."""
    parts, places, importances = [], [], []
    folds = KFold(min(arguments.folds, len(inputs)), shuffle=True, random_state=arguments.seed)
    values = targets.to_numpy()
    for number, (train, test) in enumerate(folds.split(inputs)):
        print(f"Cross-validation, fold {number + 1} of {folds.n_splits}.")
        one = clone(model).set_params(family=model.family_)
        one.fit(inputs.iloc[train], values[train])
        rows = inputs.iloc[test]
        parts.append(one.predict_distribution(rows).in_units_of(model.scaler_))
        found = permutation_importance(one, rows, values[test], n_repeats=1, random_state=number)
        importances.append(found)
        places.append(test)
    joined = join_rows(parts)
    order, scaler = np.concatenate(places), model.scaler_
    # Metrics work in float32, which has no digits left for targets far from 0.
    standard = jnp.asarray((values[order] - scaler.shift) / scaler.scale, jnp.float32)
    bootstrap = Bootstrap(jax.random.key(arguments.seed), resamples=_RESAMPLES)
    scores = evaluate(joined, standard, levels=(0.5, 0.9), bootstrap=bootstrap)
    return Study(
        source=arguments.data.name,
        target=arguments.target,
        folds=folds.n_splits,
        inputs=inputs,
        targets=values,
        model=model,
        prediction=Prediction(joined, scaler),
        predicted_targets=values[order],
        scores=scores.unscale(float(scaler.scale)),
        importance=_mean_importance(importances),
        diagnosis=doctor(joined, standard),
    )


def join_rows(parts: list[Mixture]) -> Mixture:
    """The rows of all parts; members are repeated where another part has more of them."""
    numbers = [len(jax.tree.leaves(part)[0]) for part in parts]
    common = math.lcm(*numbers)
    repeated = [
        jax.tree.map(lambda leaf, times=common // number: np.repeat(leaf, times, axis=0), part)
        for part, number in zip(parts, numbers, strict=True)
    ]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves, axis=1)), *repeated)


def _mean_importance(found: list[Importance]) -> Importance:
    mean, spread = (np.array([getattr(one, name) for one in found]) for name in ("mean", "spread"))
    error = np.stack([mean.std(axis=0), spread.std(axis=0)]) / np.sqrt(len(found))
    return Importance(found[0].names, mean.mean(axis=0), spread.mean(axis=0), error)


def _save(model: Fisher8Regressor, path: Any) -> None:
    try:
        model.save(path)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error}") from error
    print(f"The model is in {path}.")
