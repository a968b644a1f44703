"""Predictions for the rows of a file."""

import argparse
from pathlib import Path

import pandas as pd

from fisher8_jax._internal.files import replacing
from fisher8_jax.artifacts import ArtifactError
from fisher8_jax.command._errors import CommandError
from fisher8_jax.command._tables import columns_of_model, read_table
from fisher8_jax.estimator import Fisher8Regressor


def run_predict(arguments: argparse.Namespace) -> None:
    """Writes mean, standard deviation and quantiles, one row for each row of the data."""
    for probability in arguments.quantiles:
        if not 0 < probability < 1:
            raise CommandError(f"`--quantiles` must lie between 0 and 1, got {probability:g}.")
    model = load_model(arguments.model)
    rows = columns_of_model(read_table(arguments.data), model)
    mean, std = model.predict(rows, return_std=True)
    quantiles = model.predict_quantile(rows, arguments.quantiles)
    columns = {"mean": mean, "std": std}
    columns |= {f"q{p:g}": q for p, q in zip(arguments.quantiles, quantiles, strict=True)}
    write_bytes(arguments.output, pd.DataFrame(columns).to_csv(index=False).encode())
    print(f"{len(rows)} predictions are in {arguments.output}.")


def load_model(path: Path) -> Fisher8Regressor:
    """The estimator in a file."""
    try:
        return Fisher8Regressor.load(path)
    except FileNotFoundError:
        raise CommandError(f"There is no model {str(path)!r}.") from None
    except (ArtifactError, OSError) as error:
        raise CommandError(f"{error}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file in one step."""
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error}") from error
