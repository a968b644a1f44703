"""The losses by name, so that one string switches the method."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jax import Array

from fisher8_jax._fisher8 import fisher8_nll
from fisher8_jax.losses._beta_nll import beta_nll
from fisher8_jax.losses._faithful import faithful
from fisher8_jax.losses._natural_gradient import natural_gradient
from fisher8_jax.losses._nll import nll
from fisher8_jax.losses._unit_variance import unit_variance

LOSSES: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "unit_variance": unit_variance,
        "nll": nll,
        "beta_nll": beta_nll,
        "faithful": faithful,
        "natural_gradient": natural_gradient,
        "fisher8": fisher8_nll,
    }
)
"""Every loss by the name of its function."""
