"""The network of the estimator: dense layers, then the raw outputs of a likelihood."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fisher8_jax._internal.trees import append_axes
from fisher8_jax.families import Family
from fisher8_jax.heads import Link, family_link


@functools.lru_cache
def link_of(family: type[Family]) -> Link[Family]:
    """The link of a family, the same object every time, so that programs are found again."""
    return family_link(family)


@dataclasses.dataclass(frozen=True)
class DenseNetwork:
    """Dense layers on encoded inputs, then a distribution for each target.

    Args:
        hidden: the widths of the hidden layers.
        link: from raw outputs to a distribution.
        target_shape: () for one target, (k,) for several.
        activation: applied after each hidden layer.
    """

    hidden: tuple[int, ...]
    link: Link[Family]
    target_shape: tuple[int, ...]
    activation: Callable[[Array], Array] = jax.nn.silu

    def init(
        self, rng: np.random.Generator, features: int, start: Mapping[str, np.ndarray]
    ) -> chex.ArrayTree:
        """First parameters, drawn with NumPy: a compiled initialiser would take seconds.

        Args:
            rng: of this member alone.
            features: the width of the inputs.
            start: first biases of raw outputs, by name.
        """
        outputs = [
            np.broadcast_to(start.get(name, 0.0), shape).reshape(-1)
            for name, shape in self._outputs()
        ]
        bias = np.concatenate(outputs).astype(np.float32)
        widths = (features, *self.hidden, len(bias))
        layers = [_dense(rng, a, b) for a, b in itertools.pairwise(widths)]
        layers[-1]["bias"] = bias
        return layers

    def __call__(
        self, params: chex.ArrayTree, inputs: Array, offset: Array | None = None
    ) -> Family:
        """The distribution for any number of rows.

        Args:
            params: of one member.
            inputs: encoded rows.
            offset: added to the location of each row.
        """
        raw = self._raw(self._layers(params, inputs)[1])
        if offset is not None:
            location = raw[self.link.names[0]]
            raw[self.link.names[0]] = location + append_axes(offset, location.ndim)
        return self.link.make(**raw)

    def with_variance_factor(self, params: chex.ArrayTree, factor: float) -> chex.ArrayTree:
        """Parameters, of any number of members, whose variances are larger by a factor."""
        bias = {output: np.zeros(shape, np.float32) for output, shape in self._outputs()}
        field = self.link.make(**bias).variance_field
        if field is None:
            return params
        bias[field[0]] += np.float32(field[1] * math.log(factor))
        added = np.concatenate([part.reshape(-1) for part in bias.values()])
        return [*params[:-1], {**params[-1], "bias": params[-1]["bias"] + added}]

    def tangents(
        self, params: chex.ArrayTree, inputs: Array
    ) -> tuple[list[Array], list[Array], Array]:
        """The Jacobian of the raw locations, layer by layer, and how much a row says about them.

        Args:
            params: of one member.
            inputs: encoded rows.

        Returns:
            What enters each layer, `(rows, width)`; the derivatives of the locations with respect
            to what leaves it, `(rows, targets, width)`; the Fisher information of every location,
            `(rows, targets)`.
        """
        rows, targets, name = len(inputs), math.prod(self.target_shape), self.link.names[0]
        taps = [jnp.zeros((rows, layer["bias"].shape[-1]), inputs.dtype) for layer in params]

        def locations(taps: list[Array]) -> tuple[Array, tuple[list[Array], dict[str, Array]]]:
            entering, flat = self._layers(params, inputs, taps)
            raw = self._raw(flat)
            return jnp.mean(raw[name].reshape(rows, targets, -1), -1), (entering, raw)

        values, pull, (entering, raw) = jax.vjp(locations, taps, has_aux=True)
        units = jnp.eye(targets, dtype=values.dtype)[:, None]
        units = jnp.broadcast_to(units, (targets, *values.shape))
        deltas = jax.vmap(pull, out_axes=1)(units)[0]
        # Inputs whose weights are all 0 are not seen.
        is_seen = jnp.any(params[0]["kernel"] != 0, axis=-1)
        entering[0] = jnp.where(is_seen, entering[0], 0)
        return entering, deltas, self._information(raw)

    def locations(self, params: chex.ArrayTree, inputs: Array) -> tuple[Array, Array]:
        """The raw locations and the Fisher information of a row about them, (rows, targets)."""
        raw = self._raw(self._layers(params, inputs)[1])
        values = raw[self.link.names[0]].reshape(len(inputs), math.prod(self.target_shape), -1)
        return jnp.mean(values, -1), self._information(raw)

    def _information(self, raw: dict[str, Array]) -> Array:
        name, rows = self.link.names[0], len(raw[self.link.names[0]])
        dist, tangent = jax.jvp(
            lambda value: self.link.make(**raw | {name: value}),
            (raw[name],),
            (jnp.ones_like(raw[name]),),
        )
        found = dist.fisher_norm_sq(tangent).reshape(rows, -1)
        return jnp.broadcast_to(found, (rows, math.prod(self.target_shape)))

    def _layers(
        self, params: chex.ArrayTree, inputs: Array, taps: list[Array] | None = None
    ) -> tuple[list[Array], Array]:
        """What enters each layer, and what leaves the last; `taps` are added to what leaves."""
        features, entering = inputs, []
        for index, layer in enumerate(params):
            entering.append(features)
            features = _affine(features, layer)
            if taps is not None:
                features = features + taps[index]
            if index < len(params) - 1:
                features = self.activation(features)
        return entering, features

    def _raw(self, flat: Array) -> dict[str, Array]:
        """The outputs of the last layer by name."""
        first, raw = 0, {}
        for name, shape in self._outputs():
            size = math.prod(shape)
            raw[name] = flat[..., first : first + size].reshape(*flat.shape[:-1], *shape)
            first += size
        return raw

    def _outputs(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, (*self.target_shape, *axes)) for name, axes in self.link.outputs]


def _dense(rng: np.random.Generator, fan_in: int, fan_out: int) -> dict[str, np.ndarray]:
    kernel = rng.normal(0, 1 / math.sqrt(fan_in), (fan_in, fan_out))
    return {"kernel": kernel.astype(np.float32), "bias": np.zeros(fan_out, np.float32)}


def _affine(inputs: Array, layer: Mapping[str, Array]) -> Array:
    outputs = inputs @ layer["kernel"]
    return outputs + jnp.broadcast_to(layer["bias"], outputs.shape)
