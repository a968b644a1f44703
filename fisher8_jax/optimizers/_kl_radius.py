"""The KL radius: the length of a step in units of how far the predictions move.

A learning rate says how far the parameters move. What that does to the predictions depends on the
network, the batch size, the predicted variances and the optimizer before it. The radius turns this
around. It takes the finished update `u` of any Optax chain, asks by one forward-mode derivative how
far it moves the predicted distributions of the current batch,

    q = mean(1/2 (J u)' F (J u)),

and multiplies the update by `sqrt(max_kl / q)`: in the mode 'target' always, in the mode 'cap' only
if that makes it shorter. How far the parameters may move on the way is bounded by `max_change`, see
`_relative_change.py`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.typing import DTypeLike

from fisher8_jax._fisher8 import check_family
from fisher8_jax._internal.checks import check_choice, check_positive
from fisher8_jax._internal.numerics import AxisName, all_finite, at_least_float32
from fisher8_jax.families import Family
from fisher8_jax.optimizers._measure import (
    PREDICTED,
    Elements,
    Predict,
    mean_per_element,
    push_forward,
)
from fisher8_jax.optimizers._measured_steps import (
    MeasuredLength,
    as_schedule,
    measure_every_few_steps,
)
from fisher8_jax.optimizers._radius_checks import (
    check_measure_every,
    check_update_arguments,
)
from fisher8_jax.optimizers._relative_change import has_matrix, relative_change, typical_size

# A correction aims a little inside the radius and at most halves the step.
_AIM = 0.98
_LARGEST_CORRECTION, _MOST_CORRECTIONS = 0.5, 10


class KLRadiusState(NamedTuple):
    """Counters and measurements of the last step; read them with `optax.tree_utils.tree_get`.

    Attributes:
        count: updates so far.
        scale: the factor on the last update; 0 if it was dropped.
        quadratic_kl: the KL divergence of the last step to second order, mean per element.
        exact_kl: its exact divergence, or None unless `exact=True`.
        skipped: updates dropped so far because they could not be measured.
        typical_size: of the parameters at the start, or None without `max_change`.
        change: the largest relative change of a parameter array by the last step, or None.
        wanted_change: what the KL radius alone would have changed, or None. If it stays far above
            `change`, the predictions hardly answer to the parameters: a collapse is near.
        measured: what the steps until the next measurement rely on, or None where every step is
            measured. In those steps the divergence and the changes are what it predicts.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian, scale_by_kl_radius
        >>> radius, params = scale_by_kl_radius(0.02), jnp.zeros(2)
        >>> predict = lambda mean: Gaussian(mean, jnp.zeros(2))
        >>> _, state = radius.update(-jnp.ones(2), radius.init(params), params, predict=predict)
        >>> scale = optax.tree_utils.tree_get(state, "scale")
        >>> print(f"{scale:.1f}, {state.skipped} skipped")  # 0.02 nats = 0.2^2 / 2 per element
        0.2, 0 skipped
    """

    count: Array  # type: ignore[assignment]
    scale: Array
    quadratic_kl: Array
    exact_kl: Array | None
    skipped: Array
    typical_size: Array | None = None
    change: Array | None = None
    wanted_change: Array | None = None
    measured: MeasuredLength | None = None


def scale_by_kl_radius(
    max_kl: float | Array | optax.Schedule,
    *,
    mode: Literal["target", "cap"] = "target",
    max_change: float | Array | optax.Schedule | None = None,
    exact: bool = False,
    measure: Literal["derivative", "difference"] = "derivative",
    measure_every: int | Array | None = None,
    axis_name: AxisName | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Scales an update so that the predictions of the batch move by a KL divergence of `max_kl`.

        q = mean(1/2 (J updates)' F (J updates))
        updates * sqrt(max_kl / q)              mode 'target'
        updates * min(1, sqrt(max_kl / q))      mode 'cap'

    It must be the last link of the chain. Its `update` takes more arguments by keyword: `predict`,
    the function from parameters to the predicted distribution of the current batch, without
    `fisher8` in it; optionally `where`, the boolean mask of the loss; and optionally `step_kl`, the
    value of `q` if it is known, as from `network_gradient` when no link stands in between that
    changes more than a sign. Then nothing is differentiated and `predict` is needed only by
    `exact`. The mean runs over all elements of the predictions' batch shape.

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
        max_change: the part of its own size by which a step may at most move any array of the
            parameters, a number or an Optax schedule; None for no bound. The whole step is
            shortened, so its direction stays. Sizes are root mean squares; an array smaller than
            the typical matrix at the start, such as a bias at zero, counts as that large. Without
            a matrix there are no hidden units to protect, and no bound.
        exact: True measures the divergence of the step itself, by one more forward pass, and
            shortens the step until it is at most `max_kl`, ten times at most; then it is dropped.
        measure: 'derivative' is one forward-mode derivative, exact and about twice the cost of a
            forward pass; 'difference' compares two forward passes, of which the compiler shares one
            with the gradient. Its error is below about one percent, the network must compute in at
            least float32, and `predict` may contain functions without a forward-mode derivative.
        measure_every: how many steps rely on one measurement; None measures each. As many at the
            start are measured, too. The others are scaled by their length alone: cheaper, but they
            move by `max_kl` only as far as batches and directions are alike. Not with `exact`.
        axis_name: the mapped axis (or axes) that the batch is split over under `jax.vmap`,
            `jax.pmap` or `jax.shard_map`. Not needed under `jax.jit` with sharded arrays.

    Returns:
        An Optax transformation whose state is a `KLRadiusState`.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.optimizers import scale_by_kl_radius
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
    if max_change is not None and not callable(max_change):
        check_positive("max_change", max_change)
    check_choice("mode", mode, ("target", "cap"))
    check_choice("measure", measure, ("derivative", "difference"))
    by_difference = measure == "difference"
    check_measure_every(measure_every, exact=exact)

    def init(params: optax.Params) -> KLRadiusState:
        # An array of its own for each field: a donated state must not hold one buffer twice.
        def zero(dtype: DTypeLike = jnp.float32) -> Array:
            return jnp.zeros((), dtype)

        exact_kl = zero() if exact else None
        state = KLRadiusState(zero(jnp.int32), zero(), zero(), exact_kl, zero(jnp.int32))
        if max_change is None:
            return state
        return state._replace(
            typical_size=typical_size(params), change=zero(), wanted_change=zero()
        )

    def update(
        updates: optax.Updates,
        state: KLRadiusState,
        params: optax.Params | None = None,
        *,
        predict: Predict | None = None,
        where: Array | None = None,
        step_kl: Array | None = None,
        **extra_args: object,
    ) -> tuple[optax.Updates, KLRadiusState]:
        del extra_args
        check_update_arguments(
            updates,
            params,
            predict,
            needs_predict=exact or step_kl is None,
        )
        elements = Elements(where, axis_name)
        if step_kl is not None:
            unit_kl, size = at_least_float32(jnp.asarray(step_kl)), jnp.ones(())
        else:
            assert predict is not None
            movement = push_forward(predict, params, updates, elements, by_difference=by_difference)
            size = movement.size
            half_norm = 0.5 * movement.dist.fisher_norm_sq(movement.direction)
            unit_kl = mean_per_element(half_norm, elements)
        radius = jnp.asarray(as_schedule(max_kl)(state.count), unit_kl.dtype)
        scale = _scale(size, unit_kl, radius, mode)
        wanted, unit_change = scale, None
        if max_change is not None:
            assert state.typical_size is not None
            unit_change = relative_change(updates, params, state.typical_size)
            bound = as_schedule(max_change)(state.count)
            scale = _shorten_to(scale, unit_change, jnp.asarray(bound, unit_change.dtype))
        exact_kl = None
        if exact:
            assert predict is not None
            dist = _widen(predict(params)) if step_kl is not None else movement.dist

            def divergence(scale: Array) -> Array:
                moved = optax.apply_updates(params, _multiply(updates, scale))
                return _mean_kl(dist, predict(moved), elements)

            scale, exact_kl = _shorten(scale, divergence, radius)
        scaled = _multiply(updates, scale)
        usable = _is_finite(scaled, scale, unit_change) & ((unit_kl > 0) | (mode == "cap"))
        quadratic_kl = jnp.square(scale * size) * unit_kl
        scaled = jax.tree.map(lambda leaf: jnp.where(usable, leaf, 0), scaled)
        state = _next_state(state, usable, scale, quadratic_kl, exact_kl)
        if unit_change is not None:
            state = _note_changes(state, usable, unit_change, scale, wanted)
        return scaled, state

    radius = optax.GradientTransformationExtraArgs(init, update)
    if measure_every is None:
        return radius
    bound = None if max_change is None else as_schedule(max_change)
    return measure_every_few_steps(
        radius, measure_every, as_schedule(max_kl), bound, is_cap=mode == "cap"
    )


def _scale(size: Array, unit_kl: Array, radius: Array, mode: str) -> Array:
    """The factor on the update; nan if the movement cannot be measured."""
    is_still = (size == 0) | (unit_kl == 0)
    # Roots and quotients one by one, because their combinations overflow earlier.
    scale = jnp.sqrt(radius) / jnp.sqrt(jnp.where(is_still, 1, unit_kl))
    scale = scale / jnp.where(is_still, 1, size)
    scale = jnp.where(jnp.isfinite(unit_kl) & jnp.isfinite(size), scale, jnp.nan)
    if mode == "cap":
        return jnp.where(is_still, 1, jnp.minimum(scale, 1))
    return scale


def _is_finite(scaled: optax.Updates, scale: Array, unit_change: Array | None) -> Array:
    """Whether an update is; known without another look at it where its relative change is."""
    is_narrow = any(leaf.dtype.itemsize < 4 for leaf in jax.tree.leaves(scaled))
    if unit_change is None or is_narrow or not has_matrix(scaled):
        return all_finite(scaled)
    return jnp.isfinite(scale * unit_change)


def _shorten_to(scale: Array, unit_change: Array, bound: Array) -> Array:
    """The factor, or the one that changes the parameters by `bound` if that is smaller."""
    largest = bound / jnp.where(unit_change == 0, 1, unit_change)
    return jnp.where(unit_change == 0, scale, jnp.minimum(scale, largest))


def _multiply(updates: optax.Updates, scale: Array) -> Any:
    """`scale * updates` in their own dtypes, rounded once; a factor of 1 changes no bit."""
    return jax.tree.map(lambda leaf: (at_least_float32(leaf) * scale).astype(leaf.dtype), updates)


def _mean_kl(dist: Family, moved: Family, elements: Elements) -> Array:
    return mean_per_element(dist.kl(_widen(moved)), elements)


def _widen(dist: Family) -> Family:
    return jax.tree.map(at_least_float32, check_family(PREDICTED, dist))


def _shorten(
    scale: Array, divergence: Callable[[Array], Array], radius: Array
) -> tuple[Array, Array]:
    """Shortens until `divergence(scale)` is at most `radius`; nan if that does not happen."""

    def is_too_far(carry: tuple[Array, Array, Array]) -> Array:
        _, kl, tries = carry
        return ~(kl <= radius) & (tries < _MOST_CORRECTIONS)

    def shorten(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scale, kl, tries = carry
        factor = jnp.clip(_AIM * jnp.sqrt(radius / kl), _LARGEST_CORRECTION, _AIM)
        scale = scale * jnp.where(jnp.isfinite(kl), factor, _LARGEST_CORRECTION)
        return scale, divergence(scale).astype(kl.dtype), tries + 1

    kl = divergence(scale).astype(radius.dtype)
    tries = jnp.zeros((), jnp.int32)
    scale, kl, _ = lax.while_loop(is_too_far, shorten, (scale, kl, tries))
    return jnp.where(kl <= radius, scale, jnp.nan), kl


def _next_state(
    state: KLRadiusState,
    usable: Array,
    scale: Array,
    quadratic_kl: Array,
    exact_kl: Array | None,
) -> KLRadiusState:
    """The next state; finite whatever the update was, because dropped steps read as 0."""

    def reported(value: Array) -> Array:
        return jnp.where(usable, value, 0).astype(jnp.float32)

    return state._replace(
        count=optax.safe_increment(state.count),
        scale=reported(scale),
        quadratic_kl=reported(quadratic_kl),
        exact_kl=None if exact_kl is None else reported(exact_kl),
        skipped=jnp.where(usable, state.skipped, optax.safe_increment(state.skipped)),
    )


def _note_changes(
    state: KLRadiusState, usable: Array, unit_change: Array, scale: Array, wanted: Array
) -> KLRadiusState:
    """Both relative changes; the wanted one may be far beyond the range of numbers."""
    largest = jnp.finfo(jnp.float32).max

    def reported(factor: Array) -> Array:
        change = jnp.minimum(factor * unit_change, largest)
        return jnp.where(usable & (unit_change > 0), change, 0).astype(jnp.float32)

    return state._replace(change=reported(scale), wanted_change=reported(wanted))
