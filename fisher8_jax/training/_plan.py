"""How long to train, in what batches, and when to validate: the plan of a training."""

import dataclasses

import numpy as np

from fisher8_jax._internal.checks import check_count, check_number

# Validation steps are closer together at first: small noisy data are learned within a tenth of the
# steps.
_GROWTH = 2.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps, batches and validation.

    Args:
        steps: gradient steps; exactly this many unless training stops early.
        batch_size: examples per step.
        validation_fraction: the part of the rows that is held out for validation; 0 trains on all
            rows, without validation, and returns the last parameters.
        num_validations: how often the validation NLL is computed; more often at the beginning.
        patience: training stops when for this part of the steps no validation was better; None
            never stops early.
        eager: True also stops when no validation was better for three quarters of the steps made so
            far, and at least a tenth of the plan. Where the best one comes early this saves most of
            the time.
        average: the number of steps over which parameters are averaged; the average is validated
            and returned. None validates the parameters themselves.
        free_variance: True validates by the NLL that is left when all variances are multiplied by
            the one factor that suits the held-out rows best. Variances overfit long before means
            do, and the plain NLL stops then. Runs share the factor, and keep the parameters of the
            same step. The variances stay as they were trained; multiply them by
            `Fitted.variance_factor`. Families without a `variance_field` keep the plain NLL.

    Example:
        >>> from fisher8_jax.training import Plan
        >>> Plan(steps=100, num_validations=5).validation_steps
        (4, 16, 36, 64, 100)
    """

    steps: int
    batch_size: int = 64
    validation_fraction: float = 0.1
    num_validations: int = 40
    patience: float | None = 0.3
    average: float | None = 100.0
    eager: bool = False
    free_variance: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "num_validations"):
            check_count(name, getattr(self, name))
        check_number("validation_fraction", self.validation_fraction, at_least=0, below=1)
        if self.patience is not None:
            check_number("patience", self.patience, above=0)
        if self.average is not None:
            check_number("average", self.average, at_least=1)

    @property
    def validation_steps(self) -> tuple[int, ...]:
        """After how many steps each validation takes place; the last is `steps`."""
        share = (np.arange(1, self.num_validations + 1) / self.num_validations) ** _GROWTH
        return tuple(np.unique(np.ceil(np.round(self.steps * share, 6)).astype(int)).tolist())

    def patience_after(self, step: int) -> float:
        """Steps without improvement after which a run stops that has made `step` steps."""
        if self.patience is None:
            return float("inf")
        longest = self.patience * self.steps
        return min(longest, max(0.75 * step, 0.1 * self.steps)) if self.eager else longest
