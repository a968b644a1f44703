"""Predictions in the units of the data, without losing digits to a large offset.

The networks predict in units of about 1 and in float32. What comes back is brought to the units of
the data in float64: `1e9 + 5 sin(x)` has no digits left in float32.
"""

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fisher8_jax._internal.trees import register_tree
from fisher8_jax.artifacts import TargetScaler
from fisher8_jax.ensembles import Mixture
from fisher8_jax.estimator._network import DenseNetwork
from fisher8_jax.estimator._widths import (
    Ensemble,
    calibrated_members,
    find_widths,
    variance_of,
    widened_mixture,
)
from fisher8_jax.families import LocationScale, Predictive

# Predictions are made in blocks of one shape: one compiled program for any number of rows, and a
# row's prediction does not depend on the rows beside it.
BLOCK = 512


def _in_other_units(mixture: Mixture, scaler: TargetScaler) -> Mixture:
    """A mixture in units of training brought to those of `scaler`, whose numbers are at hand.

    Counts and shares are trained as they are, so there is nothing to undo: `TargetScaler.unscale`
    refuses them, because it cannot know that its numbers leave them alone.
    """
    if np.all(np.equal(scaler.scale, 1)) and not np.any(scaler.shift):
        return mixture
    unscaled: Mixture = scaler.unscale(mixture)
    return unscaled


@functools.partial(jax.jit, static_argnums=0)
def predict_mixture(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array
) -> Mixture:
    """The mixture of all members, widened where the rows are unfamiliar, in units of training."""
    return widened_mixture(
        network, ensemble, inputs, find_widths(network, ensemble, inputs, outside)
    )


@functools.partial(jax.jit, static_argnums=0)
def predict_moments(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array
) -> tuple[Array, Array, Array, Array]:
    """Center, standard deviation, and the two parts of the variance.

    Infinite where the tails of a sound prediction are too heavy for a variance.
    """
    widths = find_widths(network, ensemble, inputs, outside)
    mixture, added = widened_mixture(network, ensemble, inputs, widths), widths.added
    if isinstance(mixture.members, LocationScale):
        plain = Mixture(calibrated_members(network, ensemble, inputs, widths))
    else:
        plain, added = mixture, jnp.zeros_like(added)  # two for each member differ by it already
    is_sound = mixture.is_finite()

    def or_infinite(values: Array) -> Array:
        return jnp.where(is_sound & jnp.isnan(values), jnp.inf, values)

    std, aleatoric, epistemic = map(
        or_infinite, (mixture.std, plain.aleatoric, plain.epistemic + added)
    )
    return mixture.center, std, aleatoric, epistemic


@functools.partial(jax.jit, static_argnums=0)
def predict_variance(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array
) -> tuple[Array]:
    """The posterior variance of the first member's raw locations, (rows, targets)."""
    return (variance_of(network, ensemble, inputs, outside),)


@functools.partial(jax.jit, static_argnums=0)
def predict_information(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array
) -> tuple[Array]:
    """What a target would say about the locations, in nats."""
    (variance,) = predict_variance(network, ensemble, inputs, outside)
    locations, information = jax.vmap(network.locations, (0, None))(ensemble.params, inputs)
    epistemic = variance + jnp.var(locations, axis=0)
    return (0.5 * jnp.sum(jnp.log1p(epistemic * jnp.mean(information, axis=0)), axis=1),)


@functools.partial(jax.jit, static_argnums=0)
def predict_member(
    network: DenseNetwork, params: chex.ArrayTree, inputs: Array
) -> tuple[Array, Array]:
    """Mean and variance of one member; the program serves ensembles of any size."""
    dist = network(params, inputs)
    return dist.mean, dist.variance


@functools.partial(jax.jit, static_argnums=0)
def predict_quantiles(
    network: DenseNetwork,
    ensemble: Ensemble,
    inputs: Array,
    outside: Array,
    probabilities: Array,
) -> tuple[Array, ...]:
    """One array for each probability."""
    mixture = predict_mixture(network, ensemble, inputs, outside)
    shape = mixture.batch_shape
    found = jax.vmap(lambda p: mixture.quantile(jnp.broadcast_to(p, shape)))(probabilities)
    return tuple(found)


@functools.partial(jax.jit, static_argnums=0)
def predict_nll(
    network: DenseNetwork, ensemble: Ensemble, inputs: Array, outside: Array, targets: Array
) -> tuple[Array]:
    """The NLL of targets in the units of training."""
    return (predict_mixture(network, ensemble, inputs, outside).nll(targets),)


def in_blocks(
    program: Any,
    network: DenseNetwork,
    params: chex.ArrayTree,
    *rows: np.ndarray,
    extra: tuple = (),
) -> list[np.ndarray]:
    """Runs a program block by block; float64 results."""
    number = len(rows[0])
    parts = []
    for first in range(0, max(number, 1), BLOCK):
        blocks = [_padded(array[first : first + BLOCK]) for array in rows]
        values = program(network, params, *blocks, *extra)
        size = min(BLOCK, number - first)
        parts.append([np.asarray(value, np.float64)[:size] for value in values])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def mixture_in_blocks(
    network: DenseNetwork, ensemble: Ensemble, inputs: np.ndarray, outside: np.ndarray
) -> Mixture:
    """The mixture of all rows, in the units of training; members first, then rows."""
    parts = []
    for first in range(0, max(len(inputs), 1), BLOCK):
        rows = inputs[first : first + BLOCK], outside[first : first + BLOCK]
        mixture = predict_mixture(network, ensemble, *map(_padded, rows))
        number = len(rows[0])
        parts.append(jax.tree.map(lambda leaf, n=number: np.asarray(leaf)[:, :n], mixture))
    return jax.tree.map(lambda *blocks: jnp.asarray(np.concatenate(blocks, axis=1)), *parts)


def _padded(block: np.ndarray) -> np.ndarray:
    return np.pad(block, [(0, BLOCK - len(block))] + [(0, 0)] * (block.ndim - 1))


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class Prediction(Predictive):
    """The predicted distributions of some rows, in the units of the data and in float64.

    It answers what a distribution answers. Targets are brought to the units of training in float64
    before anything is computed, so large offsets cost no digits.

    Args:
        standard: the mixture of the members in the units of training.
        scaler: shift and scale of the targets, in float64.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from fisher8_jax import Gaussian
        >>> from fisher8_jax.artifacts import TargetScaler
        >>> from fisher8_jax.ensembles import Mixture
        >>> from fisher8_jax.estimator import Prediction
        >>> standard = Mixture(Gaussian(jnp.zeros((1, 1)), jnp.zeros((1, 1))))
        >>> prediction = Prediction(standard, TargetScaler(np.array(1e9), np.array(1e-3)))
        >>> low, high = prediction.interval(0.9)
        >>> print(np.round(1000 * (high - low), 3))
        [3.29]
    """

    standard: Mixture
    scaler: TargetScaler

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the predictions."""
        return self.standard.batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one target."""
        return self.standard.event_shape

    @property
    def can_scale_variance(self) -> bool:
        """As the members."""
        return self.standard.can_scale_variance

    @property
    def _origin(self) -> Predictive:
        return self.standard._origin

    @property
    def members(self) -> Predictive:
        """The members' own distributions in the units of the data, members first, in float32."""
        return _in_other_units(self.standard, self.scaler).members

    def in_units_of(self, scaler: TargetScaler) -> Mixture:
        """The mixture in the units of training of another model, whose scaler is given.

        Predictions of several models, such as those of the folds of a cross-validation, can be
        joined and scored in one model's units of about 1.
        """
        shift = (np.asarray(self.scaler.shift) - np.asarray(scaler.shift)) / scaler.scale
        relative = TargetScaler(shift, np.asarray(self.scaler.scale) / np.asarray(scaler.scale))
        return _in_other_units(self.standard, relative)

    @property
    def mean(self) -> Any:
        """The mean of each prediction."""
        return self._back(self.standard.mean)

    @property
    def center(self) -> Any:
        """The center of each prediction: what `predict` returns."""
        return self._back(self.standard.center)

    @property
    def std(self) -> Any:
        """The standard deviation of each prediction."""
        return _wide(self.standard.std) * self.scaler.scale

    @property
    def variance(self) -> Any:
        """The variance of each prediction."""
        return self.std**2

    def nll(self, targets: ArrayLike, *, constant: bool = True) -> Any:
        """The negative log-likelihood of each target, with the change of units."""
        values = self.standard.nll(self._forth(targets), constant=constant)
        return _wide(values) + _log(self.scaler.scale)

    def cdf(self, targets: ArrayLike) -> Any:
        """The probability of a value at most `targets`."""
        return _wide(self.standard.cdf(self._forth(targets)))

    def quantile(self, probability: ArrayLike) -> Any:
        """The value whose cdf is `probability`."""
        return self._back(self.standard.quantile(jnp.asarray(probability, jnp.float32)))

    def interval(self, coverage: float) -> Any:
        """The ends of the central interval of probability `coverage`."""
        tail = 0.5 * (1 - coverage)
        shape = self.batch_shape
        return self.quantile(np.full(shape, tail)), self.quantile(np.full(shape, 1 - tail))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Any:
        """Independent draws."""
        return self._back(self.standard.sample(key, sample_shape))

    def residual(self, targets: ArrayLike) -> Any:
        """`targets - center`, from differences in the units of training."""
        scale = self.scaler.scale
        return _wide(self.standard.residual(self._forth(targets))) * scale

    def z_score(self, targets: ArrayLike) -> Any:
        """The residual in predicted standard deviations."""
        return _wide(self.standard.z_score(self._forth(targets)))

    def crps(self, targets: ArrayLike) -> Any:
        """The continuous ranked probability score, in the units of the data."""
        values = self.standard.crps(self._forth(targets))
        return _wide(values) * self.scaler.scale

    def scale_variance(self, factor: Array) -> "Prediction":
        """The same means with every variance times `factor`."""
        return Prediction(self.standard.scale_variance(factor), self.scaler)

    def is_finite(self) -> Array:
        """Where all parameters of a prediction are finite."""
        return self.standard.is_finite()

    def __getitem__(self, index: Any) -> "Prediction":
        """The predictions of some rows."""
        return Prediction(self.standard[index], self.scaler)

    def _forth(self, targets: ArrayLike) -> Array:
        values = (_wide(targets) - self.scaler.shift) / self.scaler.scale
        return jnp.asarray(values, jnp.float32)

    def _back(self, values: Array) -> Any:
        return _wide(values) * self.scaler.scale + self.scaler.shift


def _wide(values: ArrayLike) -> Any:
    """In float64; inside a compiled function, which has no host arrays, as it is."""
    return values if isinstance(values, jax.core.Tracer) else np.asarray(values, np.float64)


def _log(values: ArrayLike) -> Any:
    return jnp.log(values) if isinstance(values, jax.core.Tracer) else np.log(values)
