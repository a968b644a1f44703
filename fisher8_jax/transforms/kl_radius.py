"""The KL radius: the length of a step in units of how far the predictions move.

A learning rate says how far the parameters move. What that does to the predictions depends on the
network, the batch size, the predicted variances and the optimiser before it. The radius turns this
around. It takes the finished update `u` of any Optax chain, asks by one forward-mode derivative how
far it moves the predicted distributions of the current batch,

    q = mean(1/2 (J u)' F (J u)),

and multiplies the update by `sqrt(max_kl / q)`: in the mode 'target' always, in the mode 'cap' only
if that makes it shorter.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fisher8_jax._checks import check_positive
from fisher8_jax._numerics import AxisName, at_least_float32
from fisher8_jax.families.contract import Family
from fisher8_jax.transforms._checks import check_mode, check_prediction, check_update_arguments
from fisher8_jax.transforms._measure import (
    Direction,
    Linearized,
    Predict,
    direction_of,
    mean_per_element,
    push_forward,
)

# A correction aims a little inside the radius and at most halves the step.
_AIM = 0.98
_LARGEST_CORRECTION = 0.5


class KLRadiusState(NamedTuple):
    """Counters and readouts of the last step; read them with `optax.tree_utils.tree_get`.

    Attributes:
        count: updates so far.
        scale: the factor on the last update; 0 if it was dropped.
        quadratic_kl: the KL divergence of the last step to second order, mean per element.
        exact_kl: its exact divergence, or None unless `exact=True`.
        skipped: updates dropped so far because they could not be measured.
    """

    count: Array  # type: ignore[assignment]
    scale: Array
    quadratic_kl: Array
    exact_kl: Array | None
    skipped: Array


def scale_by_kl_radius(
    max_kl: float | Array | optax.Schedule,
    *,
    mode: Literal["target", "cap"] = "target",
    exact: bool = False,
    max_backtracks: int = 10,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Scales an update so that the predictions of the batch move by a KL divergence of `max_kl`.

        q = mean(1/2 (J updates)' F (J updates))
        updates * sqrt(max_kl / q)              mode 'target'
        updates * min(1, sqrt(max_kl / q))      mode 'cap'

    It must be the last link of the chain. Its `update` takes more arguments by keyword: `predict`,
    the function from parameters to the predicted distribution of the current batch, without
    `fisher8` in it; optionally `where`, the boolean mask of the loss; and optionally `linearized`,
    the pair `jax.linearize(predict, params)` if the gradient was computed from it already. The mean
    runs over all elements of the predictions' batch shape.

    The step is proportional to `sqrt(max_kl)`. For a step that decays linearly to 0 use
    `optax.polynomial_schedule(max_kl, 0.0, power=2, transition_steps=steps)`, for a cosine
    `optax.cosine_decay_schedule(max_kl, steps, exponent=2)`.

    An update that is not finite, or whose `q` is not, is replaced by zeros and counted in
    `skipped`. An update that does not move the predictions at all (`q = 0`) has no radius: 'target'
    drops it in the same way, 'cap' leaves it as it is.

    Args:
        max_kl: the radius in nats, a number or an Optax schedule.
        mode: 'target' always moves `max_kl`, so that there is no learning rate; 'cap' leaves
            shorter updates untouched to the bit.
        exact: True measures the divergence of the step itself, by one more forward pass, and
            shortens the step until it is at most `max_kl`.
        max_backtracks: the largest number of corrections if `exact`; a step that is still too long
            after them is dropped.
        axis_name: the mapped axis (or axes) that the batch is split over under `jax.vmap`,
            `jax.pmap` or `jax.shard_map`. Not needed under `jax.jit` with sharded arrays.

    Returns:
        An Optax transformation whose state is a `KLRadiusState`.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.transforms import scale_by_kl_radius
        >>> def predict(params):
        ...     return Gaussian(mean=params * jnp.ones(3), log_variance=jnp.zeros(3))
        >>> optimizer = optax.chain(optax.sgd(1.0), scale_by_kl_radius(0.5))
        >>> params = jnp.array(0.0)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(jnp.array(-7.0), state, params, predict=predict)
        >>> print(f"{updates:.3f}")  # a shift by one standard deviation has a KL of 1/2
        1.000
        >>> print(f"{optax.tree_utils.tree_get(state, 'quadratic_kl'):.3f}")
        0.500
    """
    if not callable(max_kl):
        check_positive("max_kl", max_kl)
    check_mode(mode)
    check_positive("max_backtracks", max_backtracks)

    def init(params: Any) -> KLRadiusState:
        del params
        zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        return KLRadiusState(none, zero, zero, zero if exact else None, none)

    def update(
        updates: Any,
        state: KLRadiusState,
        params: Any = None,
        *,
        predict: Predict | None = None,
        linearized: Linearized | None = None,
        where: Array | None = None,
        **extra_args: Any,
    ) -> tuple[Any, KLRadiusState]:
        del extra_args
        check_update_arguments(updates, params, predict, linearized, exact=exact)
        direction = direction_of(updates)
        dist, change = push_forward(predict, linearized, params, direction.unit)
        unit_kl = mean_per_element(0.5 * dist.fisher_norm_sq(change), where, axis_name)
        radius = jnp.asarray(max_kl(state.count) if callable(max_kl) else max_kl, unit_kl.dtype)
        length = _length(direction, unit_kl, radius, mode)
        exact_kl = None
        if exact:

            def divergence(length: Array) -> Array:
                moved = optax.apply_updates(params, _resize(updates, direction, length, mode))
                assert predict is not None
                return _mean_kl(dist, predict(moved), where, axis_name)

            length, exact_kl = _shorten(length, divergence, radius, max_backtracks)
        # The largest entry of the update is `length`, which must exist in the dtype of every leaf.
        usable = (length <= _largest_number(updates)) & ((unit_kl > 0) | (mode == "cap"))
        length = jnp.where(usable, length, 0)
        new_state = _readouts(state, direction, unit_kl, length, exact_kl, usable)
        return _resize(updates, direction, length, mode), new_state

    return optax.GradientTransformationExtraArgs(init, update)


def _length(direction: Direction, unit_kl: Array, radius: Array, mode: str) -> Array:
    """The size of the largest entry of the scaled update; nan if it cannot be measured."""
    is_still = unit_kl == 0
    # Two roots, because the quotient overflows for a tiny `unit_kl`.
    length = jnp.sqrt(radius) / jnp.sqrt(jnp.where(is_still, 1, unit_kl))
    length = jnp.where(jnp.isfinite(unit_kl), length, jnp.nan)
    if mode == "cap":
        return jnp.where(is_still, direction.largest, jnp.minimum(length, direction.largest))
    return length


def _resize(updates: Any, direction: Direction, length: Array, mode: str) -> Any:
    """`updates` with a largest entry of `length`, in their own dtypes; exact zeros for 0."""

    def resize(leaf: Array, unit: Array) -> Array:
        scaled = jnp.where(length == 0, 0, unit * length).astype(leaf.dtype)
        # Dividing by the largest entry and multiplying again would change the last bit.
        return jnp.where(length == direction.largest, leaf, scaled) if mode == "cap" else scaled

    return jax.tree.map(resize, updates, direction.unit)


def _mean_kl(dist: Family, moved: Family, where: Array | None, axis_name: AxisName | None) -> Array:
    moved = jax.tree.map(at_least_float32, check_prediction(moved))
    return mean_per_element(dist.kl(moved), where, axis_name)


def _shorten(
    length: Array, divergence: Callable[[Array], Array], radius: Array, max_backtracks: int
) -> tuple[Array, Array]:
    """Shortens until `divergence(length)` is at most `radius`; nan if that does not happen."""

    def is_too_far(carry: tuple[Array, Array, Array]) -> Array:
        _, kl, tries = carry
        return ~(kl <= radius) & (tries < max_backtracks)

    def shorten(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        length, kl, tries = carry
        factor = jnp.clip(_AIM * jnp.sqrt(radius / kl), _LARGEST_CORRECTION, _AIM)
        length = length * jnp.where(jnp.isfinite(kl), factor, _LARGEST_CORRECTION)
        return length, divergence(length).astype(kl.dtype), tries + 1

    kl = divergence(length).astype(radius.dtype)
    tries = jnp.zeros((), jnp.int32)
    length, kl, _ = lax.while_loop(is_too_far, shorten, (length, kl, tries))
    return jnp.where(kl <= radius, length, jnp.nan), kl


def _readouts(
    state: KLRadiusState,
    direction: Direction,
    unit_kl: Array,
    length: Array,
    exact_kl: Array | None,
    usable: Array,
) -> KLRadiusState:
    """The next state; finite whatever the update was, because dropped steps read as 0."""

    def readout(value: Array) -> Array:
        return jnp.where(length == 0, 0, value).astype(jnp.float32)

    divisor = jnp.where(direction.largest == 0, 1, direction.largest)
    return KLRadiusState(
        count=optax.safe_increment(state.count),
        scale=readout(length / divisor),
        quadratic_kl=readout(length**2 * unit_kl),
        exact_kl=None if exact_kl is None else readout(exact_kl),
        skipped=jnp.where(usable, state.skipped, optax.safe_increment(state.skipped)),
    )


def _largest_number(updates: Any) -> float:
    """The largest number that every leaf can hold."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(updates)]
    return min((float(jnp.finfo(dtype).max) for dtype in dtypes), default=float("inf"))
