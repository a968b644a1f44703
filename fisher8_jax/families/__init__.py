"""Likelihoods in unconstrained coordinates, one file each; `gaussian.py` is the one to imitate."""

from fisher8_jax.families.contract import Family as Family
from fisher8_jax.families.contract import family as family
from fisher8_jax.families.contract import static_field as static_field
from fisher8_jax.families.gaussian import Gaussian as Gaussian
