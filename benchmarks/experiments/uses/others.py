"""Intervals of MAPIE and crepes around predictions: `python -m ...uses.others FOLDER LEVEL`.

It runs in an environment with both packages and without this library. `asked.npz` holds mean and
standard deviation of calibration rows and of new ones, and the targets of the former;
`answer.npz` the ends of every method's intervals.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from benchmarks.machinery.environments import leave_with_parent

Floats = NDArray[np.float64]


class Column(RegressorMixin, BaseEstimator):
    """A model that was fitted elsewhere: its prediction is a column of its input."""

    def __init__(self, place: int = 0):
        self.place = place
        self.fitted_ = True

    def fit(self, inputs: Floats, targets: Floats) -> "Column":
        """Nothing to do."""
        self.n_features_in_ = inputs.shape[1]
        return self

    def predict(self, inputs: Floats) -> Floats:
        """The column."""
        return np.asarray(inputs)[:, self.place]


def intervals(level: float, known: Floats, targets: Floats, new: Floats) -> dict[str, Floats]:
    """Lower and upper ends at new rows by method, (rows, 2)."""
    from crepes import WrapRegressor
    from crepes.extras import DifficultyEstimator
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

    found = {}
    scores = {
        "mapie": "absolute",
        "mapie_scaled": ResidualNormalisedScore(
            residual_estimator=Column(1).fit(known, targets), prefit=True, random_state=0
        ),
    }
    for name, score in scores.items():
        model = SplitConformalRegressor(
            Column().fit(known, targets),
            confidence_level=level,
            conformity_score=score,
            prefit=True,
        )
        model.conformalize(known, targets)
        found[name] = model.predict_interval(new)[1][:, :, 0]
    for name, is_scaled in (("crepes", False), ("crepes_scaled", True)):
        wrapped, difficulty = WrapRegressor(Column()), DifficultyEstimator()
        wrapped.fit(known, targets)
        difficulty.fit(f=lambda x: x[:, 1])
        wrapped.calibrate(known, targets, **({"de": difficulty} if is_scaled else {}))
        found[name] = wrapped.predict_int(new, confidence=level)
    return found


def main(folder: Path, level: float) -> None:
    """Reads, computes, writes."""
    with np.load(folder / "asked.npz") as arrays:
        asked = dict(arrays)
    found = intervals(level, **asked)
    versions = {name: importlib.metadata.version(name) for name in ("mapie", "crepes")}
    np.savez(folder / "answer.npz", versions=np.array(json.dumps(versions)), **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    leave_with_parent()
    main(Path(sys.argv[1]), float(sys.argv[2]))
