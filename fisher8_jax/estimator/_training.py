"""The training loop of the estimator: members in one `vmap`, steps in one `scan`.

A *round* is a fixed number of passes over the training rows and then one look at the held-out NLL.
Several rounds make a *chunk*, which is one call of one compiled program. What a member computes
depends on its own key and rows alone, never on the other members.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fisher8_jax._fisher8 import fisher8_nll
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator._network import Network
from fisher8_jax.families import Family
from fisher8_jax.transforms import scale_by_kl_radius

# The part of the steps in which they grow, and where in it the first one stands.
_WARM_UP, _FIRST_STEP = 0.2, 0.004

# The average of parameters over about this many steps is what is judged and kept.
_AVERAGED_STEPS = 100.0


class Plan(NamedTuple):
    """Everything that is fixed while compiling; hashable."""

    network: Network
    batch: int
    passes: int  # over the training rows in a round
    rounds: int  # in a chunk


class Schedule(NamedTuple):
    """Numbers that may change without compiling again."""

    max_kl: Array
    total_steps: Array
    patience: Array  # rounds without a better held-out NLL


class Rows(NamedTuple):
    """Standardised rows of data."""

    inputs: Array
    targets: Array
    where: Array  # False for missing targets
    weights: Array


class Folds(NamedTuple):
    """The row numbers that each member learns from and is judged by, members first."""

    train: Any
    held_out: Any


class Member(NamedTuple):
    """The state of one member's training."""

    params: Any
    average: Any
    optimizer: Any
    key: Array
    step: Array
    best: Any
    best_nll: Array
    waited: Array  # rounds since the best


def optimizer_of(schedule: Schedule) -> optax.GradientTransformationExtraArgs:
    """Nesterov momentum with a KL radius: steps grow linearly at first, then shrink to 0.

    Noisy data are learned while the steps are still short, and early stopping ends there. Data with
    little noise need the long steps that come later.
    """

    def radius(count: Array) -> Array:
        done = count / schedule.total_steps
        growth = (done + _FIRST_STEP) / _WARM_UP
        return (
            schedule.max_kl * jnp.clip(jnp.minimum(growth, (1 - done) / (1 - _WARM_UP)), 0, 1) ** 2
        )

    return optax.chain(
        optax.trace(decay=0.9, nesterov=True), optax.scale(-1.0), scale_by_kl_radius(radius)
    )


@functools.partial(jax.jit, static_argnums=0)
def start_members(plan: Plan, schedule: Schedule, row: Array, keys: Array) -> Member:
    """Fresh members, one per key; `row` is one row of inputs."""

    def start(key: Array) -> Member:
        init_key, key = jax.random.split(key)
        params = plan.network.init(init_key, row)
        optimizer = optimizer_of(schedule).init(params)
        none = jnp.zeros((), jnp.int32)
        worst = jnp.full((), jnp.inf, row.dtype)
        return Member(params, params, optimizer, key, none, params, worst, none)

    return jax.vmap(start)(keys)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def train_chunk(
    plan: Plan, schedule: Schedule, members: Member, data: Rows, folds: Folds
) -> tuple[Member, Array]:
    """Runs one chunk; returns the members and their held-out NLL after each round."""

    def of_member(member: Member, fold: Folds) -> tuple[Member, Array]:
        def body(member: Member, _: None) -> tuple[Member, Array]:
            trained = _run_round(plan, schedule, member, data, fold.train)
            value = held_out_nll(plan.network, trained.average, _take(data, fold.held_out))
            return _keep_best(schedule, member, trained, value), value

        return lax.scan(body, member, None, length=plan.rounds)

    return jax.vmap(of_member)(members, folds)


@functools.partial(jax.jit, static_argnums=0)
def predict_mixture(network: Network, params: Any, inputs: Array) -> Mixture:
    """The mixture of all members, in standardised units."""
    return Mixture(jax.vmap(lambda p: apply(network, p, inputs))(params))


def apply(network: Network, params: Any, inputs: Array) -> Family:
    """The distribution that one member predicts."""
    dist = network.apply(params, inputs)
    assert isinstance(dist, Family)
    return dist


def has_stopped(schedule: Schedule, member: Member) -> Array:
    """True for a member that has waited too long or has used its steps."""
    return (member.waited >= schedule.patience) | (member.step >= schedule.total_steps)


def held_out_nll(network: Network, params: Any, rows: Rows) -> Array:
    """The weighted mean NLL of some rows, missing targets left out."""
    values = apply(network, params, rows.inputs).nll(rows.targets)
    weights = jnp.where(rows.where, _per_target(rows), 0)
    total = jnp.sum(weights)
    return jnp.sum(jnp.where(rows.where, values, 0) * weights) / jnp.where(total == 0, 1, total)


def _run_round(
    plan: Plan, schedule: Schedule, member: Member, data: Rows, train_rows: Array
) -> Member:
    key, shuffle_key = jax.random.split(member.key)
    batches = _shuffled_batches(plan, shuffle_key, train_rows)

    def body(member: Member, rows: Array) -> tuple[Member, None]:
        return _take_step(plan.network, schedule, member, _take(data, rows)), None

    return lax.scan(body, member._replace(key=key), batches)[0]


def _shuffled_batches(plan: Plan, key: Array, train_rows: Array) -> Array:
    """Row numbers (steps, batch): passes without their partial batch."""
    per_pass = len(train_rows) // plan.batch

    def one_pass(key: Array) -> Array:
        return jax.random.permutation(key, train_rows)[: per_pass * plan.batch]

    shuffled = jax.vmap(one_pass)(jax.random.split(key, plan.passes))
    return shuffled.reshape(plan.passes * per_pass, plan.batch)


def _take_step(network: Network, schedule: Schedule, member: Member, rows: Rows) -> Member:
    def predict(params: Any) -> Family:
        return apply(network, params, rows.inputs)

    def loss(params: Any) -> Array:
        weights = _per_target(rows)
        return jnp.sum(
            fisher8_nll(predict(params), rows.targets, where=rows.where, weights=weights)
        )

    gradients = jax.grad(loss)(member.params)
    updates, optimizer = optimizer_of(schedule).update(
        gradients, member.optimizer, member.params, predict=predict, where=rows.where
    )
    params = optax.apply_updates(member.params, updates)
    share = 1 / jnp.minimum((member.step + 1).astype(jnp.float32), _AVERAGED_STEPS)
    average = optax.incremental_update(params, member.average, share)
    return member._replace(
        params=params, average=average, optimizer=optimizer, step=member.step + 1
    )


def _keep_best(schedule: Schedule, before: Member, after: Member, value: Array) -> Member:
    """`after` with the best parameters so far; `before` itself if it had already stopped."""
    is_better = value < before.best_nll
    after = after._replace(
        best=jax.tree.map(
            lambda new, old: jnp.where(is_better, new, old), after.average, before.best
        ),
        best_nll=jnp.where(is_better, value, before.best_nll),
        waited=jnp.where(is_better, 0, before.waited + 1),
    )
    stopped = has_stopped(schedule, before)
    return jax.tree.map(lambda new, old: jnp.where(stopped, old, new), after, before)


def _take(data: Rows, rows: Array) -> Rows:
    return Rows(*(leaf[rows] for leaf in data))


def _per_target(rows: Rows) -> Array:
    """Row weights in front of every target of the row."""
    weights = rows.weights.reshape(-1, *(1,) * (rows.targets.ndim - 1))
    return jnp.broadcast_to(weights, rows.targets.shape)
