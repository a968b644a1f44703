"""Families whose parameters share no information: a diagonal is all that the inverse needs."""

import abc
import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax._internal.numerics import multiply_by_exp
from fisher8_jax._internal.trees import array_fields
from fisher8_jax.families._contract import ScalarFamily
from fisher8_jax.families._fisher_factor import diagonal_factor


class Entry(NamedTuple):
    """`value * exp(log_scale)`, kept apart because the product may overflow."""

    value: Array | float
    log_scale: Array | None = None

    def times(self, x: Array) -> Array:
        """`x` times the entry."""
        return (x if self.log_scale is None else multiply_by_exp(x, self.log_scale)) * self.value

    def divide(self, x: Array) -> Array:
        """`x` divided by the entry."""
        x = x / self.value
        return x if self.log_scale is None else multiply_by_exp(x, -self.log_scale)

    def root(self) -> Array:
        """The square root."""
        root = jnp.sqrt(self.value)
        return root if self.log_scale is None else root * jnp.exp(0.5 * self.log_scale)


class DiagonalFamily(ScalarFamily):
    """A scalar family with a diagonal Fisher information, which it says as `fisher_diagonal`."""

    @abc.abstractmethod
    def fisher_diagonal(self) -> tuple[Entry, ...]:
        """The entries `value * exp(log_scale)` of `F`, one per field, at least float32.

        What may overflow belongs into `log_scale`; the value of a constant entry may be a number.
        """

    def natural(self, cotangent: Self) -> Self:
        """Every field divided by its entry of the Fisher information."""
        return self._field_by_field(lambda x, entry: entry.divide(x), cotangent)

    def fisher(self, tangent: Self) -> Self:
        """Every field times its entry of the Fisher information."""
        return self._field_by_field(lambda x, entry: entry.times(x), tangent)

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """The sum of the squares of the fields, each times its entry."""

        def weigh(x: Array, entry: Entry) -> Array:
            x = x if entry.log_scale is None else multiply_by_exp(x, 0.5 * entry.log_scale)
            return entry.value * jnp.square(x)

        terms = self._field_by_field(weigh, tangent)
        return sum(getattr(terms, name) for name in array_fields(terms))

    def fisher_factor(self) -> Array:
        """The diagonal matrix of the square roots of the entries."""
        like = jax.tree.leaves(self)[-1]
        roots = [jnp.broadcast_to(entry.root(), like.shape) for entry in self.fisher_diagonal()]
        return diagonal_factor(*(root.astype(like.dtype) for root in roots))

    def _field_by_field(self, function: Callable[[Array, Entry], Array], other: Self) -> Self:
        pairs = zip(array_fields(other), self.fisher_diagonal(), strict=True)
        return dataclasses.replace(
            other, **{name: function(getattr(other, name), entry) for name, entry in pairs}
        )
