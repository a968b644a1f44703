"""The committed file of an estimator: `python -m tests.artifacts.sample_estimator` writes it anew.

Columns of all three kinds, missing values, two targets. Beside it the predictions that every later
version must make of it. Only a new version of the format needs a new file, under a new number.
"""

import json
import pathlib

import numpy as np
import pandas

from fisher8_jax.estimator import Fisher8Regressor

FORMATS = pathlib.Path(__file__).parent / "formats"
MODEL, PREDICTIONS = FORMATS / "estimator_4.safetensors", FORMATS / "estimator_4.json"


def make_rows(count: int = 60):
    """A frame and its targets, the same on every machine."""
    number = np.linspace(-2, 3, count)
    number[7] = np.nan
    frame = {
        "number": number,
        "constant": np.ones(count),
        "kind": [("red", "green", "blue")[i % 3] for i in range(count)],
        "when": pandas.date_range("2024-01-01", periods=count, freq="7h"),
    }
    targets = np.stack([np.sin(np.arange(count)), 1e6 + np.arange(count) % 3], axis=1)
    targets[11, 0] = np.nan
    return pandas.DataFrame(frame), targets


def predictions(model: Fisher8Regressor) -> dict[str, list]:
    """What is compared, for the first ten rows."""
    frame, targets = make_rows()
    rows = frame[:10]
    mean, std = model.predict(rows, return_std=True)
    low, high = model.predict_interval(rows)
    nll = model.nll(rows, targets[:10])
    found = {"mean": mean, "std": std, "low": low, "high": high, "nll": nll}
    return {name: np.asarray(values).tolist() for name, values in found.items()}


def main() -> None:
    """Fits, saves, and writes down what is predicted."""
    model = Fisher8Regressor(
        family="student_t", n_members=2, hidden_layer_sizes=(4,), max_steps=200, random_state=0
    )
    model.fit(*make_rows())
    model.save(MODEL)
    PREDICTIONS.write_text(json.dumps(predictions(Fisher8Regressor.load(MODEL))) + "\n")


if __name__ == "__main__":
    main()
