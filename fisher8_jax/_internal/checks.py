"""One vocabulary of argument checks, with the wording of the errors they raise.

A function called `check_...` raises, here and in every subpackage; most return the argument in the
form that the caller needs. Every message names the argument, what was expected, what came, and the
likely fix. Checks use only shapes, dtypes and Python numbers, so they run while tracing and cost
nothing in a compiled step. Subpackages check what only they know in a module of their own.
"""

import numbers
from collections.abc import Iterable, Mapping
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from fisher8_jax._internal.numerics import AxisName

Shape = tuple[int, ...]
Axes = int | tuple[int, ...]


def check_floating(name: str, array: ArrayLike) -> Array:
    """Returns `array` as a JAX array, or says that it must be floating point."""
    array = _as_array(name, array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"`{name}` must be a floating-point array, got dtype {array.dtype}. "
            f"Convert it first, for instance `{name}.astype(jnp.float32)`."
        )
    return array


def check_real(name: str, array: ArrayLike) -> Array:
    """Returns `array` as a JAX array of integers or floats; booleans and complex are refused."""
    array = _as_array(name, array)
    kind = array.dtype
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        fix = f"{name}.real" if jnp.issubdtype(kind, jnp.complexfloating) else name
        raise TypeError(
            f"`{name}` must hold real numbers, got dtype {kind}. Convert it first if that is "
            f"meant, for instance `{fix}.astype(jnp.float32)`."
        )
    return array


def check_unmasked(name: str, array: object) -> None:
    """Rejects NumPy's masked arrays, whose mask JAX and scikit-learn do not know."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` is a masked array, and its mask would be lost. Pass `{name}.data`, and the "
            f"mask where one is asked for (`where=~{name}.mask`), or `{name}.filled(np.nan)`."
        )


def check_host_array(name: str, array: ArrayLike) -> np.ndarray:
    """Returns `array` as a NumPy array of numbers in the byte order of this machine."""
    check_unmasked(name, array)
    values = np.asarray(array)
    if not (jnp.issubdtype(values.dtype, np.number) or values.dtype == np.bool_):
        raise TypeError(
            f"`{name}` must be an array of numbers, got dtype {values.dtype}. Convert it first, "
            f"for instance `np.asarray({name}, np.float32)`."
        )
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def check_same_shape(arrays: Mapping[str, ArrayLike]) -> Shape:
    """Returns the one shape that all arrays share, or lists the shapes that differ."""
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    first, *others = shapes.values()
    if any(shape != first for shape in others):
        listing = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"All parameters of a distribution must have the same shape, got {listing}. "
            "Expand the smaller one explicitly with `jnp.broadcast_to`."
        )
    return first


def check_targets(targets: ArrayLike, shape: Shape, name: str = "targets") -> Array:
    """Returns `targets` as an array of real numbers of exactly the shape of the predictions."""
    targets = check_real(name, targets)
    if targets.shape == shape:
        return targets
    hint = "Nothing is broadcast here, because a silent (n, n) loss is a common bug."
    if (*targets.shape, 1) == shape:
        hint = f"Drop the last axis of the predictions (`[..., 0]`) or pass `{name}[..., None]`."
    elif targets.shape == (*shape, 1):
        hint = f"Pass `{name}[..., 0]`."
    raise ValueError(
        f"`{name}` must have the shape of the predictions, {shape}, got {targets.shape}. {hint}"
    )


def check_mask(name: str, mask: ArrayLike, shape: Shape) -> Array:
    """Returns a boolean `mask` expanded to `shape`; every axis must match or have length 1."""
    mask = _as_array(name, mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"`{name}` must be boolean, got dtype {mask.dtype}. Use for instance `{name} != 0`, "
            "or pass importance weights as `weights`."
        )
    return _expand(name, mask, shape)


def check_weights(name: str, weights: ArrayLike, shape: Shape) -> Array:
    """Returns real `weights` expanded to `shape`; every axis must match or have length 1.

    Negative ones are refused where the values are known; inside `jit` they make nan gradients.
    """
    hint = "To leave an element out, give it the weight 0 or pass `where`."
    return _expand(name, check_not_negative(name, weights, hint), shape)


def check_not_negative(name: str, values: ArrayLike, hint: str = "") -> Array:
    """Returns real `values` as an array, or says that one is negative; tracers pass."""
    array = check_real(name, values)
    if isinstance(array, jax.core.Tracer) or not array.is_fully_addressable:
        return array
    known = np.asarray(array)  # by NumPy: inside `jit` JAX would trace even a known array
    if np.any(known < 0):
        raise ValueError(
            f"`{name}` must not be negative, got {float(known.min()):g}. {hint}".rstrip()
        )
    return array


def check_axis(
    axis: Axes,
    batch_shape: Shape,
    *,
    axis_name: AxisName | None,
    needs_batch: bool = True,
) -> Shape:
    """Returns the axes of a norm over the batch as non-negative positions in `batch_shape`."""
    positions = check_positions(
        axis,
        batch_shape,
        hint="Fisher8 divides by a norm over the batch, so it needs one: apply it outside a "
        "per-example function, or inside `jax.vmap(..., axis_name='batch')` with "
        "`axis=(), axis_name='batch'`, or pass `normalize=False`.",
    )
    if needs_batch and not positions and axis_name is None:
        raise ValueError(
            "`axis=()` leaves nothing to normalise over. Pass the batch axis (`axis=0`), the "
            "`axis_name` of an enclosing vmap, or `normalize=False`."
        )
    return positions


def check_positions(axis: Axes, batch_shape: Shape, *, hint: str) -> Shape:
    """Returns `axis` as non-negative positions in `batch_shape`; `hint` says what to pass."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if not all(_is_integer(a) for a in axes):
        raise TypeError(
            f"`axis` must be an integer or a tuple of integers, got {axis!r}. All axes of these "
            f"predictions are `axis={tuple(range(len(batch_shape)))}`."
        )
    ndim = len(batch_shape)
    if any(not -ndim <= a < ndim for a in axes):
        raise ValueError(
            f"`axis` {axis} does not exist in predictions of shape {batch_shape}. {hint}"
        )
    positions = tuple(int(a) % ndim for a in axes)
    if len(set(positions)) != len(positions):
        raise ValueError(f"`axis` {axis} names the same axis twice.")
    return positions


def check_axis_name_is_bound(axis_name: AxisName) -> None:
    """Says which transformation is missing when `axis_name` is not bound."""
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    for name in names:
        try:
            lax.axis_index(name)
        except NameError as error:
            raise ValueError(
                f"`axis_name` {name!r} is not bound here. It must be the name given to an "
                "enclosing `jax.vmap(axis_name=...)`, `jax.pmap` or `jax.shard_map`. Under plain "
                "`jax.jit` with sharded arrays leave it out: the norm is already global."
            ) from error


def check_pure_function(name: str, function: object, *, for_nnx: str, for_linen: str) -> None:
    """Raises if a Flax module was passed where a function of parameters is expected."""
    for base in type(function).__mro__:
        for package, instead in (("flax.nnx", for_nnx), ("flax.linen", for_linen)):
            if base.__name__ == "Module" and base.__module__.startswith(package):
                raise TypeError(
                    f"`{name}` must be a function of parameters and inputs, got the module "
                    f"{type(function).__name__}. {instead}"
                )


def check_parameters(name: str, tree: object) -> None:
    """Raises if a leaf of the parameters is no array, as the activations of Equinox modules are."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, numbers.Number):
            raise TypeError(
                f"`{name}` must be a tree of arrays, but its leaf {jax.tree_util.keystr(path)} is "
                f"{leaf!r}. For an Equinox module: `params, static = eqx.partition(model, "
                "eqx.is_array)`, and `eqx.combine(params, static)` inside the function. Of an NNX "
                "module pass `nnx.state(model, nnx.Param)`, of Linen `variables['params']`."
            )


def check_count(name: str, value: object, *, at_least: int = 1, at_most: int = 2**31 - 1) -> int:
    """Returns an integer that is known while tracing; NumPy's integers are, booleans are not."""
    if not _is_integer(value) or int(value) < at_least:
        expected = {0: "an integer of at least 0", 1: "a positive integer"}
        wanted = expected.get(at_least, f"an integer of at least {at_least}")
        raise ValueError(f"`{name}` must be {wanted}, got {_describe(value)}.")
    if int(value) > at_most:
        raise ValueError(f"`{name}` must be at most {at_most:,}, got {int(value):.3g}.")
    return int(value)


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Rejects what is no real number, and a known number outside the bounds.

    The values of arrays and tracers are not looked at, only their dtype.
    """
    if isinstance(value, jax.Array | np.ndarray):
        check_real(name, value)
        return
    if isinstance(value, np.generic):
        value = check_real(name, np.asarray(value)).item()
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be a number, got {_describe(value)}.")
    number = float(value)
    inside = (
        (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (below is None or number < below)
        and (at_most is None or number <= at_most)
    )
    if not inside:
        wanted = _in_words(above=above, at_least=at_least, below=below, at_most=at_most)
        raise ValueError(f"`{name}` must {wanted}, got {value}.")


def check_positive(name: str, value: object) -> None:
    """Rejects what is no number, and a known number that is not positive."""
    check_number(name, value, above=0)


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Rejects a name that is not among the known ones, and lists those."""
    names = tuple(known)
    if value not in names:
        raise ValueError(f"`{name}` must be one of {', '.join(names)}; got {value!r}.")


def check_levels(levels: object, name: str = "levels") -> tuple[float, ...]:
    """Returns `levels` as a tuple of numbers strictly between 0 and 1."""
    if isinstance(levels, numbers.Real):
        raise TypeError(f"`{name}` must be a sequence, got {levels!r}. Pass `({levels!r},)`.")
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise TypeError(f"`{name}` must be a sequence of numbers, got {levels!r}.")
    found = tuple(levels)
    if not found:
        raise ValueError(f"`{name}` must hold at least one level, got none.")
    for level in found:
        check_level(name, level)
    return tuple(float(level) for level in found)


def check_level(name: str, level: object) -> None:
    """Rejects a probability that does not lie strictly between 0 and 1."""
    try:
        check_number(name, level, above=0, below=1)
    except ValueError as error:
        raise ValueError(f"{error} A level of 95 % is written 0.95.") from None


def _in_words(
    *, above: float | None, at_least: float | None, below: float | None, at_most: float | None
) -> str:
    if (above, at_least, below, at_most) == (0, None, None, None):
        return "be positive"
    if (above, at_least, below, at_most) == (None, 0, None, None):
        return "not be negative"
    if above is not None and below is not None:
        return f"lie strictly between {above:g} and {below:g}"
    if at_least is not None and at_most is not None:
        return f"lie between {at_least:g} and {at_most:g}"
    words = {"above": above, "at least": at_least, "below": below, "at most": at_most}
    return "be " + " and ".join(f"{word} {x:g}" for word, x in words.items() if x is not None)


def _expand(name: str, array: Array, shape: Shape) -> Array:
    fits = array.ndim == len(shape) and all(
        m in (1, n) for m, n in zip(array.shape, shape, strict=True)
    )
    if not fits:
        expand = f"{name}[(...,) + (None,) * {len(shape) - array.ndim}]"
        hint = f" Add the missing axes: `{expand}`." if 0 < array.ndim < len(shape) else ""
        raise ValueError(
            f"`{name}` must have the shape of the predictions, {shape}, with axes of length 1 "
            f"where it does not vary, got {array.shape}.{hint}"
        )
    return jnp.broadcast_to(array, shape)


def _as_array(name: str, array: ArrayLike) -> Array:
    if isinstance(array, Array):
        return array
    check_unmasked(name, array)
    try:
        return jnp.asarray(array)
    except (TypeError, ValueError) as error:
        if isinstance(array, np.ndarray):
            raise TypeError(
                f"`{name}` must be an array of a dtype that JAX knows, got dtype "
                f"{array.dtype.str if not array.dtype.isnative else array.dtype}. Convert it "
                f"first, for instance `{name}.astype(np.float32)`."
            ) from error
        raise TypeError(f"`{name}` must be an array, got {type(array).__name__}.") from error


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _describe(value: object) -> str:
    """The value where it is short to say, else its type."""
    is_short = value is None or isinstance(value, bool | numbers.Number | str)
    return repr(value) if is_short else type(value).__name__
