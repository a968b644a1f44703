"""skpro's checks of probabilistic regressors: `python -m tests.suites.skpro_checks`."""

import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import skpro
from skpro.distributions.normal import Normal
from skpro.regression.base import BaseProbaRegressor
from skpro.utils import check_estimator
from skpro.utils.sklearn import prep_skl_df

from fisher8_jax.estimator import Fisher8Regressor
from tests.suites.small import report


class Fisher8Proba(BaseProbaRegressor):
    """`Fisher8Regressor` in skpro's interface, by mean and standard deviation.

    Examples
    --------
    >>> from tests.suites.skpro_checks import Fisher8Proba
    >>> Fisher8Proba(n_members=2)
    Fisher8Proba(n_members=2)
    """

    _tags: ClassVar = {"authors": ["fisher8_jax"], "capability:multioutput": True}

    def __init__(self, n_members: int = 5, max_steps: Any = "auto"):
        self.n_members = n_members
        self.max_steps = max_steps
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> "Fisher8Proba":
        self._columns = y.columns
        targets = y.to_numpy()[:, 0] if y.shape[1] == 1 else y.to_numpy()
        self.model_ = Fisher8Regressor(
            n_members=self.n_members,
            hidden_layer_sizes=(8,),
            max_steps=self.max_steps,
            random_state=0,
            show_progress=False,
        ).fit(prep_skl_df(X), targets)
        return self

    def _predict_proba(self, X: pd.DataFrame) -> Normal:
        shape = (len(X), len(self._columns))
        moments = self.model_.predict(prep_skl_df(X), return_std=True)
        mean, std = (np.reshape(part, shape) for part in moments)
        return Normal(mean, std, index=X.index, columns=self._columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two instances that fit in a moment."""
        return [{"n_members": 1, "max_steps": 50}, {"n_members": 2, "max_steps": 100}]


def main() -> None:
    """Runs every check on every instance."""
    warnings.simplefilter("ignore")
    results = check_estimator(Fisher8Proba, verbose=False)
    for name, outcome in results.items():
        if outcome != "PASSED":
            print(f"{name}: {outcome!r}")
    passed = sum(outcome == "PASSED" for outcome in results.values())
    report(f"skpro {skpro.__version__}", passed, len(results))


if __name__ == "__main__":
    main()
