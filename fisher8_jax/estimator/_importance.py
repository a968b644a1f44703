"""Which columns the predicted mean depends on, and which the predicted spread."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_count
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
        >>> print(found.table())
        column          mean    spread
        a              1.000     0.000
        b              0.000     0.000
    """

    names: tuple[str, ...]
    mean: np.ndarray
    spread: np.ndarray
    error: np.ndarray

    def table(self) -> str:
        """The columns, the most important for the mean first."""
        order = np.argsort(-(self.mean + self.spread), kind="stable")
        rows = [f"{self.names[k]:<10}{self.mean[k]:>10.3f}{self.spread[k]:>10.3f}" for k in order]
        return "\n".join([f"{'column':<10}{'mean':>10}{'spread':>10}", *rows])


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
    from the shuffled table and the other one from the table as it is. Give it held-out rows.

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
    is_known = ~np.isnan(targets)
    shift, scale = np.asarray(model.scaler_.shift), np.asarray(model.scaler_.scale)

    def moments(columns: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        mean, std = model._moments_of(columns)
        return (mean - shift) / scale, std / scale

    columns = model._columns(X, reset=False)
    z = (targets - shift) / scale
    mean, std = moments(columns)
    base = _nll(z, mean, std, is_known)
    rng = np.random.default_rng(random_state)
    found = np.zeros((n_repeats, 2, len(columns)))
    for repeat in range(n_repeats):
        for index, column in enumerate(columns):
            shuffled = column._replace(values=column.values[rng.permutation(len(z))])
            other = moments([*columns[:index], shuffled, *columns[index + 1 :]])
            found[repeat, 0, index] = _nll(z, other[0], std, is_known) - base
            found[repeat, 1, index] = _nll(z, mean, other[1], is_known) - base
    error = found.std(axis=0) / np.sqrt(n_repeats)
    names = tuple(column.name for column in columns)
    of_mean, of_spread = found.mean(axis=0)
    return Importance(names, of_mean, of_spread, error)


def _nll(z: np.ndarray, mean: np.ndarray, std: np.ndarray, where: np.ndarray) -> float:
    values = np.log(std) + 0.5 * ((z - mean) / std) ** 2
    return float(np.mean(values[where]))
