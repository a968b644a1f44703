"""All metrics of one set of predictions as one record."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from fisher8_jax._internal.html import Plain, json_numbers, table
from fisher8_jax._internal.trees import register_tree
from fisher8_jax.metrics._table import Row, format_table, table_cells

# Field, its name in the table; in the order in which they are printed.
_SCALARS = (
    ("rmse", "RMSE"),
    ("mae", "MAE"),
    ("nll", "NLL"),
    ("crps", "CRPS"),
    ("ece", "ECE (10 PIT bins)"),
    ("quantile_calibration_error", "quantile calibration error"),
    ("mean_z_squared", "mean z^2"),
    ("sharpness", "sharpness"),
)
_PER_LEVEL = (
    ("coverage", "coverage"),
    ("interval_width", "width"),
    ("interval_score", "interval score"),
)

# Those that have the units of the targets.
_IN_UNITS = ("rmse", "mae", "crps", "sharpness", "interval_width", "interval_score")


@register_tree
@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation:
    """What `evaluate` returns: every metric, one value per target; prints as a table.

    A frozen pytree, so it passes through `jit`, `vmap` and `jax.tree.map`. The page on metrics
    defines the fields. They have the shape of the remaining coordinates; `coverage`,
    `interval_width` and `interval_score` have one axis more, the last one, of the levels, and
    `pit_histogram` one of ten shares.

    Args:
        count: unmasked points.
        non_finite: how many of them have a prediction that is not finite.
        lower: the lower ends of the bootstrap intervals, as a record of the same kind, or None.
        upper: the upper ends.
        levels: nominal levels of the central intervals.
        constant: whether the NLL has its constant.
        confidence: the level of the bootstrap intervals, or None.

    Example:
        >>> import jax.numpy as jnp
        >>> from fisher8_jax import Gaussian, evaluate
        >>> scores = evaluate(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 7.0]))
        >>> type(scores).__name__, scores.count, scores.rmse
        ('Evaluation', Array(2, dtype=int32), Array(5., dtype=float32))
    """

    count: Array
    non_finite: Array
    rmse: Array
    mae: Array
    nll: Array
    crps: Array
    ece: Array
    quantile_calibration_error: Array
    mean_z_squared: Array
    sharpness: Array
    coverage: Array
    interval_width: Array
    interval_score: Array
    pit_histogram: Array
    lower: "Evaluation | None" = None
    upper: "Evaluation | None" = None
    levels: tuple[float, ...] = dataclasses.field(default=(), metadata={"static": True})
    constant: bool = dataclasses.field(default=True, metadata={"static": True})
    confidence: float | None = dataclasses.field(default=None, metadata={"static": True})

    def as_dict(self) -> dict[str, Plain]:
        """The metrics by name, one entry per level, for a logger or for JSON.

        Returns:
            Python numbers, or lists of them where there are several targets, under keys such as
            `rmse` and `coverage_0.9`; None for what is not finite.

        Example:
            >>> import jax.numpy as jnp
            >>> from fisher8_jax import Gaussian, evaluate
            >>> scores = evaluate(Gaussian(jnp.zeros(2), jnp.zeros(2)), jnp.array([1.0, 7.0]))
            >>> scores.as_dict()["rmse"]
            5.0
        """
        counts = {"count": self.count, "non_finite": self.non_finite}
        scalars = {name: getattr(self, name) for name, _ in _SCALARS}
        per_level = {
            f"{name}_{level:.4g}": getattr(self, name)[..., position]
            for name, _ in _PER_LEVEL
            for position, level in enumerate(self.levels)
        }
        found = counts | scalars | per_level
        return {name: json_numbers(values) for name, values in found.items()}

    def unscale(self, scale: float) -> "Evaluation":
        """The scores of `scale * y` from those of `y`, as float64 NumPy arrays.

        For targets that were divided by `scale` before they were scored.

        Args:
            scale: positive.
        """
        changed: dict[str, Any] = {
            name: np.asarray(getattr(self, name), np.float64) * scale for name in _IN_UNITS
        }
        changed["nll"] = np.asarray(self.nll, np.float64) + np.log(scale)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            changed[name] = None if bound is None else bound.unscale(scale)
        return dataclasses.replace(self, **changed)

    def table(self, target_names: Sequence[str] | None = None) -> str:
        """The record as plain text: metrics in rows, targets in columns.

        Args:
            target_names: a heading per target, by default their positions.

        Returns:
            Lines of equal width, with the bootstrap interval in brackets beside each value.
        """
        return format_table(self._table_rows(), target_names, self._note())

    def _table_rows(self) -> list[Row]:
        rows: list[Row] = [
            ("points", self.count, None, None),
            ("non-finite", self.non_finite, None, None),
        ]
        for label, values, *ends in _rows(self, self.lower, self.upper):
            rows.append((label, values, *(ends or (None, None))))
        return rows

    def _note(self) -> str | None:
        return None if self.confidence is None else f"[{100 * self.confidence:g} % bootstrap]"

    def _repr_html_(self) -> str | None:
        if not all(map(_has_values, jax.tree.leaves(self))):
            return None  # the text says all there is
        cells, more = table_cells(self._table_rows(), None, self._note())
        cut = f" (and {more} more columns)" if more else ""
        return table(cells[0], cells[1:], title=f"Evaluation{cut}")

    def __repr__(self) -> str:
        if all(map(_has_values, jax.tree.leaves(self))):
            return self.table()
        return f"Evaluation(count={self.count}, levels={self.levels}, ...)"


def _has_values(leaf: object) -> bool:
    """False for tracers, shapes, axis numbers and whatever else JAX puts into a tree."""
    return isinstance(leaf, np.ndarray | Array) and not isinstance(leaf, jax.core.Tracer)


def _rows(record: Evaluation, *bounds: Evaluation | None) -> Iterator[tuple]:
    """A label and its values in the record and in the two bounds, where there are any."""
    records = [record, *(bound for bound in bounds if bound is not None)]
    for name, label in _SCALARS:
        if name == "nll":
            label += " (with constant)" if record.constant else " (without constant)"
        yield label, *(getattr(r, name) for r in records)
    for name, label in _PER_LEVEL:
        for position, level in enumerate(record.levels):
            values = (getattr(r, name)[..., position] for r in records)
            yield f"{label} {100 * level:.3g} %", *values
