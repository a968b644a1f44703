"""Families that say a lower triangular root of their Fisher information; the rest follows."""

import abc
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from fisher8_jax.families._contract import ScalarFamily
from fisher8_jax.families._diagonal import Entry
from fisher8_jax.families._fisher_factor import triangular_factor

Rows = tuple[tuple[Entry, ...], ...]

ZERO = Entry(0.0)
"""For parameters that share no information: 0, even times infinity."""


class TriangularFamily(ScalarFamily):
    """A scalar family whose parameters share information: `F = L L'`, which it says as `L`."""

    @abc.abstractmethod
    def fisher_rows(self) -> Rows:
        """The rows of `L`, of one, two, three, ... entries `value * exp(log_scale)`.

        What may overflow belongs into `log_scale`; the value of a constant entry may be a number.
        """

    def natural(self, cotangent: Self) -> Self:
        """`L'^-1 L^-1 cotangent`, by substitution forwards and backwards."""
        rows, found = self.fisher_rows(), jax.tree.leaves(cotangent)
        for i, row in enumerate(rows):
            found[i] = row[i].divide(found[i] - _product(row[:i], found))
        for i in reversed(range(len(rows))):
            below = [row[i] for row in rows[i + 1 :]]
            found[i] = rows[i][i].divide(found[i] - _product(below, found[i + 1 :]))
        return jax.tree.unflatten(jax.tree.structure(cotangent), found)

    def fisher(self, tangent: Self) -> Self:
        """`L L' tangent`."""
        whitened = self._whiten(tangent)
        found = [_product(row, whitened) for row in self.fisher_rows()]
        return jax.tree.unflatten(jax.tree.structure(tangent), found)

    def fisher_norm_sq(self, tangent: Self) -> Array:
        """The sum of the squares of `L' tangent`."""
        return sum(x * x for x in self._whiten(tangent))

    def fisher_factor(self) -> Array:
        """`L`."""
        like = jax.tree.leaves(self)[0]
        return triangular_factor(
            *(
                tuple(entry.times(jnp.ones_like(like)) for entry in row)
                for row in self.fisher_rows()
            )
        )

    def _whiten(self, tangent: Self) -> list[Any]:
        """`L' tangent`."""
        rows, fields = self.fisher_rows(), jax.tree.leaves(tangent)
        return [_product([row[i] for row in rows[i:]], fields[i:]) for i in range(len(rows))]


def _product(entries: Sequence[Entry], values: Sequence[Array]) -> Any:
    pairs = zip(entries, values, strict=False)
    return sum(entry.times(x) for entry, x in pairs if entry is not ZERO)
