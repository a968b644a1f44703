"""A baseline that needs nothing: what the tests let run in another process."""

import os
import time
from pathlib import Path

import numpy as np

PACKAGES = ("numpy",)


def fit(name, inputs, targets, seed):
    """See `outside.run.Fit`."""
    if name == "fails":
        raise ValueError("no such luck")
    while name == "endless":
        np.sort(np.arange(1000.0))
    if name == "sleeps":
        Path(os.environ["FISHER8_TEST_PID"]).write_text(str(os.getpid()))
        time.sleep(60)
    mean, variance = targets.mean(), targets.var()

    def predict(rows):
        if name == "quantiles":
            levels = (np.arange(10) + 0.5) / 10
            return {"quantiles": np.tile(levels - 0.5, (len(rows), 1)), "levels": levels}
        return {"mean": np.full(len(rows), mean), "variance": np.full(len(rows), variance)}

    return predict
