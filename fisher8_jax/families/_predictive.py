"""What metrics, plots, calibration and reports ask of a predicted distribution.

Every family is a `Predictive`. So are the mixture of an ensemble's members and a recalibrated
prediction, which can be scored and sampled but not trained: they have no Fisher information.

Four methods must be written: `nll`, `cdf`, `quantile` and `sample`, besides the two shapes and the
two moments. The others follow from them; a class replaces one where it knows a closed form, which
is faster or safer. Whether predictions can be brought to other units is not guessed either: ask
`unscale`, whose default says what to do instead.
"""

import abc
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import chex
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_level, check_targets
from fisher8_jax._internal.numerics import at_least_float32
from fisher8_jax.families._display import html_of, of_batch_axes, text_of
from fisher8_jax.families._quadrature import crps_by_quadrature
from fisher8_jax.families._targets import SUPPORTS


class Predictive(abc.ABC):
    """A predicted distribution, one per element of its batch shape, that can be scored.

    A subclass is a frozen dataclass and a pytree whose leaves begin with the axes of the batch.

    Attributes:
        support: which targets have a likelihood, see `Family`.
        units: what `unscale` can undo: "shift and scale"; "scale" for positive targets; "shift" for
            angles, which can be turned; "none" for counts, classes and shares.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.families import Predictive
        >>> dist = Gaussian(mean=jnp.zeros(3), log_variance=jnp.zeros(3))
        >>> isinstance(dist, Predictive), dist[:2].batch_shape
        (True, (2,))
    """

    support: ClassVar[str] = "real"
    units: ClassVar[str] = "none"

    if TYPE_CHECKING:  # A field or a property, as the class likes.

        @property
        def mean(self) -> Array: ...

        @property
        def variance(self) -> Array: ...

    @property
    @abc.abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """The shape shared by all predictions; raises when the fields do not fit together."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one target, () for scalar likelihoods."""
        return ()

    @abc.abstractmethod
    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """Negative log-likelihood, one value per element of the batch shape.

        `constant=False` leaves out the terms that depend on nothing at all, such as `ln(2 pi)/2`.
        """

    @abc.abstractmethod
    def cdf(self, targets: Array) -> Array:
        """The probability of a value at most `targets`; of every coordinate, for vectors."""

    @abc.abstractmethod
    def quantile(self, probability: Array) -> Array:
        """The smallest value whose cdf reaches `probability`; broadcasts against the batch."""

    @abc.abstractmethod
    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `sample_shape + batch_shape + event_shape`."""

    @property
    def center(self) -> Array:
        """The mean where it always exists; the median for families whose tails may be too heavy.

        What to report as the one predicted value, and what residuals are counted from.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax.families import StudentT
            >>> cauchy = StudentT(jnp.ones(1), jnp.zeros(1), df=1.0)
            >>> cauchy.mean, cauchy.center
            (Array([nan], dtype=float32), Array([1.], dtype=float32))
        """
        return self.mean

    @property
    def std(self) -> Array:
        """The square root of the variance."""
        return jnp.sqrt(self.variance)

    @property
    def log_std(self) -> Array:
        """The natural logarithm of the standard deviation."""
        return jnp.log(self.std)

    @property
    def is_discrete(self) -> bool:
        """Whether targets are counts or classes, whose cdf has jumps."""
        return SUPPORTS[self._origin.support].is_discrete

    @property
    def is_circular(self) -> bool:
        """Whether targets are angles, of which only the direction counts."""
        return self._origin.support == "angles"

    @property
    def is_ordered(self) -> bool:
        """Whether the mean is a value to expect: not for angles and classes."""
        return SUPPORTS[self._origin.support].is_ordered

    @property
    def is_location_scale(self) -> bool:
        """Whether targets can be shifted and scaled within the family."""
        return self._origin.units == "shift and scale"

    @property
    def can_scale_variance(self) -> bool:
        """Whether `scale_variance` has an answer."""
        return type(self).scale_variance is not Predictive.scale_variance

    @property
    def _origin(self) -> "Predictive":
        """Whose support and units these are: its own, or those of what it was made from."""
        return self

    @classmethod
    def wrap(cls, values: chex.Array) -> chex.Array:
        """Angles as those between -pi and pi, for families of angles; other values as they are."""
        return _wrap(values) if cls.support == "angles" else values

    def log_prob(self, targets: Array) -> Array:
        """The log-density, or the logarithm of the mass: `-nll(targets)`.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax.families import Bernoulli
            >>> Bernoulli(jnp.zeros(1)).log_prob(jnp.ones(1))
            Array([-0.6931472], dtype=float32)
        """
        return -self.nll(targets)

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """The ends of the central interval that holds a target with probability `coverage`.

        Args:
            coverage: strictly between 0 and 1, for instance 0.9.

        Returns:
            The lower and the upper ends, of the shape of the targets.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> lower, upper = Gaussian(jnp.zeros(1), jnp.zeros(1)).interval(0.95)
            >>> round(float(upper[0]), 2)
            1.96
        """
        check_level("coverage", coverage)
        tails = jnp.asarray([0.5 * (1 - coverage), 0.5 * (1 + coverage)])
        # Mapped rather than repeated: one copy of the quantile function in the compiled program.
        shape = self.batch_shape + self.event_shape
        lower, upper = jax.vmap(lambda p: self.quantile(jnp.broadcast_to(p, shape)))(tails)
        return lower, upper

    def residual(self, targets: Array) -> Array:
        """`targets - center`; for angles the shorter way round."""
        difference = self.check_targets(targets) - self.center
        return _wrap(difference) if self.is_circular else difference

    def z_score(self, targets: Array) -> Array:
        """`residual(targets) / std`, the residual in predicted standard deviations."""
        return self.residual(targets) / self.std

    def crps(self, targets: Array) -> Array:
        """The continuous ranked probability score, one value per target, in units of the target.

        Classes replace this default, an integral over the quantile function, where they know a
        closed form.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> round(float(Gaussian(jnp.zeros(1), jnp.zeros(1)).crps(jnp.zeros(1))[0]), 4)
            0.2337
        """
        return crps_by_quadrature(self, self.check_targets(targets))

    def is_finite(self) -> Array:
        """Where all parameters of a prediction are finite, one boolean per element.

        Parameters count, not moments: a Student-t with an infinite variance is a sound prediction,
        a Gaussian with an infinite log-variance is not.
        """
        ndim = len(self.batch_shape)
        finite = jnp.ones(self.batch_shape, bool)
        for leaf in jax.tree.leaves(self):
            finite &= jnp.all(jnp.isfinite(leaf), axis=tuple(range(ndim, leaf.ndim)))
        return finite

    def marginals(self) -> "Predictive":
        """One scalar distribution per coordinate of a target; itself for scalar targets."""
        if self.event_shape:
            raise TypeError(f"The marginals of {type(self).__name__} are not known.")
        return self

    def unscale(self, shift: ArrayLike | None, scale: ArrayLike | None) -> Self:
        """The distribution of `scale * y + shift`: back to the units of the original targets.

        Args:
            shift: a number, or one per target or per coordinate of a row of targets. None for no
                shift, the only choice for families of positive targets.
            scale: likewise, positive. None for no scale, the only choice for angles.
        """
        self._cannot("be brought to other units", "Train on the targets as they are.")

    def scale_variance(self, factor: Array) -> Self:
        """The same means with every variance times `factor`, of the batch shape."""
        self._cannot(
            "have its variance scaled around its mean",
            "Use `SplitConformal` for intervals, or `IsotonicPIT` for continuous targets.",
        )

    def _cannot(self, what: str, instead: str) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot {what}. {instead}")

    def check_targets(self, targets: Array) -> Array:
        """`targets` as an array of shape `batch_shape + event_shape`, or an error that says why."""
        return check_targets(targets, self.batch_shape + self.event_shape)

    def widen(self) -> Self:
        """The same distribution with half-precision parameters cast to float32."""
        return jax.tree.map(_at_least_float32, self)

    def __getitem__(self, index: Any) -> Self:
        """Some of the predictions, as NumPy would index an array of the batch shape.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian
            >>> dist = Gaussian(jnp.zeros((5, 2)), jnp.zeros((5, 2)))
            >>> dist[0].batch_shape, dist[:, 1].batch_shape, dist[..., None].batch_shape
            ((2,), (5,), (5, 2, 1))
        """
        return self._take(of_batch_axes(index, self.batch_shape))

    def _take(self, index: tuple[Any, ...]) -> Self:
        return jax.tree.map(lambda leaf: leaf[index], self)

    def __iter__(self) -> Iterator[Self]:
        """The predictions along the first axis, one after the other."""
        if not self.batch_shape:
            raise TypeError(f"A single {type(self).__name__} without a batch axis has no items.")
        return (self[i] for i in range(self.batch_shape[0]))

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)


def _wrap(angles: chex.Array) -> chex.Array:
    return angles - 2 * math.pi * (angles / (2 * math.pi)).round()


def _at_least_float32(leaf: Any) -> Array:
    leaf = jnp.asarray(leaf)
    return at_least_float32(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
