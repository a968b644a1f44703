"""Families by declaration: a log-density and a way to integrate make a working family.

    Gumbel = declare_family(
        "Gumbel",
        parameters=("location", "log_scale"),
        log_density=lambda y, location, log_scale: ...,
        quadrature=lambda location, log_scale: quadrature_nodes(
            "real", location, jnp.exp(log_scale)
        ),
    )

The Fisher information is the mean of the outer product of the scores, by the quadrature given or by
Monte Carlo with a fixed seed, and its inverse is damped. That is slower than a closed form by the
number of nodes, but right.
"""

import abc
import functools
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_count, check_positive
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families._contract import ScalarFamily, family
from fisher8_jax.families._fisher_factor import solve_damped
from fisher8_jax.families._targets import expand_units

LogDensity = Callable[..., Array]
Quadrature = Callable[..., tuple[Array, Array]]
Sampler = Callable[..., Array]
Unscale = Callable[..., Sequence[Array]]


def declare_family(
    name: str,
    *,
    parameters: tuple[str, ...],
    log_density: LogDensity,
    quadrature: Quadrature | None = None,
    sampler: Sampler | None = None,
    unscale: Unscale | None = None,
    damping: float = 1e-6,
    num_samples: int = 1024,
) -> type["DeclaredFamily"]:
    """A family class from a log-density and a sampler or a quadrature rule.

    Args:
        name: the name of the class.
        parameters: the names of its fields, real numbers without bounds, all of the batch shape.
        log_density: `log_density(y, **parameters)`, elementwise, normalised, in terms of
            `jax.numpy`; -inf outside the support.
        quadrature: `quadrature(**parameters) -> (nodes, weights)` with the nodes along a new first
            axis, so that `sum(weights * f(nodes), 0)` approximates the integral (or the sum over
            counts) of `f`. `quadrature_nodes` makes them.
        sampler: `sampler(key, shape, **parameters)`, draws of that shape, for parameters broadcast
            to it. Without a quadrature its draws with a fixed seed stand for the distribution.
        unscale: `unscale(shift, scale, **parameters)`, the parameters of `scale * y + shift` in
            order. With it the family has units, as `TargetScaler` and `VarianceScaling` need.
        damping: what is added to the Fisher information before it is inverted, relative to its
            diagonal. Monte Carlo with few draws wants more, about one over their number.
        num_samples: the number of Monte Carlo draws when there is no quadrature.

    Returns:
        A class to be called with the parameters, as `Gaussian` is.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import declare_family, quadrature_nodes
        >>> def log_density(y, location, log_scale):
        ...     z = (y - location) * jnp.exp(-log_scale)
        ...     return -log_scale - z - jnp.exp(-z)
        >>> Gumbel = declare_family(
        ...     "Gumbel",
        ...     parameters=("location", "log_scale"),
        ...     log_density=log_density,
        ...     quadrature=lambda location, log_scale: quadrature_nodes(
        ...         "real", location, jnp.exp(log_scale)
        ...     ),
        ... )
        >>> Gumbel(jnp.zeros(1), jnp.zeros(1)).mean.round(4)  # Euler's constant
        Array([0.5772], dtype=float32)
    """
    if quadrature is None and sampler is None:
        raise ValueError(
            "`declare_family` needs `quadrature` or `sampler` to compute the Fisher information, "
            "got neither. For real targets pass for instance "
            "`quadrature=lambda location: quadrature_nodes('real', location, width)`."
        )
    check_positive("damping", damping)
    num_samples = check_count("num_samples", num_samples)
    declaration = Declaration(
        name, parameters, log_density, quadrature, sampler, unscale, damping, num_samples
    )
    # As if the class stood beside its density, where a pickle looks for it.
    return _make(declaration, getattr(log_density, "__module__", __name__))


class Declaration(NamedTuple):
    """The arguments of `declare_family`, from which a class can be made again."""

    name: str
    parameters: tuple[str, ...]
    log_density: LogDensity
    quadrature: Quadrature | None
    sampler: Sampler | None
    unscale: Unscale | None
    damping: float
    num_samples: int


@functools.cache  # a pickle read in the same process finds the class that it came from
def _make(declaration: Declaration, module: str) -> type["DeclaredFamily"]:
    name, parameters = declaration.name, declaration.parameters
    body = {
        "_declaration": declaration,
        "units": "none" if declaration.unscale is None else "shift and scale",
        "__annotations__": dict.fromkeys(parameters, Array),
        "__doc__": f"{name}({', '.join(parameters)}), a declared family.",
        "__module__": module,
    }
    return family(type(name, (DeclaredFamily,), body))


class DeclaredFamily(ScalarFamily, abc.ABC):
    """What every declared family answers, from its log-density and its nodes."""

    _declaration: ClassVar[Declaration]

    def _fields(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in array_fields(self)}

    def _nodes(self) -> tuple[Array, Array]:
        """Points along a new first axis and the probability that each stands for."""
        fields = {k: lax.stop_gradient(v) for k, v in self.widen()._fields().items()}
        declared = self._declaration
        if declared.quadrature is not None:
            nodes, weights = declared.quadrature(**fields)
            lead = {name: x[None] for name, x in fields.items()}
            mass = weights * jnp.exp(declared.log_density(nodes, **lead))
            return nodes, jnp.where(weights == 0, 0, mass)
        nodes = self.widen().sample(jax.random.key(0), (declared.num_samples,))
        return nodes, jnp.full_like(nodes, 1 / declared.num_samples)

    def _expect(self, values: Array, probabilities: Array) -> Array:
        """The mean over nodes; one without probability may hold anything."""
        return jnp.sum(jnp.where(probabilities == 0, 0, probabilities * values), axis=0)

    @property
    def mean(self) -> Array:
        """The mean by the nodes."""
        nodes, probabilities = self._nodes()
        return self._expect(nodes, probabilities)

    @property
    def variance(self) -> Array:
        """The variance by the nodes."""
        nodes, probabilities = self._nodes()
        centre = self._expect(nodes, probabilities)
        return self._expect(jnp.square(nodes - centre[None]), probabilities)

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`-log_density`; what is constant in it is not known, so `constant` changes nothing."""
        return -self._declaration.log_density(targets, **self._fields())

    def information(self) -> Array:
        """The Fisher information, shape `batch_shape + (parameters, parameters)`."""
        dist, density = self.widen(), self._declaration.log_density
        nodes, probabilities = dist._nodes()
        lead = {name: x[None] for name, x in dist._fields().items()}
        full = {name: jnp.broadcast_to(x, nodes.shape) for name, x in lead.items()}

        def score(name: str) -> Array:
            one = {n: jnp.ones_like(x) if n == name else jnp.zeros_like(x) for n, x in full.items()}
            return jax.jvp(lambda f: density(nodes, **f), (full,), (one,))[1]

        scores = [score(name) for name in full]
        rows = [jnp.stack([self._expect(a * b, probabilities) for a in scores], -1) for b in scores]
        return lax.stop_gradient(jnp.stack(rows, -1))

    def natural(self, cotangent: Self) -> Self:
        """`(F + damping * diag(F))^-1 cotangent`."""
        flat = jnp.stack(list(cotangent._fields().values()), -1)
        # Not refined: the information of Monte Carlo draws is itself noisy.
        solved = solve_damped(self.information(), flat, self._declaration.damping, refinements=0)
        return type(self)(*(solved[..., i] for i in range(solved.shape[-1])))

    def fisher(self, tangent: Self) -> Self:
        """`F tangent`, not damped."""
        flat = jnp.stack(list(tangent._fields().values()), -1)
        product = jnp.einsum("...ij,...j->...i", self.information(), flat)
        return type(self)(*(product[..., i] for i in range(product.shape[-1])))

    def kl(self, other: Self) -> Array:
        """The mean of the difference of the log-densities over the nodes of `self`."""
        p, q = self, other
        nodes, probabilities = p._nodes()
        density = self._declaration.log_density
        log_p = density(nodes, **{name: x[None] for name, x in p._fields().items()})
        log_q = density(nodes, **{name: x[None] for name, x in q._fields().items()})
        return self._expect(log_p - log_q, probabilities)

    def cdf(self, targets: Array) -> Array:
        """Linear between the nodes; as accurate as they are dense."""
        nodes, below, _ = _cumulative(*self._nodes())
        return _interpolate(targets[None], nodes, below)[0]

    def quantile(self, probability: Array) -> Array:
        """The inverse of the interpolated cdf; `probability` broadcasts against the batch."""
        nodes, below, _ = _cumulative(*self._nodes())
        return _interpolate(probability[None], below, nodes)[0]

    def draw(self, key: Array) -> Array:
        """By the sampler where one was given, else by inverting the cdf."""
        fields, shape = self._fields(), self.batch_shape
        if (sampler := self._declaration.sampler) is not None:
            return sampler(key, shape, **fields)
        dtype = jnp.result_type(*fields.values())
        return self.quantile(jax.random.uniform(key, shape, dtype)).astype(dtype)

    def crps(self, targets: Array) -> Array:
        """`E|Y - targets| - E|Y - Y'| / 2` over the nodes, for counts and real numbers alike."""
        nodes, probabilities = self._nodes()
        to_target = self._expect(jnp.abs(nodes - targets[None]), probabilities)
        ordered, below, masses = _cumulative(nodes, probabilities)
        return to_target - self._expect(ordered * (2 * below - 1), masses)

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """By the function that the declaration was given."""
        if (declared := self._declaration.unscale) is None:
            self._cannot(
                "be brought to other units", "Declare it with `unscale=...`, or train as it is."
            )
        units = expand_units(shift, scale, jax.tree.leaves(self)[0])
        return type(self)(*declared(*units, **self._fields()))

    @property
    def can_scale_variance(self) -> bool:
        """Whether it was declared with `unscale`."""
        return self._declaration.unscale is not None

    def scale_variance(self, factor: Array) -> Self:
        """Stretched around the mean by `unscale`."""
        root = jnp.sqrt(factor)
        return self.unscale((1 - root) * self.mean, root)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (_reference(type(self)), tuple(self._fields().values()))


def _reference(cls: type[DeclaredFamily]) -> type[DeclaredFamily] | tuple[Declaration, str]:
    """What stands for a class in a pickle: its name if it can be imported, else its declaration.

    A declaration can be pickled if its functions can, that is, if they are no lambdas.
    """
    module = sys.modules.get(cls.__module__)
    is_importable = module is not None and vars(module).get(cls.__name__) is cls
    return cls if is_importable else (cls._declaration, cls.__module__)


def _restore(
    reference: type[DeclaredFamily] | tuple[Declaration, str], fields: tuple[Array, ...]
) -> DeclaredFamily:
    cls = _make(*reference) if isinstance(reference, tuple) else reference
    return cls(*fields)


def _cumulative(nodes: Array, probabilities: Array) -> tuple[Array, Array, Array]:
    """The nodes in order, the probability below each with half of its own, and its own."""
    order = jnp.argsort(nodes, axis=0)
    nodes = jnp.take_along_axis(nodes, order, axis=0)
    probabilities = jnp.take_along_axis(jnp.broadcast_to(probabilities, nodes.shape), order, axis=0)
    return nodes, jnp.cumsum(probabilities, axis=0) - 0.5 * probabilities, probabilities


def _interpolate(x: Array, xs: Array, ys: Array) -> Array:
    """`jnp.interp` along the first axis, separately for every element of the batch."""
    columns = (a.reshape(a.shape[0], -1) for a in (x, xs, ys))
    return jax.vmap(jnp.interp, in_axes=1, out_axes=1)(*columns).reshape(x.shape)
