"""Ensembles: stacked members, and the mixture that they predict together."""

from fisher8_jax.ensembles._mixture import Mixture as Mixture
from fisher8_jax.ensembles._mixture import predict_members as predict_members
