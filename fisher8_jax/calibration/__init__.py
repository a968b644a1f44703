"""Recalibration: fitted on held-out predictions, applied to new ones."""

from fisher8_jax.calibration._conformal import SplitConformal as SplitConformal
from fisher8_jax.calibration._isotonic import IsotonicPIT as IsotonicPIT
from fisher8_jax.calibration._recalibrated import Recalibrated as Recalibrated
from fisher8_jax.calibration._variance_scaling import VarianceScaling as VarianceScaling
