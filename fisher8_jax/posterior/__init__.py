"""What one network does not know: posterior, evidence and leave-one-out from the Gram matrix.

The network linearised at its parameters is a Gaussian process whose covariance is the Gram matrix
of `fisher8_jax.curvature`. Everything here follows from factorising it once.
"""

from fisher8_jax.posterior._batch import batch_evidence as batch_evidence
from fisher8_jax.posterior._evidence import Evidence as Evidence
from fisher8_jax.posterior._evidence import update_precision as update_precision
from fisher8_jax.posterior._fit import fit_posterior as fit_posterior
from fisher8_jax.posterior._leave_one_out import LeaveOneOut as LeaveOneOut
from fisher8_jax.posterior._leave_one_out import jackknife_intervals as jackknife_intervals
from fisher8_jax.posterior._leave_one_out import leave_one_out as leave_one_out
from fisher8_jax.posterior._posterior import Posterior as Posterior
from fisher8_jax.posterior._predictive import PosteriorPredictive as PosteriorPredictive
from fisher8_jax.posterior._prior import Prior as Prior
from fisher8_jax.posterior._saving import load_posterior as load_posterior
from fisher8_jax.posterior._saving import save_posterior as save_posterior
from fisher8_jax.posterior._train import TrainedByEvidence as TrainedByEvidence
from fisher8_jax.posterior._train import train_by_evidence as train_by_evidence
