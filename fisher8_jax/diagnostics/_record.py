"""What a training loop may write down for the doctor."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from jax.typing import ArrayLike

from fisher8_jax._internal.checks import check_host_array
from fisher8_jax._internal.plain import json_number

_SERIES = (
    "losses",
    "validation_losses",
    "step_kl",
    "learning_rate",
    "smallest_log_variance",
    "largest_log_variance",
    "top_gradient_share",
    "constant_share",
)


@dataclasses.dataclass(frozen=True)
class TrainingRecord:
    """Notes of a training run; every field is optional, and each one lets the doctor see more.

    Args:
        losses: the mean NLL per element of every step, in nats and in training units.
        validation_losses: the same on held-out data, at any cadence.
        learning_rate: one number, or one per step if it follows a schedule. Progress is then
            measured per distance travelled, so that a decayed learning rate does not pass for
            convergence.
        step_kl: mean over a batch of `KL(before || after)` for every step, which is
            divided by the number of predictions.
        smallest_log_variance: over the batch, of every step.
        largest_log_variance: over the batch, of every step.
        log_variance_bounds: (lower, upper) at which the head is clipped; None for an open side.
        top_gradient_share: of the mean, as `top_gradient_share` gives it, of every step.
        constant_share: part of the batch whose prediction does not depend on the input, as
            `constant_share` gives it, at any cadence.
        dead_share: part of the units of a layer that are dead at the end, by the layer's name, as
            the mean of `dead_units` gives it.
        target_mean: of the training targets as the network sees them, after any scaling.
        target_std: likewise.

    Example:
        >>> record = TrainingRecord(losses=[2.0, 1.5, 1.2], target_mean=0.0, target_std=1.0)
        >>> record.losses
        array([2. , 1.5, 1.2])
        >>> record.as_dict()["losses"]
        [2.0, 1.5, 1.2]
    """

    losses: ArrayLike | None = None
    validation_losses: ArrayLike | None = None
    learning_rate: float | ArrayLike | None = None
    step_kl: ArrayLike | None = None
    smallest_log_variance: ArrayLike | None = None
    largest_log_variance: ArrayLike | None = None
    log_variance_bounds: tuple[float | None, float | None] = (None, None)
    top_gradient_share: ArrayLike | None = None
    constant_share: ArrayLike | None = None
    dead_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    target_mean: float | None = None
    target_std: float | None = None

    def __post_init__(self) -> None:
        for name in _SERIES:
            series = self.series(name)
            if series is not None:
                object.__setattr__(self, name, series)
        if len(self.log_variance_bounds) != 2:
            raise ValueError(
                "`log_variance_bounds` must be (lower, upper) with None for an open side, "
                f"got {self.log_variance_bounds!r}."
            )
        for name, share in self.dead_share.items():
            if not 0 <= share <= 1:
                raise ValueError(
                    f"`dead_share` must hold shares from 0 to 1, got {share} for {name!r}. "
                    "Pass `float(dead_units(activations).mean())` of each layer."
                )
        if self.target_std is not None and not 0 <= self.target_std < math.inf:
            raise ValueError(
                f"`target_std` must be finite and not negative, got {self.target_std}."
            )

    def series(self, name: str) -> np.ndarray | None:
        """One of the per-step fields in double precision, or None."""
        value = getattr(self, name)
        if value is None:
            return None
        array = check_host_array(name, value).astype(np.float64)
        if name == "learning_rate" and array.ndim == 0:
            array = array[None]
        if array.ndim != 1:
            raise ValueError(
                f"`{name}` must hold one number per step, got shape {array.shape}. "
                "Average over everything but the steps first."
            )
        return array

    def as_dict(self) -> dict[str, object]:
        """The notes that were given, as numbers, lists and dictionaries for JSON."""
        notes: dict[str, object] = {}
        for field in dataclasses.fields(self):
            series = self.series(field.name) if field.name in _SERIES else None
            value = getattr(self, field.name)
            if series is not None:
                notes[field.name] = [json_number(x) for x in series]
            elif field.name == "log_variance_bounds":
                notes[field.name] = list(value)
            elif field.name == "dead_share":
                notes[field.name] = {name: float(share) for name, share in value.items()}
            elif value is not None:
                notes[field.name] = json_number(value)
        return notes
