"""First biases of a head from data, so that training starts at the best constant prediction."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from fisher8_jax._internal.checks import check_floating
from fisher8_jax.heads._links import Link, SomeFamily, check_link

_SEARCH_STEPS = 100

Raw = dict[str, Array]


def initial_outputs(link: str | Link[SomeFamily], targets: chex.Array) -> dict[str, np.ndarray]:
    """The raw outputs of the best constant prediction, `argmin sum(nll(targets))`.

    With them as first biases a head starts at the mean and variance of the data. Links to a
    Gaussian have a closed form; for any other link the minimum is searched by L-BFGS.

    Args:
        link: a name or a `Link`, as given to the head.
        targets: training targets, rows first, then the head's `target_shape` and the event shape.

    Returns:
        One array per raw output, for the head's argument `initial`.

    Example:
        >>> import jax.numpy as jnp
        >>> start = initial_outputs("log_variance", jnp.array([1.0, 3.0, 5.0, 7.0]))
        >>> [f"{name} {value:.2f}" for name, value in start.items()]  # ln(5) is 1.61
        ['mean 4.00', 'log_variance 1.61']
    """
    resolved = check_link(link)
    targets = jnp.asarray(targets)
    if targets.ndim == 0 or not len(targets):
        raise ValueError(f"`targets` must have at least one row, got shape {targets.shape}.")
    if resolved.raw_of_moments is not None:
        check_floating("targets", targets)
        raw = resolved.raw_of_moments(jnp.mean(targets, axis=0), jnp.var(targets, axis=0))
    else:
        raw = _search(resolved, targets)
    _check_finite(raw)
    return {name: np.asarray(value) for name, value in raw.items()}


def _search(link: Link[SomeFamily], targets: Array) -> Raw:
    """Minimises the summed NLL of one constant prediction."""
    event_ndim = len(_event_shape(link))
    target_shape = targets.shape[1 : targets.ndim - event_ndim]
    rows = len(targets)
    learned = {name: jnp.full(target_shape, value) for name, value in link.learned}
    start = {name: jnp.zeros((*target_shape, *axes)) for name, axes in link.outputs}

    def loss(raw: Raw) -> Array:
        spread = {n: jnp.broadcast_to(leaf, (rows, *leaf.shape)) for n, leaf in raw.items()}
        return jnp.mean(link.make(**spread, **learned).nll(targets))

    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(_: Array, carry: tuple[Raw, optax.OptState]) -> tuple[Raw, optax.OptState]:
        raw, state = carry
        value, gradient = value_and_grad(raw, state=state)
        updates, state = optimizer.update(
            gradient, state, raw, value=value, grad=gradient, value_fn=loss
        )
        return optax.apply_updates(raw, updates), state

    run = jax.jit(lambda raw: lax.fori_loop(0, _SEARCH_STEPS, step, (raw, optimizer.init(raw)))[0])
    return run(start)


def _event_shape(link: Link[SomeFamily]) -> tuple[int, ...]:
    """The shape of one target of the link, found without computing anything."""
    shapes: list[tuple[int, ...]] = []

    def trace() -> None:
        outputs = {name: jnp.zeros(axes) for name, axes in link.outputs}
        learned = {name: jnp.full((), value) for name, value in link.learned}
        shapes.append(link.make(**outputs, **learned).event_shape)

    jax.eval_shape(trace)
    return shapes[0]


def _check_finite(raw: Raw) -> None:
    for name, value in raw.items():
        if not bool(jnp.all(jnp.isfinite(value))):
            raise ValueError(
                f"`targets` have no finite start for the raw output {name!r}: they are constant, "
                "not finite, or outside what this link can express. Standardise them first."
            )
