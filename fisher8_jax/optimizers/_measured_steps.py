"""A KL radius that is measured every few steps: the steps between rely on the last measurement.

Along an update of length `l` the predictions move by a divergence of `kl * l^2` and the parameters
by a relative change of `change * l`. Both factors depend on the batch and on the direction, which
momentum lets turn only slowly. So they are kept, and the length alone is computed in every step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fisher8_jax._internal.numerics import at_least_float32, group_small

# What is left of an older measurement at the next one, if it was larger.
_KEPT = 0.8


class MeasuredLength(NamedTuple):
    """What updates of length 1 did when they were measured.

    Attributes:
        kl: their divergence, mean per element; the largest of recent ones, each counted less from
            measurement to measurement.
        change: the largest relative change of a parameter array, or None without `max_change`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, scale_by_kl_radius
        >>> radius, params = scale_by_kl_radius(0.02, measure_every=4), jnp.zeros(2)
        >>> predict = lambda mean: Gaussian(mean, jnp.zeros(2))
        >>> _, state = radius.update(-jnp.ones(2), radius.init(params), params, predict=predict)
        >>> print(f"{state.measured.kl:.2f}")  # half a nat for one of two means
        0.25
    """

    kl: Array
    change: Array | None


def as_schedule(value: float | Array | optax.Schedule) -> optax.Schedule:
    """A number as a schedule that stays."""
    return value if callable(value) else lambda _: value


def measure_every_few_steps(
    radius: optax.GradientTransformationExtraArgs,
    measure_every: int | Array,
    max_kl: optax.Schedule,
    max_change: optax.Schedule | None,
    *,
    is_cap: bool,
) -> optax.GradientTransformationExtraArgs:
    """`radius`, asked in every `measure_every`-th step and in as many at the start.

    Args:
        radius: a `scale_by_kl_radius`.
        measure_every: how many steps rely on one measurement.
        max_kl: the radius as a schedule.
        max_change: the bound on relative changes as a schedule, or None.
        is_cap: whether the mode of the radius is 'cap'.
    """

    def init(params: optax.Params) -> optax.OptState:
        state = radius.init(params)
        change = None if max_change is None else jnp.zeros((), jnp.float32)
        return state._replace(measured=MeasuredLength(jnp.zeros((), jnp.float32), change))

    def rely(state: Any, length: Array) -> Any:
        kl, change = state.measured
        unit_kl = jnp.square(length) * kl
        scale = jnp.sqrt(max_kl(state.count) / unit_kl)
        scale = jnp.minimum(scale, 1) if is_cap else scale
        wanted = scale
        if change is not None:
            assert max_change is not None
            scale = jnp.where(
                change == 0, scale, jnp.minimum(scale, max_change(state.count) / (change * length))
            )
        usable = jnp.isfinite(scale) & jnp.isfinite(length) & (length > 0)
        new = {"scale": scale, "quadratic_kl": jnp.square(scale) * unit_kl}
        if change is not None:
            new |= {"change": scale * change * length, "wanted_change": wanted * change * length}
        new = {n: jnp.where(usable, x, 0).astype(jnp.float32) for n, x in new.items()}
        skipped = jnp.where(usable, state.skipped, optax.safe_increment(state.skipped))
        return state._replace(count=optax.safe_increment(state.count), skipped=skipped, **new)

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None, **extra_args: object
    ) -> tuple[optax.Updates, optax.OptState]:
        if extra_args.get("step_kl") is not None:
            return radius.update(updates, state, params, **extra_args)
        length = _length(updates)

        def measure(state: Any) -> Any:
            new = radius.update(updates, state, params, **extra_args)[1]
            return new._replace(measured=_remember(state.measured, new, length))

        is_due = state.count % measure_every == 0
        is_due |= (state.count < measure_every) | (state.measured.kl == 0)
        state = lax.cond(is_due, measure, lambda state: rely(state, length), state)
        return jax.tree.map(lambda leaf: _multiply(leaf, state.scale), updates), state

    return optax.GradientTransformationExtraArgs(init, update)


def _length(updates: optax.Updates) -> Array:
    """The Euclidean length of all arrays together; not finite if one of their numbers is not."""
    squares = [jnp.vdot(x, x).real for x in group_small(updates)]
    return jnp.sqrt(sum(squares, jnp.zeros(()))).astype(jnp.float32)


def _remember(old: MeasuredLength, state: Any, length: Array) -> MeasuredLength:
    """With a new measurement; one that was dropped changes nothing."""
    moved = state.scale * length
    is_known = moved > 0
    moved = jnp.where(is_known, moved, 1)
    kl = state.quadratic_kl / jnp.square(moved)
    # A batch that hardly answers must not let the next ones go far.
    kl = jnp.maximum(kl, _KEPT * old.kl)
    change = None if old.change is None else jnp.where(is_known, state.change / moved, old.change)
    return MeasuredLength(jnp.where(is_known, kl, old.kl), change)


def _multiply(leaf: Array, scale: Array) -> Array:
    """Zeros for a step that was dropped, whatever it was."""
    return jnp.where(scale == 0, 0, at_least_float32(leaf) * scale).astype(leaf.dtype)
