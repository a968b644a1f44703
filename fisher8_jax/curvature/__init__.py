"""The curvature of a whole network: the Gram matrix of its outputs and solvers for it."""

from fisher8_jax.curvature._network_curvature import NetworkCurvature as NetworkCurvature
from fisher8_jax.curvature._network_curvature import network_curvature as network_curvature
