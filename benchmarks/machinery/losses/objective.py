"""One interface for a training loop that may use any loss: state, randomness and penalty included.

Most losses are functions of a batch and nothing else. Three need more: `trustable` keeps a
reference per training point, `collier` draws random numbers, `wong_toi` penalises parameters. An
`Objective` gives every loss all of these, so that a loop passes everything always and never asks
which method it runs. What a method does not need is an empty tuple or a 0, which cost nothing.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import chex
import jax.numpy as jnp
from jax import Array

from benchmarks.machinery.losses.collier import collier
from benchmarks.machinery.losses.trustable import (
    gather_references,
    init_references,
    refresh_references,
    trustable,
)
from benchmarks.machinery.losses.wong_toi import wong_toi, wong_toi_penalty
from fisher8_jax import losses as library
from fisher8_jax.families import Family

LOSSES: Mapping[str, Callable[..., Array]] = {
    **library.LOSSES,
    "trustable": trustable,
    "collier": collier,
    "wong_toi": wong_toi,
}
"""Those of the library and those of this folder, by the name of the function."""

State: TypeAlias = chex.ArrayTree


class Objective(NamedTuple):
    """A loss together with the state, the randomness and the penalty it needs.

    * `init(predictions)` makes the state from the predictions for all training points.
    * `values(state, dist, targets, *, indices, key, where=None, weights=None)` gives one value per
      element of a batch; `indices` are the positions of its points in the training set, `key` is a
      random key for this step alone.
    * `penalty(mean_params, precision_params)` is a scalar to add to the mean of the values.
    * `refresh(state, predictions)` renews the state when an epoch begins.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from benchmarks.machinery.losses.objective import make_objective
        >>> objective = make_objective("nll")
        >>> dist = Gaussian(jnp.zeros(2), jnp.zeros(2))
        >>> objective.init(dist), objective.penalty({}, {})  # this loss needs neither
        ((), Array(0., dtype=float32, ...))
    """

    init: Callable[..., State]
    values: Callable[..., Array]
    penalty: Callable[[chex.ArrayTree, chex.ArrayTree], Array]
    refresh: Callable[..., State]


def make_objective(name: str, **hyperparameters: chex.Numeric) -> Objective:
    """The objective of the loss called `name`, with its hyper-parameters fixed.

    A loop that runs every method:

        state = objective.init(predict(params, all_inputs))
        for each epoch:
            state = objective.refresh(state, predict(params, all_inputs))
            for each batch, inside the differentiated function:
                values = objective.values(state, dist, targets, indices=indices, key=key)
                loss = values.mean() + objective.penalty(mean_params, precision_params)

    Args:
        name: one of the names in `LOSSES`.
        **hyperparameters: keyword arguments of that loss; for `wong_toi` also those of
            `wong_toi_penalty`.

    Returns:
        Four pure functions; see `Objective`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> dist, targets = Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 2.0])
        >>> key, indices = jax.random.key(0), jnp.arange(2)
        >>> for name in ("unit_variance", "trustable"):
        ...     objective = make_objective(name)
        ...     state = objective.init(dist)
        ...     print(objective.values(state, dist, targets, indices=indices, key=key).round(3))
        [0.5 2. ]
        [0.01 0.05]
    """
    if name not in LOSSES:
        raise ValueError(f"`name` must be one of {', '.join(LOSSES)}; got {name!r}.")
    return _BUILDERS.get(name, _plain)(name, hyperparameters)


def _no_state(predictions: Family) -> State:
    return ()


def _keep_state(state: State, predictions: Family) -> State:
    return state


def _no_penalty(mean_params: chex.ArrayTree, precision_params: chex.ArrayTree) -> Array:
    return jnp.asarray(0.0)  # weakly typed: it must not widen the loss


def _plain(name: str, hyperparameters: dict[str, chex.Numeric]) -> Objective:
    loss = LOSSES[name]
    _check_names(name, hyperparameters, _keywords(loss))

    def values(state, dist, targets, *, indices, key, where=None, weights=None):
        return loss(dist, targets, where=where, weights=weights, **hyperparameters)

    return Objective(_no_state, values, _no_penalty, _keep_state)


def _collier(name: str, hyperparameters: dict[str, chex.Numeric]) -> Objective:
    _check_names(name, hyperparameters, _keywords(collier) - {"key"})

    def values(state, dist, targets, *, indices, key, where=None, weights=None):
        return collier(dist, targets, where=where, weights=weights, key=key, **hyperparameters)

    return Objective(_no_state, values, _no_penalty, _keep_state)


def _trustable(name: str, hyperparameters: dict[str, chex.Numeric]) -> Objective:
    _check_names(name, hyperparameters, _keywords(trustable) - {"reference"})
    bounds = {k: v for k, v in hyperparameters.items() if k in ("mean_bound", "scale_bound")}

    def values(state, dist, targets, *, indices, key, where=None, weights=None):
        reference = gather_references(state, indices)
        return trustable(
            dist, targets, reference=reference, where=where, weights=weights, **hyperparameters
        )

    refresh = functools.partial(refresh_references, **bounds)
    return Objective(init_references, values, _no_penalty, refresh)


def _wong_toi(name: str, hyperparameters: dict[str, chex.Numeric]) -> Objective:
    penalty_names = _keywords(wong_toi_penalty)
    _check_names(name, hyperparameters, _keywords(wong_toi) | penalty_names)
    of_loss = {k: v for k, v in hyperparameters.items() if k in _keywords(wong_toi)}
    of_penalty = {k: v for k, v in hyperparameters.items() if k in penalty_names}
    plain = _plain(name, of_loss)
    return plain._replace(penalty=functools.partial(wong_toi_penalty, **of_penalty))


def _check_names(name: str, given: Iterable[str], known: set[str]) -> None:
    """Rejects hyper-parameters that the loss does not have."""
    unknown = sorted(set(given) - known)
    if unknown:
        listing = ", ".join(sorted(known)) or "none"
        raise TypeError(f"`{name}` has no hyper-parameter {', '.join(unknown)}; it has: {listing}.")


def _keywords(function: Callable[..., object]) -> set[str]:
    """The hyper-parameters of a loss: its keyword-only arguments but mask and weights."""
    parameters = inspect.signature(function).parameters.values()
    names = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    return names - {"where", "weights"}


_BUILDERS: dict[str, Callable[[str, dict[str, chex.Numeric]], Objective]] = {
    "collier": _collier,
    "trustable": _trustable,
    "wong_toi": _wong_toi,
}
