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

The contract has two layers. `Predictive` is what metrics, plots and calibration need; `Family` adds
the geometry of the Fisher information, which training needs. A concrete family subclasses `Family`,
`ScalarFamily` (every field and every target has the batch shape) or `LocationScale` (it has units),
decorated by `@family`, and is final. It writes the abstract methods, and replaces a default only by
a closed form of the same quantity.

A method is a formula: what it is given was checked and widened before. `self` and the distribution,
targets or probability that it takes are in at least float32. Targets have the shape of the
predictions, and another instance is of the same class and shapes, because broadcasting (4, 1)
against (4,) would answer a question that nobody asked. In `quantile`, `self` and the probability
have been broadcast against each other, in `draw`, `self` against the shape of the samples.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_floating, check_mask, check_same_shape, check_targets
from fisher8_jax._internal.numerics import Scaled
from fisher8_jax._internal.trees import array_fields, register_tree
from fisher8_jax.families._arguments import PREPARED
from fisher8_jax.families._fisher_factor import factor_from_dense
from fisher8_jax.families._predictive import Predictive
from fisher8_jax.families._targets import SUPPORTS, describe_outside

FamilyClass = TypeVar("FamilyClass", bound=type)


def static_field(**kwargs: Any) -> Any:
    """A dataclass field that is part of the tree's structure instead of being a leaf.

    Example:
        >>> import jax
        >>> from fisher8_jax.families import family, static_field
        >>> @family
        ... class Shifted:
        ...     location: float
        ...     shift: float = static_field(default=1.0)
        >>> jax.tree.leaves(Shifted(2.0))
        [2.0]
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static_field, dataclasses.field))
def family(cls: FamilyClass) -> FamilyClass:
    """Makes `cls` a frozen dataclass and registers it as a pytree with named leaves.

    Example:
        >>> import jax
        >>> from fisher8_jax.families import family
        >>> @family
        ... class Point:
        ...     x: float
        ...     y: float
        >>> jax.tree.map(lambda leaf: 2 * leaf, Point(1.0, 2.0))
        Point(x=2.0, y=4.0)
    """
    # Changes the class in place; distributions have a `repr` of their own.
    dataclasses.dataclass(frozen=True, repr=not issubclass(cls, Predictive))(cls)
    return register_tree(cls)


class Family(Predictive):
    """A parametric likelihood in unconstrained coordinates with a known Fisher information.

    Attributes:
        support: which targets have a likelihood: "real", "positive", "unit interval", "closed unit
            interval", "counts", "classes" or "angles".
        units: see `Predictive`.
        variance_field: the field that sets the variance and nothing else, and how much it grows
            where the logarithm of the variance grows by 1; None where no field does, or where there
            need not be a variance.
        shared_norms: the fields whose parameter axes share one norm in `fisher8`. Elsewhere every
            coordinate is a quantity of its own and keeps a norm of its own.
        starts: fields as functions of the targets' mean, for `initial_fields`.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Family
        >>> from fisher8_jax.families import Poisson
        >>> dist = Poisson(jnp.zeros(2))
        >>> isinstance(dist, Family), dist.mean, dist.kl(Poisson(jnp.zeros(2)))
        (True, Array([1., 1.], dtype=float32), Array([0., 0.], dtype=float32))
    """

    variance_field: ClassVar[tuple[str, float] | None] = None
    shared_norms: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = {}

    fisher_depends_on: ClassVar[tuple[str, ...] | None] = None
    """The fields that `natural` reads; None for all of them. Saves memory, changes no result."""

    if TYPE_CHECKING:  # Every family is a dataclass.
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    @abc.abstractmethod
    def natural(self, cotangent: Self) -> Self:
        """The inverse Fisher information times a cotangent, one element at a time."""

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """The natural gradient of `nll`, field by field, computed without overflow.

        Families replace this default, `natural` of the gradient of `nll`, where they know a closed
        form that overflows later.
        """
        return natural_score_by_autodiff(self, targets)

    @abc.abstractmethod
    def fisher(self, tangent: Self) -> Self:
        """The Fisher information times a tangent, one element at a time.

        `natural(fisher(tangent))` is `tangent` again, except along directions that change nothing.
        """

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """`tangent' F tangent`, one value per element: twice the KL divergence of a small step.

        Families replace this default, the product of `tangent` and `fisher(tangent)`, where they
        know a sum of squares.
        """
        product = self.fisher(tangent)
        return jnp.sum(tangent.widen().to_vector() * product.to_vector(), axis=-1)

    def fisher_factor(self) -> Array:
        """The lower triangular `L` with `F = L L'`, shape `batch_shape + (p, p)`.

        `p` is the number of scalar coordinates of one element: all array fields in the order of
        their declaration, each flattened per element in row-major order, as in `to_vector`. The
        result is at least float32. Where `F` is singular, as for the logits of a `Categorical`, so
        is `L`; it is finite nevertheless.

        Families replace this default, which factorises the matrix that `fisher` applies to all unit
        tangents, where they know a closed form.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> dist = Gaussian(mean=jnp.zeros(3), log_variance=jnp.full(3, -60.0))
            >>> factor = dist.fisher_factor()
            >>> factor.shape, float(jnp.log(factor[0, 0, 0]))
            ((3, 2, 2), 30.0)
        """
        return factor_from_dense(dense_fisher(self))

    def to_vector(self) -> Array:
        """All coordinates of every element in one vector, shape `batch_shape + (p,)`.

        Array fields follow each other in the order of their declaration, each flattened per element
        in row-major order. Works for distributions, tangents and cotangents alike.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> Gaussian(mean=jnp.arange(2.0), log_variance=jnp.full(2, 7.0)).to_vector()
            Array([[0., 7.],
                   [1., 7.]], dtype=float32)
        """
        shape = self.batch_shape
        return jnp.concatenate(
            [x.reshape(*shape, math.prod(x.shape[len(shape) :])) for x in jax.tree.leaves(self)],
            axis=-1,
        )

    def from_vector(self, vector: Array) -> Self:
        """The inverse of `to_vector`: `vector` in the fields of a distribution of this shape.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> dist = Gaussian(mean=jnp.zeros(2), log_variance=jnp.zeros(2))
            >>> dist.from_vector(jnp.array([[0.0, 7.0], [1.0, 7.0]])).mean
            Array([0., 1.], dtype=float32)
        """
        shape = self.batch_shape
        leaves, structure = jax.tree.flatten(self)
        sizes = [math.prod(x.shape[len(shape) :]) for x in leaves]
        vector = check_targets(vector, (*shape, sum(sizes)), "vector")
        parts = jnp.split(vector, list(itertools.accumulate(sizes[:-1])), axis=-1)
        fields = [part.reshape(x.shape) for part, x in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, fields)

    @abc.abstractmethod
    def kl(self, other: Self) -> Array:
        """The exact divergence `KL(self || other)`, one value per element."""

    @abc.abstractmethod
    def draw(self, key: Array) -> Array:
        """One draw for every element, in the dtype of the predictions; see `sample`."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `sample_shape + batch_shape + event_shape`."""
        return self.broadcast_to((*sample_shape, *self.batch_shape)).draw(key)

    def broadcast_to(self, batch_shape: tuple[int, ...]) -> Self:
        """The same predictions along new or longer axes of the batch."""
        ndim = len(self.batch_shape)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, batch_shape + x.shape[ndim:]), self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in PREPARED.keys() & vars(cls).keys():
            setattr(cls, name, PREPARED[name](vars(cls)[name]))

    def parameters(self) -> dict[str, Array]:
        """The array fields by name, checked to be floating point."""
        return {name: check_floating(name, getattr(self, name)) for name in array_fields(self)}

    def in_support(self, targets: Array) -> Array:
        """True for every target that has a likelihood; works under `jit`.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax.families import Poisson
            >>> Poisson(jnp.zeros(3)).in_support(jnp.array([0.0, 2.5, -1.0]))
            Array([ True, False, False], dtype=bool)
        """
        return SUPPORTS[self.support].contains(self.check_targets(targets))

    @classmethod
    def outside_support(cls, targets: ArrayLike, *, where: ArrayLike | None = None) -> str | None:
        """What is wrong with targets that have no likelihood, None if all of them have one.

        Works on NumPy arrays, before there is a prediction. How many classes there are only a
        prediction knows: see `check_support`.

        Args:
            targets: any shape.
            where: boolean, False for missing targets, which may hold anything.

        Example:
            >>> from fisher8_jax.families import Gamma
            >>> Gamma.outside_support([1.0, 2.0]) is None
            True
            >>> print(Gamma.outside_support([1.0, 0.0]))
            `targets` of Gamma must be positive finite numbers, got 1 of 2 that are not, the ...
        """
        values = np.asarray(targets)
        inside = SUPPORTS[cls.support].contains(values)
        return describe_outside(cls.__name__, cls.support, values, inside, where)

    @classmethod
    def initial_fields(cls, mean: np.ndarray) -> dict[str, np.ndarray]:
        """Where a head starts: values of fields for a prediction of about this mean.

        Args:
            mean: of the targets in the units of training.

        Returns:
            Values by the name of the field; the others start at 0. Empty for families that train
            on standardised targets, for which 0 is right.

        Example:
            >>> import numpy as np
            >>> from fisher8_jax.families import Poisson
            >>> Poisson.initial_fields(np.array([1.0, np.e]))
            {'log_rate': array([0., 1.])}
        """
        return {name: start(mean) for name, start in cls.starts.items()}

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
        name, inside = type(self).__name__, self.in_support(targets)
        wrong = describe_outside(name, self.support, targets, inside, mask)
        if wrong is not None:
            raise ValueError(
                f"{wrong} Pass `where` to mark missing targets, or choose a family whose support "
                "fits."
            )

    def prepare(self, targets: Array) -> tuple[Self, Array]:
        """`widen()` and the checked targets as floating-point numbers of its dtype or wider."""
        targets = self.check_targets(targets)
        wide = self.widen()
        dtype = jnp.result_type(*jax.tree.leaves(wide))
        if jnp.issubdtype(targets.dtype, jnp.floating):
            dtype = jnp.promote_types(dtype, targets.dtype)
        return wide, targets.astype(dtype)


class ScalarFamily(Family):
    """A family of scalar targets: every field and every target has the batch shape.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax.families import Laplace, ScalarFamily
        >>> dist = Laplace(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
        >>> isinstance(dist, ScalarFamily), dist.batch_shape, dist.event_shape
        (True, (3, 2), ())
    """

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return check_same_shape(self.parameters())


def dense_fisher(dist: Family) -> Array:
    """The Fisher information as matrices, shape `batch_shape + (p, p)`, from `dist.fisher`."""
    dist = dist.widen()
    vector = dist.to_vector()

    def column(unit: Array) -> Array:
        return dist.fisher(dist.from_vector(jnp.broadcast_to(unit, vector.shape))).to_vector()

    return jax.vmap(column, out_axes=-1)(jnp.eye(vector.shape[-1], dtype=vector.dtype))


def natural_score_by_autodiff(dist: Family, targets: Array) -> dict[str, Scaled]:
    """`dist.natural` of the gradient of `dist.nll`, for families without a closed form."""
    values, pull_back = jax.vjp(lambda d: d.nll(targets), dist)
    (cotangent,) = pull_back(jnp.ones_like(values))
    natural = dist.natural(cotangent)
    return {name: Scaled(getattr(natural, name)) for name in array_fields(natural)}
