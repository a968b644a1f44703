"""Recalibration: fitted on held-out predictions, applied to new ones."""

from fisher8_jax.calibration.conformal import SplitConformal as SplitConformal
from fisher8_jax.calibration.isotonic import IsotonicPIT as IsotonicPIT
from fisher8_jax.calibration.variance_scaling import VarianceScaling as VarianceScaling
