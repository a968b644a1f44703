"""How long, in what batches, and when to look: the plan of a training."""

import dataclasses
import numbers
from typing import TypeGuard

import numpy as np

from fisher8_jax._internal.checks import check_count, check_number

# Looks are closer together at first: small noisy data are learned within a tenth of the steps.
_LOOKS_GROW_WITH_POWER = 2.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps, batches and looks at held-out data.

    Args:
        steps: gradient steps; exactly so many are made unless training stops early.
        batch_size: examples per step.
        held_out: the part of the rows that is kept for the looks; 0 trains on all rows, without
            looks, and returns the last parameters.
        looks: how often the held-out NLL is computed; more often at the beginning.
        patience: training stops when for this part of the steps no look was better; None never
            stops early.
        eager: True also stops when for half of the steps made so far, and at least a twentieth of
            the plan, no look was better. Where the best look comes early this saves most of the
            time.
        average: how many steps the average of the parameters looks back, which is what is judged
            and returned; None judges the parameters themselves.

    Example:
        >>> from fisher8_jax.training import Plan
        >>> Plan(steps=100, looks=5).look_steps
        (4, 16, 36, 64, 100)
    """

    steps: int
    batch_size: int = 64
    held_out: float = 0.1
    looks: int = 40
    patience: float | None = 0.3
    average: float | None = 100.0
    eager: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "looks"):
            check_count(name, getattr(self, name))
        check_number("held_out", self.held_out, at_least=0, below=1)
        if self.patience is not None and not (_is_number(self.patience) and self.patience > 0):
            raise ValueError(f"`patience` must be positive or None, got {self.patience!r}.")
        if self.average is not None and not (_is_number(self.average) and self.average >= 1):
            raise ValueError(
                f"`average` must be at least 1 step, or None for no average, got {self.average!r}."
            )

    @property
    def look_steps(self) -> tuple[int, ...]:
        """After how many steps each look is taken; the last is `steps`."""
        share = (np.arange(1, self.looks + 1) / self.looks) ** _LOOKS_GROW_WITH_POWER
        return tuple(np.unique(np.ceil(np.round(self.steps * share, 6)).astype(int)).tolist())

    def patience_after(self, step: int) -> float:
        """Steps without a better look after which a training stops, if it has made `step` steps."""
        if self.patience is None:
            return float("inf")
        longest = self.patience * self.steps
        return min(longest, max(0.5 * step, 0.05 * self.steps)) if self.eager else longest


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
