"""What a likelihood must answer so that Fisher8, the metrics and the KL radius can use it.

A *family* is a frozen pytree whose array fields are the raw outputs of a network, in coordinates
that may take any real value, and whose static fields are hyper-parameters. Three examples fix the
vocabulary:

* `Gaussian(mean, log_variance)`: two scalar parameters per target, event shape ().
* a Student-t with fixed degrees of freedom: the same two fields plus one static field.
* a multivariate Gaussian over `d` coordinates: `mean` has one event axis of length `d`, its
  factor has two.

Every array field has shape `batch_shape + its own parameter axes`; targets have shape
`batch_shape + event_shape`. A *tangent* or *cotangent* of a distribution is an instance of the same
class that holds derivatives in its fields.

Families are final: a concrete family subclasses `Family` (or `ScalarFamily`, where every field and
every target has the batch shape) directly, decorated by `@family`, and no method that is
implemented here is overridden. Besides the abstract methods a family may offer `crps(targets)`, the
continuous ranked probability score in closed form, one value per element.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._checks import check_floating, check_mask, check_same_shape, check_targets
from fisher8_jax._numerics import Scaled, at_least_float32
from fisher8_jax._trees import register_tree
from fisher8_jax.families._support import is_inside, raise_if_outside

FamilyClass = TypeVar("FamilyClass", bound=type)


def static_field(**kwargs: Any) -> Any:
    """A dataclass field that is part of the tree's structure instead of being a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static_field, dataclasses.field))
def family(cls: FamilyClass) -> FamilyClass:
    """Makes `cls` a frozen dataclass and registers it as a pytree with named leaves."""
    dataclasses.dataclass(frozen=True)(cls)  # changes the class in place
    return register_tree(cls)


class Family(abc.ABC):
    """A parametric likelihood in unconstrained coordinates with a known Fisher information.

    Attributes:
        support: which targets have a likelihood, a name that `check_support` knows.
        shared_norms: the fields whose parameter axes share one norm in `fisher8`. Elsewhere every
            coordinate is a quantity of its own and keeps a norm of its own.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Family
        >>> from fisher8_jax.families import Poisson
        >>> dist = Poisson(jnp.zeros(2))
        >>> isinstance(dist, Family), dist.mean, dist.kl(Poisson(jnp.zeros(2)))
        (True, Array([1., 1.], dtype=float32), Array([0., 0.], dtype=float32))
    """

    support: ClassVar[str] = "real"
    shared_norms: ClassVar[tuple[str, ...]] = ()

    fisher_depends_on: ClassVar[tuple[str, ...] | None] = None
    """The fields that `natural` reads; None for all of them. Saves memory, changes no result."""

    if TYPE_CHECKING:  # A field or a property, as the family likes.

        @property
        def mean(self) -> Array: ...

        @property
        def variance(self) -> Array: ...

    @property
    @abc.abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """The shape shared by all predictions; raises when the fields do not fit together."""

    @property
    @abc.abstractmethod
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one target, () for scalar likelihoods."""

    @abc.abstractmethod
    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """Negative log-likelihood, one value per element of the batch shape.

        `constant=False` leaves out the terms that depend on nothing at all, such as `ln(2 pi)/2`.
        """

    @abc.abstractmethod
    def natural(self, cotangent: Self) -> Self:
        """The inverse Fisher information times a cotangent, one element at a time."""

    @abc.abstractmethod
    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The natural gradient of `nll`, field by field, computed without overflow.

        Families without a closed form return `natural_score_by_autodiff(self, targets)`.
        """

    @abc.abstractmethod
    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`tangent' F tangent`, one value per element: twice the KL divergence of a small step."""

    @abc.abstractmethod
    def kl(self, other: Self) -> Array:
        """The exact divergence `KL(self || other)`, one value per element."""

    @abc.abstractmethod
    def cdf(self, targets: Array) -> Array:
        """The probability of a value at most `targets`."""

    @abc.abstractmethod
    def quantile(self, probability: Array) -> Array:
        """The smallest value whose cdf reaches `probability`."""

    @abc.abstractmethod
    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `sample_shape + batch_shape + event_shape`."""

    def parameters(self) -> dict[str, Array]:
        """The array fields by name, checked to be floating point."""
        return {name: check_floating(name, getattr(self, name)) for name in array_fields(self)}

    def check_targets(self, targets: Array) -> Array:
        """`targets` as an array of shape `batch_shape + event_shape`, or an error that says why."""
        return check_targets(targets, self.batch_shape + self.event_shape)

    def in_support(self, targets: Array) -> Array:
        """True for every target that has a likelihood; works under `jit`.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax.families import Poisson
            >>> Poisson(jnp.zeros(3)).in_support(jnp.array([0.0, 2.5, -1.0]))
            Array([ True, False, False], dtype=bool)
        """
        num_classes = getattr(self, "num_classes", 0)
        return is_inside(self.support, self.check_targets(targets), num_classes=num_classes)

    def check_support(self, targets: Array, *, where: Array | None = None) -> None:
        """Raises where targets have no likelihood; call it once on real data, outside `jit`.

        Inside a compiled step values cannot be looked at: there a target outside the support has an
        infinite NLL and a nan gradient.

        Args:
            targets: shape `batch_shape + event_shape`.
            where: boolean, False for missing targets, which may hold anything.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax.families import Gamma
            >>> Gamma(jnp.zeros(2), jnp.zeros(2)).check_support(jnp.array([1.0, 0.0]))
            Traceback (most recent call last):
            ...
            ValueError: `targets` of Gamma must be positive finite numbers, got 1 of 2 that are ...
        """
        mask = None if where is None else check_mask("where", where, self.batch_shape)
        inside = self.in_support(targets)
        raise_if_outside(type(self).__name__, self.support, targets, inside, mask)

    def widen(self) -> Self:
        """The same distribution with half-precision parameters cast to float32."""
        return jax.tree.map(at_least_float32, self)

    def prepare(self, targets: Array) -> tuple[Self, Array]:
        """`widen()` and the checked targets as floating-point numbers of its dtype or wider."""
        targets = self.check_targets(targets)
        wide = self.widen()
        dtype = jnp.result_type(*jax.tree.leaves(wide))
        if jnp.issubdtype(targets.dtype, jnp.floating):
            dtype = jnp.promote_types(dtype, targets.dtype)
        return wide, targets.astype(dtype)


class ScalarFamily(Family):
    """A family of scalar targets: every field and every target has the batch shape."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return check_same_shape(self.parameters())

    @property
    def event_shape(self) -> tuple[int, ...]:
        return ()


def array_fields(dist: Family) -> tuple[str, ...]:
    """The names of the fields that hold arrays, in order."""
    fields = dataclasses.fields(dist)  # type: ignore[arg-type]
    return tuple(field.name for field in fields if not field.metadata.get("static", False))


def natural_score_by_autodiff(dist: Family, targets: Array) -> dict[str, Scaled]:
    """`dist.natural` of the gradient of `dist.nll`, for families without a closed form."""
    values, pull_back = jax.vjp(lambda d: d.nll(targets), dist)
    (cotangent,) = pull_back(jnp.ones_like(values))
    natural = dist.natural(cotangent)
    return {name: Scaled(getattr(natural, name)) for name in array_fields(natural)}
