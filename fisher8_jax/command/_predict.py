"""Predictions for the rows of a file."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from fisher8_jax.artifacts import ArtifactError
from fisher8_jax.command._csv import (
    CommandError,
    Dialect,
    check_outputs,
    counted,
    read_csv,
    write_bytes,
)
from fisher8_jax.command._tables import check_columns, columns_of_model
from fisher8_jax.estimator import Fisher8Regressor

# Fewer than one in a hundred training rows were as strange.
_UNFAMILIAR = 0.01


def run_predict(arguments: argparse.Namespace) -> None:
    """Writes mean, standard deviation, familiarity and quantiles, one row for each row of data."""
    for probability in arguments.quantiles:
        if not 0 < probability < 1:
            raise CommandError(f"`--quantiles` must lie between 0 and 1, got {probability:g}.")
    check_outputs(
        {"the data": arguments.data, "`--model`": arguments.model}, {"--output": arguments.output}
    )
    model = load_model(arguments.model)
    table = read_csv(arguments.data, Dialect.of(arguments), as_text=True)
    check_columns(table, arguments.id)
    rows = columns_of_model(table, model, decimal=arguments.decimal)
    try:
        mean, std = model.predict(rows, return_std=True)
        quantiles = model.predict_quantile(rows, arguments.quantiles)
        columns = {"mean": mean, "std": std, "familiarity": model.predict_familiarity(rows)}
    except ValueError as error:  # the estimator's own words name the column and what to do
        raise CommandError(f"{error}") from error
    columns |= {f"q{p:g}": q for p, q in zip(arguments.quantiles, quantiles, strict=True)}
    _check_names(arguments.id, columns)
    output = pd.DataFrame({name: table[name] for name in arguments.id} | columns)
    write_bytes(arguments.output, output.to_csv(index=False).encode())
    print(f"{len(rows)} predictions are in {arguments.output}.")
    if strange := int(np.sum(columns["familiarity"] < _UNFAMILIAR)):
        print(
            f"{counted(strange, 'row')} of them, with a familiarity below {_UNFAMILIAR}, hardly "
            "resemble a row of the training: distrust their means."
        )


def load_model(path: Path) -> Fisher8Regressor:
    """The estimator in a file."""
    try:
        return Fisher8Regressor.load(path)
    except FileNotFoundError:
        raise CommandError(f"There is no model {str(path)!r}.") from None
    except (ArtifactError, OSError) as error:
        raise CommandError(f"{error}") from error


def _check_names(ids: list[str], columns: dict) -> None:
    if taken := set(ids) & set(columns):
        raise CommandError(
            f"`--id` {', '.join(sorted(taken))} is the name of a prediction, too. Rename it."
        )
