"""The published methods as losses with one signature, so that one name switches the method.

Every loss is `loss(dist, targets, *, where=None, weights=None, ...)` and returns one value per
element; reduction is the caller's line. `LOSSES` finds them by name. `make_objective` wraps any of
them for a training loop, with the state, randomness and penalty that some need and most do not.
"""

from fisher8_jax.losses._beta_nll import beta_nll as beta_nll
from fisher8_jax.losses._collier import collier as collier
from fisher8_jax.losses._faithful import faithful as faithful
from fisher8_jax.losses._natural_gradient import natural_gradient as natural_gradient
from fisher8_jax.losses._nll import nll as nll
from fisher8_jax.losses._objective import LOSSES as LOSSES
from fisher8_jax.losses._objective import Objective as Objective
from fisher8_jax.losses._objective import make_objective as make_objective
from fisher8_jax.losses._soft_bounds import soft_bounds_penalty as soft_bounds_penalty
from fisher8_jax.losses._trustable import trustable as trustable
from fisher8_jax.losses._unit_variance import unit_variance as unit_variance
from fisher8_jax.losses._wong_toi import wong_toi as wong_toi
from fisher8_jax.losses._wong_toi import wong_toi_penalty as wong_toi_penalty
