"""A model from a file, and what to expect of it from cross-validation."""

import argparse
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.command._csv import CommandError, Dialect, check_outputs, write_bytes
from fisher8_jax.command._page import make_page
from fisher8_jax.command._study import Splits, Study, make_folds
from fisher8_jax.command._tables import TrainingRows, read_table, split_target
from fisher8_jax.diagnostics import doctor
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator import Fisher8Regressor, Importance, Prediction, permutation_importance
from fisher8_jax.families import Gaussian
from fisher8_jax.metrics import Bootstrap, evaluate

_RESAMPLES = 400


def run_fit(arguments: argparse.Namespace) -> None:
    """Trains, saves the model and writes the report."""
    if arguments.model is None and arguments.report is None:
        raise CommandError("Nothing would be kept: name a file by `--model` or by `--report`.")
    if arguments.folds < 2:
        raise CommandError(f"`--folds` must be at least 2, got {arguments.folds}.")
    if arguments.group is not None and arguments.time is not None:
        raise CommandError("`--group` and `--time` exclude each other: choose one.")
    check_outputs(
        {"the data": arguments.data}, {"--model": arguments.model, "--report": arguments.report}
    )
    rows = split_target(read_table(arguments.data, Dialect.of(arguments)), arguments)
    left_out = f", {rows.dropped} without {arguments.target!r} left out" if rows.dropped else ""
    folds = make_folds(rows, arguments) if arguments.report is not None else None
    total = 1 + (len(folds.pairs) if folds else 0)
    try:
        print(f"Fit 1 of {total}: {len(rows.targets)} rows{left_out}.")
        model = make_estimator(arguments).fit(rows.inputs, rows.targets)
        print(f"Likelihood: {model.family_}. Trained by:")
        for method in model.methods_:
            print(f"  {method}")
        if arguments.model is not None:
            _save(model, arguments.model)
        if folds is not None:
            study = cross_validate(model, rows, folds, arguments)
            write_bytes(arguments.report, make_page(study).encode())
            print(f"The report is in {arguments.report}.")
    except ValueError as error:  # the estimator's own words name the column and what to do
        raise CommandError(f"{error}") from error


def make_estimator(arguments: argparse.Namespace) -> Fisher8Regressor:
    """The estimator that the options describe."""
    chosen: dict[str, Any] = {
        "effort": arguments.effort,
        "n_members": arguments.members,
        "max_steps": arguments.max_steps,
        "hidden_layer_sizes": arguments.hidden_layer_sizes,
        "random_state": arguments.seed,
        "family": arguments.family,
    }
    return Fisher8Regressor(**{name: value for name, value in chosen.items() if value is not None})


def cross_validate(
    model: Fisher8Regressor, rows: TrainingRows, folds: Splits, arguments: argparse.Namespace
) -> Study:
    """Rows are predicted by models that have not seen them."""
    parts, baselines, importances = [], [], []
    targets, scaler, total = rows.targets, model.scaler_, len(folds.pairs) + 1
    for number, (train, test) in enumerate(folds.pairs):
        print(f"Fit {number + 2} of {total}: {len(train)} rows, to predict {len(test)} others.")
        one = clone(model).set_params(family=model.family_)
        one.fit(rows.inputs.iloc[train], targets[train])
        new = rows.inputs.iloc[test]
        parts.append(one.predict_distribution(new).in_units_of(scaler))
        baselines.append(_constant(_scaled(targets[train], scaler), len(test)))
        importances.append(
            permutation_importance(one, new, targets[test], n_repeats=1, random_state=number)
        )
    joined = join_rows(parts)
    predicted = targets[np.concatenate([test for _, test in folds.pairs])]
    # Metrics work in float32, which has no digits left for targets far from 0.
    standard = jnp.asarray(_scaled(predicted, scaler), jnp.float32)
    bootstrap = Bootstrap(jax.random.key(arguments.seed), resamples=_RESAMPLES)
    scores = evaluate(joined, standard, levels=(0.5, 0.9), bootstrap=bootstrap)
    baseline = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *baselines)
    scale = float(np.asarray(scaler.scale))
    return Study(
        source=arguments.data.name,
        target=arguments.target,
        folds=folds.words,
        rows=rows,
        model=model,
        prediction=Prediction(joined, scaler),
        predicted_targets=predicted,
        scores=scores.unscale(scale),
        baseline=evaluate(baseline, standard, levels=(0.5, 0.9)).unscale(scale),
        importance=_mean_importance(importances),
        diagnosis=doctor(joined, standard),
    )


def _scaled(targets: np.ndarray, scaler: TargetScaler) -> np.ndarray:
    return (targets - scaler.shift) / scaler.scale


def _constant(targets: np.ndarray, rows: int) -> Gaussian:
    """What one would predict without any column: mean and variance of the training rows."""
    variance = max(float(np.var(targets)), 1e-12)
    return Gaussian(jnp.full(rows, targets.mean()), jnp.full(rows, np.log(variance)))


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


def _save(model: Fisher8Regressor, path: Path) -> None:
    try:
        model.save(path)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error}") from error
    print(f"The model is in {path}.")
