"""The categorical distribution by its logits: one of several classes."""

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.checks import check_floating
from fisher8_jax._internal.deviance import exp_excess
from fisher8_jax._internal.numerics import Scaled
from fisher8_jax.families._contract import Family, family
from fisher8_jax.families._fisher_factor import multinomial_factor


@family
class Categorical(Family):
    """Class `k` with probability `p_k = softmax(logits)_k`.

    Adding a number to all logits changes nothing, so the Fisher information has one null direction
    and its inverse is the pseudo-inverse, which never moves the mean of the logits:

        F     = diag(p) - p p'
        F^+ g = C diag(1/p) C g,    C = I - 1 1' / classes

    The natural gradient of the NLL for class `y` is `(1/classes - onehot(y)) / p_y`. All classes of
    one prediction share a norm in `fisher8`, which keeps the direction free of the null component
    and treats classes alike.

    Targets are class numbers from 0, integers or floats, of the batch shape. `mean`, `variance`,
    `cdf` and `quantile` are those of the class number and mean something only if the classes are
    ordered; `probabilities` is what is wanted otherwise.

    Args:
        logits: predicted logits, shape `batch_shape + (classes,)`.

    Example:
        >>> import jax.numpy as jnp
        >>> Categorical(jnp.zeros((1, 4))).nll(jnp.array([2]))
        Array([1.3862944], dtype=float32)

    Reference:
        Amari (2016), Information Geometry and Its Applications, section 2.2.
    """

    logits: Array

    support = "classes"
    shared_norms = ("logits",)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        logits = check_floating("logits", self.logits)
        if logits.ndim < 1 or logits.shape[-1] < 2:
            raise ValueError(
                f"`logits` must have a last axis with one entry per class, at least 2, got shape "
                f"{logits.shape}. For two classes and one logit use `Bernoulli`."
            )
        return logits.shape[:-1]

    @property
    def num_classes(self) -> int:
        """The length of the last axis of the logits."""
        return self.logits.shape[-1]

    def in_support(self, targets: Array) -> Array:
        """True for class numbers from 0 to `num_classes - 1`."""
        return super().in_support(targets) & (jnp.asarray(targets) < self.num_classes)

    @property
    def log_probabilities(self) -> Array:
        """`log_softmax(logits)`."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    @property
    def probabilities(self) -> Array:
        """`softmax(logits)`."""
        return jax.nn.softmax(self.logits, axis=-1)

    @property
    def mean(self) -> Array:
        """The mean class number."""
        return self.probabilities @ jnp.arange(self.num_classes, dtype=self.logits.dtype)

    @property
    def variance(self) -> Array:
        """The variance of the class number."""
        distance = _class_numbers(self) - self.mean[..., None]
        return jnp.sum(self.probabilities * jnp.square(distance), axis=-1)

    def _classes(self, targets: Array) -> tuple[Self, Array, Array]:
        """The widened distribution, safe class numbers, and where the targets are classes."""
        dist, targets = self.prepare(targets)
        is_class = self.in_support(targets)
        return dist, jnp.where(is_class, targets, 0).astype(jnp.int32), is_class

    def nll(self, targets: Array, *, constant: bool = True) -> Array:
        """`-ln(p_y)`, inf for what is not a class number."""
        dist, classes, is_class = self._classes(targets)
        return jnp.where(is_class, -_pick(dist.log_probabilities, classes), jnp.inf)

    def natural(self, cotangent: Self) -> Self:
        """The pseudo-inverse of the Fisher information times `cotangent`."""
        return type(self)(natural_logits(self.log_probabilities, cotangent.logits))

    def natural_score(self, targets: Array) -> dict[str, Scaled]:
        """`(1/classes - onehot(targets)) / p_y`; nan for what is not a class number."""
        dist, classes, is_class = self._classes(targets)
        onehot = jax.nn.one_hot(classes, self.num_classes, dtype=dist.logits.dtype)
        value = jnp.where(is_class[..., None], 1 / self.num_classes - onehot, jnp.nan)
        log_scale = -_pick(dist.log_probabilities, classes)
        return {"logits": Scaled(value, jnp.broadcast_to(log_scale[..., None], value.shape))}

    def fisher(self, tangent: Self) -> Self:
        """`p (d_logits - sum(p d_logits))`."""
        return type(self)(fisher_logits(self.probabilities, tangent.logits))

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """The variance of `d_logits` under `p`."""
        return logits_norm_sq(self.probabilities, tangent.logits)

    def fisher_factor(self) -> Array:
        """The closed form for `diag(p) - p p'`; its last column is 0."""
        return multinomial_factor(self.log_probabilities)

    def kl(self, other: Self) -> Array:
        """`sum_k p_k (r_k - 1 - ln(r_k))` with `r_k = q_k / p_k`: no term is negative."""
        p, q = self, other
        difference = q.log_probabilities - p.log_probabilities
        is_close = difference < 1
        near = p.probabilities * exp_excess(jnp.where(is_close, difference, 0))
        # A class that p excludes adds what q gives it.
        safe = jnp.where(is_close | (p.probabilities == 0), 0, difference)
        far = q.probabilities - p.probabilities * (1 + safe)
        return jnp.sum(jnp.where(is_close, near, far), axis=-1)

    def cdf(self, targets: Array) -> Array:
        """The probability of a class number of at most `targets`."""
        is_below = _class_numbers(self) <= targets[..., None]
        # A sum of roundings may exceed 1.
        below = jnp.minimum(jnp.sum(jnp.where(is_below, self.probabilities, 0), axis=-1), 1)
        return jnp.where(jnp.isnan(targets), jnp.nan, below)

    def quantile(self, probability: Array) -> Array:
        """The smallest class number whose cdf reaches `probability`, as a float."""
        below = jnp.cumsum(self.probabilities, axis=-1)[..., :-1]
        return jnp.sum(below < probability[..., None], axis=-1).astype(self.logits.dtype)

    def draw(self, key: Array) -> Array:
        """Class numbers as floating-point numbers of the predictions' dtype."""
        return jax.random.categorical(key, self.logits).astype(self.logits.dtype)

    def crps(self, targets: Array) -> Array:
        """The ranked probability score: the sum over classes of `(cdf - [class >= target])^2`."""
        below = jnp.cumsum(self.probabilities, axis=-1)
        happened = _class_numbers(self) >= targets[..., None]
        return jnp.sum(jnp.square(below - happened)[..., :-1], axis=-1)


def natural_logits(log_probabilities: Array, cotangent: Array) -> Array:
    """`C diag(1/p) C cotangent`: the pseudo-inverse of `diag(p) - p p'` times a cotangent."""
    cotangent = cotangent - jnp.mean(cotangent, axis=-1, keepdims=True)
    natural = cotangent * jnp.exp(-log_probabilities)
    return natural - jnp.mean(natural, axis=-1, keepdims=True)


def fisher_logits(probabilities: Array, tangent: Array) -> Array:
    """`(diag(p) - p p') tangent`."""
    centre = jnp.sum(probabilities * tangent, axis=-1, keepdims=True)
    return probabilities * (tangent - centre)


def logits_norm_sq(probabilities: Array, tangent: Array) -> Array:
    """`tangent' (diag(p) - p p') tangent`, as a variance."""
    centre = jnp.sum(probabilities * tangent, axis=-1, keepdims=True)
    return jnp.sum(probabilities * jnp.square(tangent - centre), axis=-1)


def _class_numbers(dist: Categorical) -> Array:
    ndim = dist.logits.ndim
    return jnp.arange(dist.num_classes, dtype=dist.logits.dtype).reshape((1,) * (ndim - 1) + (-1,))


def _pick(values: Array, classes: Array) -> Array:
    return jnp.take_along_axis(values, classes[..., None], axis=-1)[..., 0]
