"""The table of ways to train a member. A row is a candidate; held-out NLL chooses between rows.

Numbers of a row are traced, so rows of the same rule share one compiled program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from fisher8_jax.curvature import (
    GradientState,
    NetworkGradient,
    SecondMoments,
    network_gradient,
)
from fisher8_jax.estimator._checks import from_rows_on
from fisher8_jax.estimator._network import Network
from fisher8_jax.families import Family
from fisher8_jax.losses import make_objective
from fisher8_jax.optimizers import descend_within, scale_by_kl_radius
from fisher8_jax.training import Batch, Task

# The part of the steps in which they grow, and where in it the first one stands.
_WARM_UP, _FIRST_STEP = 0.2, 0.004

_FISHER8 = make_objective("fisher8")


class Settings(NamedTuple):
    """What may change without compiling again; a lane's settings in the training loop."""

    size: Any
    """The KL radius in nats, or the learning rate."""
    damping: Any
    total_steps: Any


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of the table.

    Args:
        rule: 'radius' is momentum with a KL radius that grows at first and then falls to 0; 'adam'
            is Adam on Fisher8 gradients with a learning rate that falls to 0, 'adam_nll' the same
            on the gradients of the NLL; 'network' is the natural gradient of the whole network
            with a KL radius that falls to 0, 'network_factored' the same damped by factored second
            moments instead of the identity.
        size: the radius in nats, or the learning rate.
        damping: of the whole network's Fisher information, for the rules that have one.
    """

    rule: Literal["radius", "adam", "adam_nll", "network", "network_factored"]
    size: float
    damping: float = 1.0


METHODS = {
    "radius": Method("radius", size=0.3),
    "adam": Method("adam", size=0.01),
    "network": Method("network", size=0.1, damping=0.1),
    "network_damped": Method("network", size=0.1, damping=1.0),
    "network_brisk": Method("network", size=0.3, damping=1.0),
    "network_bold": Method("network", size=1.0, damping=1.0),
    "network_factored": Method("network_factored", size=0.1, damping=10.0),
    "adam_nll": Method("adam_nll", size=0.001),
    "adam_nll_calm": Method("adam_nll", size=0.003),
    "adam_nll_fast": Method("adam_nll", size=0.01),
    "adam_nll_brisk": Method("adam_nll", size=0.015),
    "adam_nll_bold": Method("adam_nll", size=0.03),
}

# What is tried by default, from so many rows on. Few rows are learned by one program alone: the
# compilation of a second one would cost more than the training. On many rows a batch sees little of
# the curvature: the cheap steps of Adam are as good as most dear ones, and long dear ones do harm.
# There Fisher8 with Adam saves the data with hardly any noise, on which the plain NLL is lost.
_CHEAP = ("adam", "adam_nll_calm", "adam_nll_fast", "adam_nll_brisk")
_BY_ROWS = {
    0: ("network", "network_brisk", "network_bold"),
    600: ("network_brisk", "network_bold", "adam_nll_calm", "adam_nll_fast", "adam_nll_bold"),
    4000: ("network_damped", *_CHEAP),
    16_000: _CHEAP,
}


@dataclasses.dataclass(frozen=True)
class _Radius:
    """The recipe in front of a radius with a warm-up.

    Noisy data are learned while the steps are still short, and early stopping ends there. Data with
    little noise need the long steps that come later.
    """

    def __call__(self, settings: Settings) -> optax.GradientTransformation:
        def radius(count: Array) -> Array:
            done = count / settings.total_steps
            growth = (done + _FIRST_STEP) / _WARM_UP
            decay = (1 - done) / (1 - _WARM_UP)
            return settings.size * jnp.clip(jnp.minimum(growth, decay), 0, 1) ** 2

        return descend_within(scale_by_kl_radius(radius), 0.9, None)


@dataclasses.dataclass(frozen=True)
class _Adam:
    """The recipe's guard and second moments in front of a learning rate that falls to 0."""

    def __call__(self, settings: Settings) -> optax.GradientTransformation:
        def rate(count: Array) -> Array:
            return settings.size * jnp.clip(1 - count / settings.total_steps, 0, 1)

        length = optax.with_extra_args_support(optax.scale_by_schedule(rate))
        return descend_within(length, 0.9, 0.999)


class _Kept(NamedTuple):
    moments: SecondMoments


def _keep_moments() -> optax.GradientTransformationExtraArgs:
    """Has the second moments that a step returned at hand for the next one; changes nothing."""

    def init(params: chex.ArrayTree) -> _Kept:
        return _Kept(SecondMoments.zeros(params))

    def update(
        updates: chex.ArrayTree,
        state: _Kept,
        params: chex.ArrayTree | None = None,
        *,
        moments: SecondMoments,
        **extra: Any,
    ) -> tuple[chex.ArrayTree, _Kept]:
        return updates, _Kept(moments)

    return optax.GradientTransformationExtraArgs(init, update)


@dataclasses.dataclass(frozen=True)
class _Natural:
    """The recipe's guard in front of a radius that falls to 0; the direction is natural already."""

    factored: bool = False

    def __call__(self, settings: Settings) -> optax.GradientTransformation:
        def radius(count: Array) -> Array:
            return settings.size * jnp.clip(1 - count / settings.total_steps, 0, 1) ** 2

        descend = descend_within(scale_by_kl_radius(radius), 0.0, None)
        return optax.chain(_keep_moments(), descend) if self.factored else descend


@dataclasses.dataclass(frozen=True)
class _WholeNetwork:
    """The natural gradient of the whole network on a batch."""

    network: Network
    factored: bool

    def __call__(
        self, params: chex.ArrayTree, batch: Batch, settings: Settings, state: chex.ArrayTree
    ) -> NetworkGradient:
        moments = optax.tree_utils.tree_get(state, "moments") if self.factored else None
        return network_gradient(
            self.network.predict,
            params,
            batch.inputs,
            batch.targets,
            damping=settings.damping,
            where=batch.where,
            weights=batch.weights,
            state=GradientState(second_moments=moments),
        )


def _nll(
    state: chex.ArrayTree,
    dist: Family,
    targets: Array,
    *,
    indices: Array | None,
    key: Array,
    where: Array | None = None,
    weights: Array | None = None,
) -> Array:
    values = dist.nll(targets)
    values = values if weights is None else values * weights
    return values if where is None else jnp.where(where, values, 0)


_NLL = _FISHER8._replace(values=_nll)

_OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "radius": _Radius(),
    "adam": _Adam(),
    "adam_nll": _Adam(),
    "network": _Natural(),
    "network_factored": _Natural(factored=True),
}


def make_task(network: Network, method: Method, *, average: float) -> Task:
    """The task of one row; equal rows give equal tasks, which share their programs."""
    optimizer = _OPTIMIZERS[method.rule]
    if method.rule.startswith("network"):
        natural = _WholeNetwork(network, factored=method.rule == "network_factored")
        return Task(network, _FISHER8, optimizer, natural=natural, average=average)
    if method.rule == "adam_nll":
        return Task(network, _NLL, optimizer, average=average)
    return Task(network, _FISHER8, optimizer, average=average)


def lane_settings(method: Method, members: int, steps: int, size: float | None) -> chex.ArrayTree:
    """The settings of `members` lanes; `size` replaces the radius of the row."""
    has_radius = not method.rule.startswith("adam")
    value = size if size is not None and has_radius else method.size
    numbers = (value, method.damping, steps)
    return Settings(*(jnp.asarray(np.full(members, number, np.float32)) for number in numbers))


def check_methods(methods: Any, rows: int) -> dict[str, Method]:
    """The rows of the table that `methods` names; 'auto' depends on the number of data."""
    if isinstance(methods, str) and methods == "auto":
        methods = from_rows_on(_BY_ROWS, rows)
    names = (methods,) if isinstance(methods, str) else methods
    try:
        return {name: METHODS[name] for name in names}
    except (KeyError, TypeError):
        raise ValueError(
            f"`methods` must be 'auto' or one or several of {', '.join(map(repr, METHODS))}, got "
            f"{methods!r}."
        ) from None
