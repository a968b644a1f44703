"""The published methods as losses with one signature, so that one name switches the method.

Every loss is `loss(dist, targets, *, where=None, weights=None, ...)` and returns one value per
element; reduction is the caller's line. `LOSSES` finds them by name; `per_element` gives a loss of
your own its mask and weights.
"""

from fisher8_jax.losses._elements import per_element as per_element
from fisher8_jax.losses._losses import LOSSES as LOSSES
from fisher8_jax.losses._losses import beta_nll as beta_nll
from fisher8_jax.losses._losses import faithful as faithful
from fisher8_jax.losses._losses import natural_gradient as natural_gradient
from fisher8_jax.losses._losses import nll as nll
from fisher8_jax.losses._losses import unit_variance as unit_variance
