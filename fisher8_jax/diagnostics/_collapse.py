"""Does the network still look at its input? Dead units, and predictions that are all alike."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_floating, check_mask
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.diagnostics._diagnostic_checks import check_inputs, check_same_length
from fisher8_jax.families import Family


def dead_units(activations: Array, *, where: Array | None = None) -> Array:
    """Which units of a layer give the same value for every point of a batch.

    A ReLU whose input is negative for all points is such a unit: its gradient is zero, so training
    does not bring it back. Its mean is the share of dead units of the layer.

    Args:
        activations: outputs of the layer, units along the last axis, everything else is points.
        where: boolean, one per point, False for padding.

    Returns:
        One boolean per unit; nan activations are not dead.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> before = jnp.array([[1.0, -2.0, 0.5], [3.0, -1.0, 0.5]])
        >>> dead_units(jax.nn.relu(before))
        Array([False,  True,  True], dtype=bool)
    """
    activations = check_floating("activations", activations)
    if activations.ndim < 2 or 0 in activations.shape:
        raise ValueError(
            "`activations` must hold points and, along the last axis, units, got shape "
            f"{activations.shape}. Pass the outputs of one layer for a whole batch."
        )
    rows = activations.reshape(-1, activations.shape[-1])
    if where is None:
        mask = jnp.ones((rows.shape[0], 1), bool)
    else:
        mask = check_mask("where", where, activations.shape[:-1]).reshape(-1, 1)
    highest = jnp.max(rows, axis=0, where=mask, initial=-jnp.inf)
    lowest = jnp.min(rows, axis=0, where=mask, initial=jnp.inf)
    return highest == lowest


def constant_share(
    predict: Callable[[Array], Family],
    inputs: Array,
    *,
    tolerance: float = 1e-8,
    key: Array | None = None,
) -> Array:
    """The share of a batch whose prediction no longer depends on the input.

    Every input is moved in a random direction, each feature in proportion to its spread over the
    batch. A prediction counts as constant if that changes it by less than `tolerance` nats to
    second order. 0 is healthy; 1 means that the network has collapsed to one answer.

    Args:
        predict: maps inputs of shape (points, ...) to a distribution of batch shape (points, ...).
        inputs: at least two different points.
        tolerance: nats, half of `fisher_norm_sq` of the change.
        key: of the random direction.

    Returns:
        One number in [0, 1]; works under `jit`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> x = jnp.linspace(-1.0, 1.0, 4)
        >>> constant_share(lambda x: Gaussian(jnp.maximum(x, 0.0), jnp.zeros(4)), x)
        Array(0.5, dtype=float32)
    """
    inputs = check_inputs(inputs)
    key = jax.random.key(0) if key is None else key
    spread = jnp.std(at_least_float32(inputs), axis=0, keepdims=True)
    direction = spread * jax.random.normal(key, inputs.shape, spread.dtype)
    dist, change = jax.jvp(predict, (inputs,), (direction.astype(inputs.dtype),))
    check_same_length(dist, inputs)
    moved = 0.5 * dist.widen().fisher_norm_sq(change.widen())
    is_still = jnp.all(moved.reshape(inputs.shape[0], -1) < tolerance, axis=1)
    return jnp.mean(is_still, dtype=spread.dtype)
