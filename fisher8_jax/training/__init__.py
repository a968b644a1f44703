"""Training: a `Method` says how, a `Plan` says how long, `fit` does it.

A method is a gradient and a step length. `fit` trains one network or several side by side, with
validation, early stopping and checkpoints. `Method.init` and `Method.update` are the same step for
loops of your own.
"""

from fisher8_jax.training._data import Data as Data
from fisher8_jax.training._fit import Fitted as Fitted
from fisher8_jax.training._fit import fit as fit
from fisher8_jax.training._gradients import LossGradient as LossGradient
from fisher8_jax.training._gradients import NetworkNaturalGradient as NetworkNaturalGradient
from fisher8_jax.training._gradients import OutputNaturalGradient as OutputNaturalGradient
from fisher8_jax.training._lengths import KLRadius as KLRadius
from fisher8_jax.training._lengths import LearningRate as LearningRate
from fisher8_jax.training._method import Method as Method
from fisher8_jax.training._method import TrainingState as TrainingState
from fisher8_jax.training._networks import nnx_network as nnx_network
from fisher8_jax.training._plan import Plan as Plan
