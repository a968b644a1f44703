"""Likelihoods in unconstrained coordinates, one file each; `gaussian.py` is the one to imitate."""

from fisher8_jax.families.contract import Family as Family
from fisher8_jax.families.contract import family as family
from fisher8_jax.families.contract import static_field as static_field
from fisher8_jax.families.gaussian import Gaussian as Gaussian
from fisher8_jax.families.links import latent_gaussian as latent_gaussian
from fisher8_jax.families.links import natural_gaussian as natural_gaussian
from fisher8_jax.families.links import precision_gaussian as precision_gaussian
from fisher8_jax.families.links import sever as sever
from fisher8_jax.families.links import soft_bounded_gaussian as soft_bounded_gaussian
from fisher8_jax.families.links import soft_bounds_penalty as soft_bounds_penalty
