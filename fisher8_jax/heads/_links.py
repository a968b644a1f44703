"""What a head puts out and what distribution that makes: the link between the two.

Three instances fix the vocabulary:

* "log_variance": two raw outputs `mean` and `log_variance`, which are the Gaussian's own fields.
* "soft_bounds": two raw outputs, and two *learned* bounds that are parameters of the head but do
  not depend on its input.
* `family_link(MultivariateGaussian, mean=(2,), log_diagonal=(2,), off_diagonal=(1,))`: outputs
  with axes of their own.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic

import chex
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fisher8_jax._fisher8 import fisher8
from fisher8_jax._internal.checks import check_floating
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families import Family, Gaussian

# With a default, so that a head without a `Link` is known to predict a Gaussian.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    SomeFamily = TypeVar("SomeFamily", bound=Family, default=Gaussian)
else:
    SomeFamily = typing.TypeVar("SomeFamily", bound=Family)


@dataclasses.dataclass(frozen=True)
class Link(Generic[SomeFamily]):
    """How raw outputs become a distribution.

    Args:
        make: the distribution from all raw outputs and learned constants, by keyword.
        outputs: name and own axes of every raw output; the first is the location, which alone
            trains the trunk of a head with `stop_gradient`.
        learned: name and first value of constants that are learned, one per target coordinate.
        raw_of_moments: the raw outputs that make a given mean and variance, where that has a closed
            form.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.heads import Link
        >>> link = Link(Gaussian.from_std, outputs=(("mean", ()), ("std", ())))
        >>> link.make(mean=jnp.zeros(1), std=jnp.array([3.0])).variance
        Array([9.], dtype=float32)
    """

    make: Callable[..., SomeFamily]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    learned: tuple[tuple[str, float], ...] = ()
    raw_of_moments: Callable[[Array, Array], dict[str, Array]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The raw outputs in order."""
        return tuple(name for name, _ in self.outputs)


_MEAN_AND_RAW: tuple[tuple[str, tuple[int, ...]], ...] = (("mean", ()), ("raw", ()))
_MIN_LOG_VARIANCE, _MAX_LOG_VARIANCE = -10.0, 0.5


def _inverse_softplus(y: Array) -> Array:
    """`ln(exp(y) - 1)`, in a form that does not overflow."""
    return y + jnp.log(-jnp.expm1(-y))


def _raw_soft_bounds(mean: Array, variance: Array) -> dict[str, Array]:
    below = _MIN_LOG_VARIANCE + _inverse_softplus(jnp.log(variance) - _MIN_LOG_VARIANCE)
    return {"mean": mean, "raw": _MAX_LOG_VARIANCE - _inverse_softplus(_MAX_LOG_VARIANCE - below)}


LINKS: Mapping[str, Link[Gaussian]] = {
    "log_variance": Link(
        Gaussian,
        (("mean", ()), ("log_variance", ())),
        raw_of_moments=lambda mean, var: {"mean": mean, "log_variance": jnp.log(var)},
    ),
    "softplus_std": Link(
        Gaussian.from_softplus_std,
        _MEAN_AND_RAW,
        raw_of_moments=lambda mean, var: {"mean": mean, "raw": _inverse_softplus(jnp.sqrt(var))},
    ),
    "softplus_variance": Link(
        Gaussian.from_softplus_variance,
        _MEAN_AND_RAW,
        raw_of_moments=lambda mean, var: {"mean": mean, "raw": _inverse_softplus(var)},
    ),
    "soft_bounds": Link(
        Gaussian.from_soft_bounds,
        _MEAN_AND_RAW,
        learned=(("min_log_variance", _MIN_LOG_VARIANCE), ("max_log_variance", _MAX_LOG_VARIANCE)),
        raw_of_moments=_raw_soft_bounds,
    ),
}


def family_link(
    family: type[SomeFamily],
    *,
    hyper_parameters: Mapping[str, object] | None = None,
    **axes: tuple[int, ...],
) -> Link[SomeFamily]:
    """The link whose raw outputs are the fields of `family` themselves.

    Args:
        family: a likelihood in unconstrained coordinates.
        hyper_parameters: its static fields, such as degrees of freedom.
        **axes: for fields with axes of their own, the shape of these, by the name of the field.

    Returns:
        A link for `DistributionHead`.

    Example:
        >>> from fisher8_jax import Gaussian
        >>> family_link(Gaussian).names
        ('mean', 'log_variance')
    """
    names = array_fields(family)
    unknown = sorted(set(axes) - set(names))
    if unknown:
        raise ValueError(
            f"`{unknown[0]}` is not a field of {family.__name__} with array values. It has: "
            f"{', '.join(names)}."
        )
    static = dict(hyper_parameters or {})

    def make(**raw: Array) -> SomeFamily:
        return family(**raw, **static)

    return Link(make, tuple((name, tuple(axes.get(name, ()))) for name in names))


def check_link(link: str | Link[SomeFamily]) -> Link[SomeFamily]:
    """The link by name, or an error that lists the names."""
    if isinstance(link, Link):
        return link
    if not isinstance(link, str) or link not in LINKS:
        raise ValueError(
            f"`link` must be a `Link`, for instance `family_link(Laplace)`, or one of "
            f"{', '.join(map(repr, LINKS))}, got {link!r}."
        )
    found: Link[Any] = LINKS[link]
    return found


Shape = tuple[int, ...]


def output_shapes(link: Link[SomeFamily], target_shape: Shape) -> dict[str, Shape]:
    """The shape of every raw output for one row of features."""
    return {name: (*target_shape, *axes) for name, axes in link.outputs}


def output_biases(
    link: Link[SomeFamily], target_shape: Shape, initial: Mapping[str, chex.Numeric] | None
) -> dict[str, np.ndarray]:
    """The first bias of every output: zeros, or `initial` by name, flat."""
    shapes, initial = output_shapes(link, target_shape), initial or {}
    unknown = sorted(set(initial) - set(shapes))
    if unknown:
        raise ValueError(
            f"`initial` names {unknown[0]!r}, but the raw outputs of this link are "
            f"{', '.join(shapes)}. Make it with `initial_outputs(link, targets)`."
        )
    return {
        name: np.broadcast_to(np.asarray(initial.get(name, 0.0), np.float32), shape).reshape(-1)
        for name, shape in shapes.items()
    }


def flat_sizes(link: Link[SomeFamily], target_shape: Shape) -> dict[str, int]:
    """The width of every linear layer."""
    return {name: math.prod(shape) for name, shape in output_shapes(link, target_shape).items()}


def make_distribution(
    link: Link[SomeFamily],
    target_shape: Shape,
    features: Array,
    layers: Mapping[str, Callable[[Array], Array]],
    learned: Mapping[str, Array],
    *,
    stop_gradient: bool,
) -> SomeFamily:
    """Applies one linear layer per output, in at least float32, and the link."""
    features = at_least_float32(check_floating("features", features))
    location = link.names[0]
    raw = {}
    for name, shape in output_shapes(link, target_shape).items():
        inputs = lax.stop_gradient(features) if stop_gradient and name != location else features
        raw[name] = layers[name](inputs).reshape(*features.shape[:-1], *shape)
    return link.make(**raw, **{name: jnp.asarray(value) for name, value in learned.items()})


def corrected(
    dist: SomeFamily, natural_gradient: bool, axis: int | tuple[int, ...], where: Array | None
) -> SomeFamily:
    """`fisher8(dist)` if the caller asked for natural gradients."""
    if natural_gradient:
        return fisher8(dist, axis=axis, where=where)
    if where is not None:
        raise ValueError(
            "`where` has no effect without `natural_gradient=True`: give the mask to the loss "
            "instead."
        )
    return dist


Raw = dict[str, Array]


def initial_outputs(link: str | Link[SomeFamily], targets: chex.Array) -> dict[str, np.ndarray]:
    """The raw outputs of the best constant Gaussian, `argmin sum(nll(targets))`.

    With them as first biases a head starts at the mean and variance of the data.

    Args:
        link: a name or a `Link` with `raw_of_moments`, as given to the head.
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
    if resolved.raw_of_moments is None:
        raise TypeError(
            "This `link` has no closed form for its first outputs. Give `initial` values of your "
            "own by their names, or standardise the targets: then zeros are a good start."
        )
    check_floating("targets", targets)
    raw = resolved.raw_of_moments(jnp.mean(targets, axis=0), jnp.var(targets, axis=0))
    _check_finite(raw)
    return {name: np.asarray(value) for name, value in raw.items()}


def _check_finite(raw: Raw) -> None:
    for name, value in raw.items():
        if not bool(jnp.all(jnp.isfinite(value))):
            raise ValueError(
                f"`targets` have no finite start for the raw output {name!r}: they are constant, "
                "not finite, or outside what this link can express. Standardise them first."
            )
