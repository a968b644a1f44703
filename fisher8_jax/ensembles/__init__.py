"""Ensembles: the mixture that stacked members predict together."""

from fisher8_jax.ensembles._mixture import Mixture as Mixture
