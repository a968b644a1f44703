"""Which columns the predicted mean depends on, and which the predicted spread."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_count
from fisher8_jax._internal.html import Plain, json_numbers
from fisher8_jax.estimator._frames import Table


class Importance(NamedTuple):
    """How much the NLL grows when a column is shuffled, in nats per target.

    Attributes:
        names: of the columns.
        mean: when only the predicted means see the shuffled column.
        spread: when only the predicted standard deviations see it.
        error: the standard error of both over the repetitions, shape (2, columns).

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.estimator import Importance
        >>> found = Importance(("a", "b"), np.array([1.0, 0.0]), np.zeros(2), np.zeros((2, 2)))
        >>> found
        column       mean    spread
        a           1.000     0.000
        b           0.000     0.000
    """

    names: tuple[str, ...]
    mean: np.ndarray
    spread: np.ndarray
    error: np.ndarray

    def table(self) -> str:
        """One line per column, the one with the largest sum of both first."""
        order = np.argsort(-(self.mean + self.spread), kind="stable")
        wide = max(6, *map(len, self.names)) + 1
        rows = [
            f"{self.names[k]:<{wide}}{self.mean[k]:>10.3f}{self.spread[k]:>10.3f}" for k in order
        ]
        return "\n".join([f"{'column':<{wide}}{'mean':>10}{'spread':>10}", *rows])

    def as_dict(self) -> dict[str, dict[str, Plain]]:
        """By column the two importances and their standard errors, for JSON."""
        columns = (self.mean, self.spread, *self.error)
        keys = ("mean", "spread", "mean_error", "spread_error")
        return {
            name: {key: json_numbers(column[k]) for key, column in zip(keys, columns, strict=True)}
            for k, name in enumerate(self.names)
        }

    def __repr__(self) -> str:
        return self.table()


def permutation_importance(
    model: Any,
    X: Table,
    y: ArrayLike,
    *,
    n_repeats: int = 5,
    random_state: int = 0,
) -> Importance:
    """Shuffles one column after the other and scores the predictions that follow.

    The score is the Gaussian NLL of the predicted moments, with the mean or the standard deviation
    from the shuffled table and the other one from the table as it is. Give it held-out rows. Rows
    whose predicted tails are too heavy for a standard deviation are left out.

    Args:
        model: a fitted `Fisher8Regressor` of one target.
        X: rows, a matrix or a data frame.
        y: their targets; rows whose target is nan are left out.
        n_repeats: how often each column is shuffled.
        random_state: decides the shuffles.

    Example:
        >>> import numpy as np
        >>> from fisher8_jax.estimator import Fisher8Regressor, permutation_importance
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (300, 2))
        >>> y = 3 * X[:, 0] + np.exp(2 * X[:, 1] - 2) * rng.normal(size=300)
        >>> model = Fisher8Regressor(n_members=2, max_steps=1000, random_state=0).fit(X, y)
        >>> found = permutation_importance(model, X, y)
        >>> bool(found.mean[0] > found.mean[1] and found.spread[1] > found.spread[0])
        True
    """
    check_count("n_repeats", n_repeats)
    targets = np.asarray(y, np.float64)
    if targets.ndim != 1:
        raise ValueError(
            f"`y` must have one column, got shape {targets.shape}. Fit one model for each target."
        )
    shift, scale = np.asarray(model.scaler_.shift), np.asarray(model.scaler_.scale)

    def moments(columns: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        mean, std = model._moments_of(columns)
        return (mean - shift) / scale, std / scale

    columns = model._columns(X, reset=False)
    z = (targets - shift) / scale
    mean, std = moments(columns)
    base = _nll(z, mean, std)
    rng = np.random.default_rng(random_state)
    found = np.zeros((n_repeats, 2, len(columns)))
    for repeat in range(n_repeats):
        for index, column in enumerate(columns):
            shuffled = column._replace(values=column.values[rng.permutation(len(z))])
            other = moments([*columns[:index], shuffled, *columns[index + 1 :]])
            found[repeat, 0, index] = _mean_growth(_nll(z, other[0], std) - base)
            found[repeat, 1, index] = _mean_growth(_nll(z, mean, other[1]) - base)
    error = found.std(axis=0) / np.sqrt(n_repeats)
    names = tuple(column.name for column in columns)
    of_mean, of_spread = found.mean(axis=0)
    return Importance(names, of_mean, of_spread, error)


def _nll(z: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Of each row; nan without a target or without a standard deviation."""
    std = np.where(np.isfinite(std), std, np.nan)
    return np.log(std) + 0.5 * ((z - mean) / std) ** 2


def _mean_growth(growth: np.ndarray) -> float:
    known = growth[~np.isnan(growth)]
    return float(known.mean()) if known.size else float("nan")
